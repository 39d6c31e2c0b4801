"""Random changes to a bundle: to its members, its manifest, its notes and proofs, its entries."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3
from bundle_tars import Members, with_these_blobs
from event_examples import EXAMPLES
from forge import ORIGINAL_REF, SESSION, Forge
from json_mutations import mutated, mutated_text
from tampering import finding

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffAmended
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, ToolUsed
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.envelope import commitment_to, decode_entry, signed_bytes

if TYPE_CHECKING:
    import random


def filled(events: int) -> Forge:
    """Return an honest log with this number of events: single ones and batches, also signed with a delegated key."""
    forge = Forge()
    forge.submit(
        forge.sign("alice", Draft(stream="session/more", kind="session.started", data=EXAMPLES["session.started"]))
    )
    key = forge.delegate("alice", forge.new_key("session"))
    while len(forge.entries) < events:
        drafts = [Draft(stream=SESSION, data=finding(at)) for at in range(min(8, events - len(forge.entries)))]
        forge.submit(forge.sign("alice", *drafts))
        if len(forge.entries) < events:
            forge.emit("alice", "session/more", finding(3), key=key)
    return forge


def with_blobs() -> Forge:
    """Return a log whose entries need four blobs and name three more, one of them by its SHA-256."""
    forge = filled(12)
    needed = [forge.put_blob(f"# Handoff {number}".encode()) for number in range(2)]
    for number, ref in enumerate(needed):
        forge.hand_over(f"filed-{number}", criteria=["it is checked"], template=ref)
    named = [forge.put_blob(f"file {number}".encode()) for number in range(2)]
    by_sha256 = f"sha256:{sha256(b'file 1').hexdigest()}"
    forge.emit("alice", SESSION, FindingLogged(finding="see the files", evidence=[*named, by_sha256]))
    forge.emit("alice", "handoff/filed-0", HandoffAmended(title="again", to="bob", reviewer="rita", template=needed[1]))
    forge.emit("alice", SESSION, ToolUsed(tool="report.txt", purpose=f"kept: {forge.put_blob(b'a report')}"))
    forge.emit("alice", "record/x", RecordImported(original=ORIGINAL_REF, source="notes/x", format="x"))
    absent = f"blake3:{blake3(b'a secret').hexdigest()}"
    forge.emit("alice", "record/y", RecordImported(original=absent, source="y", format="x", only_digest=True))
    return forge


def changed_blobs(members: Members, _others: Members, chance: random.Random) -> Members:
    """Return the members with blobs removed, added or exchanged, and a matching manifest, which no signature covers."""
    blobs = {name: data for name, data in members if name.startswith("blobs/")}
    for _ in range(chance.randrange(1, 4)):
        content = chance.choice([chance.randbytes(9), b"", *blobs.values()])
        algorithm, digest = chance.choice([("blake3", blake3(content)), ("sha256", sha256(content))])
        match chance.randrange(4):
            case 0 | 1 if blobs:
                del blobs[chance.choice([*blobs])]
            case 2 if blobs:
                blobs[chance.choice([*blobs])] = content
            case _:
                blobs[f"blobs/{algorithm}/{digest.hexdigest()}"] = content
    return with_these_blobs(members, blobs)


def changed_members(members: Members, others: Members, chance: random.Random) -> Members:
    """Return the members with one of them changed; ``others`` are those of another log."""
    members = list(members)
    at = chance.randrange(len(members))
    name, data = members[at]
    match chance.randrange(9):
        case 0:
            del members[at]
        case 1:
            members.insert(chance.randrange(len(members)), members[at])
        case 2:
            other = chance.randrange(len(members))
            members[at], members[other] = (name, members[other][1]), (members[other][0], data)
        case 3:
            members[at] = (name, data[: chance.randrange(len(data) + 1)])
        case 4:
            members[at] = (name, data + bytes(chance.randrange(1, 70)))
        case 5:
            members[at] = (name, dict(others).get(name, b""))
        case 6:
            members.insert(0, members.pop(at))
        case 7:
            members[at] = (chance.choice(("evil", "../" + name, name[:-1] or "x", name + "/", "tile/0/999")), data)
        case _:  # flip one bit, so that all lengths stay the same
            place = chance.randrange(len(data))
            members[at] = (name, data[:place] + bytes((data[place] ^ 1 << chance.randrange(8),)) + data[place + 1 :])
    return members


def changed_text(members: Members, _others: Members, chance: random.Random) -> Members:
    """Return the members with the manifest, or a line of a note, proof or key file, changed within its form."""
    texts = re.compile("checkpoint|keys/.*|manifest.json|.*proof")
    wanted = chance.choice([name for name, _ in members if texts.fullmatch(name)])
    data = dict(members)[wanted]
    if wanted == "manifest.json":
        value: Any = mutated(json.loads(data), chance)
        try:
            data = encode_canonical(value) + b"\n"
        except Refused:
            data = json.dumps(value).encode("utf-8", "replace") + b"\n"
    else:
        lines = data.decode().split("\n")
        at = chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines[at] = base64.b64encode(chance.randbytes(32)).decode()
            case 3:
                lines[at] += chance.choice((" ", "0", "=", "\r", "+"))
            case _:  # another number, if the text has one
                lines[at] = lines[at].translate(str.maketrans("0123456789", "1234567890"))
        data = "\n".join(lines).encode()
    return [(name, data if name == wanted else old) for name, old in members]


def changed_entries(forge: Forge, chance: random.Random) -> None:
    """Change entries of a log, before its keeper exports it and signs the export."""
    entries = forge.entries
    at, other = chance.randrange(len(entries)), chance.randrange(len(entries))
    entry, fields = decode_entry(entries[at]), {}
    match chance.randrange(8):
        case 0:
            del entries[at]
        case 1:
            entries.insert(other, entries[at])
        case 2:
            entries[at], entries[other] = entries[other], entries[at]
        case 3:
            fields = {"key": decode_entry(entries[other]).key}
        case 4:
            fields = {"sig": decode_entry(entries[other]).sig}
        case 5:
            name = chance.choice(("accepted_ms", "stream_version", "authority_version", "batch_index", "batch_size"))
            fields = {name: max(0, getattr(entry, name) + chance.choice((-1, 1, 2, 1000, 2**40)))}
        case 6:
            fields = {"body": decode_entry(entries[other]).body}
        case _:  # another text, signed by the same key
            author = next((name for name, key in forge.keys.items() if key.public == entry.key), "alice")
            text = mutated_text(json.loads(entry.body), chance)[: 40 * 1024]
            fields = {
                "body": text,
                "sig": forge.keys[author].sign(signed_bytes([commitment_to(text)])),
                "key": forge.keys[author].public,
            }
            fields |= {"batch_index": 0, "batch_size": 1}
    if fields:
        entries[at] = msgspec.structs.replace(entry, **fields).encode()
