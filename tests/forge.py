"""A gate without checks. It makes logs with valid signatures, tree and checkpoint, but with events that break rules.

It appends signed events, in memory, without applying the rules. Its logs are exported as those of any ledger.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
from blake3 import blake3
from building import AGENTS, Actors

from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import export, export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.client.reads import Page
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.envelope import (
    ED25519,
    ENTRY_VERSION,
    BodyHead,
    Entry,
    Submission,
    commitment_to,
    decode_entry,
    entry_leaf,
    event_id,
    signed_bytes,
)
from deedbook.ledger.format.merkle import root_of
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, StreamHeads, sign_checkpoint, sign_stream_heads

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from deedbook.ledger.client.reads import EntryReads
    from deedbook.ledger.events.authority import Role
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key

SESSION = "session/audited"
ORIGINAL = b"a record of another tool"
ORIGINAL_REF = f"blake3:{blake3(ORIGINAL).hexdigest()}"
_decode_head, _survey, _select_entries = export._decode_head, export._survey, export._select_entries


class Forge(Actors):
    """A log in memory that begins with valid events: agents, an admin, a service, a session, an approved handoff.

    It has ``ORIGINAL`` as a blob. ``checkpoint_with`` is the key that signs its checkpoint. It has the methods of a
    client that ``export_bundle`` calls.
    """

    def __init__(self, *, is_begun: bool = True, agents: Mapping[str, Sequence[Role]] = AGENTS) -> None:
        super().__init__(submit=self.append, agents=agents)
        self.entries: list[bytes] = []
        self.blobs: dict[str, bytes] = {}
        self.put_blob(ORIGINAL)
        self.checkpoint_with = self.keys[CHECKPOINT]
        self.streams: Counter[str] = Counter()
        self.authority = 0
        if is_begun:
            begun = _begun()
            self.entries, self.keys, self.clock.now_ms = [*begun.entries], {**begun.keys}, begun.clock.now_ms
            self.streams, self.authority = begun.streams.copy(), begun.authority

    def append(self, submission: Submission) -> list[Accepted]:
        """Append a signed submission without checks."""
        for position, body in enumerate(submission.bodies):
            self.store(body, submission.key, submission.sig, (position, len(submission.bodies)))
        self.clock.advance(0.001)  # so that the next signed event differs from this one
        first = len(self.entries) - len(submission.bodies)
        ids = [event_id(commitment_to(body)) for body in submission.bodies]
        return [Accepted(index, name, self.clock.now_ms) for index, name in enumerate(ids, first)]

    def store(self, body: bytes, key: bytes, sig: bytes, place: tuple[int, int] = (0, 1), **changes: Any) -> None:
        """Append one entry, with ``changes`` to its fields."""
        stream, kind = (body.split(b'"%b":"' % name)[-1].split(b'"')[0].decode() for name in (b"stream", b"kind"))
        self.streams[stream] += 1
        self.authority += kind in AUTHORITY_KINDS
        fields = {
            "version": ENTRY_VERSION,
            "body": body,
            "key": key,
            "alg": ED25519,
            "sig": sig,
            "batch_index": place[0],
            "batch_size": place[1],
            "accepted_ms": self.clock.now_ms,
            "stream_version": self.streams[stream],
            "authority_version": max(self.authority, 1),
        }
        self.entries.append(Entry(**(fields | changes)).encode())

    def raw(self, author: str, body: bytes, **changes: Any) -> None:
        """Append an event of exactly these bytes, with a valid signature."""
        signed = {"key": self.keys[author].public, "sig": self.keys[author].sign(signed_bytes([commitment_to(body)]))}
        self.store(body, **(signed | changes))

    def edited(self, author: str, stream: str, data: EventData, old: str, new: str) -> None:
        """Append an event with a part of its text replaced before it is signed."""
        text = self.body(author, stream, data)
        assert old.encode() in text
        self.raw(author, text.replace(old.encode(), new.encode(), 1))

    def body(self, author: str, stream: str, data: EventData | dict[str, Any], **draft: Any) -> bytes:
        """Return the body that an author would sign."""
        return self.body_of(author, Draft(stream=stream, data=data, **draft))

    def batch(self, author: str, *bodies: bytes, key: Key | None = None) -> list[tuple[bytes, bytes, bytes]]:
        """Return body, key and the shared signature of each event of a batch."""
        signer = key or self.keys[author]
        sig = signer.sign(signed_bytes([commitment_to(body) for body in bodies]))
        return [(body, signer.public, sig) for body in bodies]

    # The methods of a client that an export calls.

    def checkpoint(self) -> str:
        """Return the signed checkpoint."""
        root = root_of([entry_leaf(entry) for entry in self.entries])
        origin = self.checkpoint_key.origin
        return sign_checkpoint(
            Checkpoint(origin, len(self.entries), root), CheckpointKey(origin, self.checkpoint_with.seed)
        )

    def entry(self, index: int) -> bytes:
        """Return an entry."""
        return self.entries[index]

    def put_blob(self, content: bytes) -> str:
        """Store a blob for exports, and return its ref."""
        ref = f"blake3:{blake3(content).hexdigest()}"
        self.blobs |= {ref: content, f"sha256:{sha256(content).hexdigest()}": content}
        return ref

    def get_blob(self, ref: str) -> bytes:
        """Return a blob that was stored."""
        if ref not in self.blobs:
            raise Refused("NOT_FOUND", f"there is no blob {ref}")
        return self.blobs[ref]

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        """Return the size of a blob, and its content as if it were one chunk."""
        content = self.get_blob(ref)
        return len(content), content if number == 0 else b""

    def blob_chunks(self, ref: str) -> list[bytes]:
        """Return the content of a blob as one chunk."""
        return [self.get_blob(ref)]

    def ends(self, size: int, streams: Collection[str]) -> str:
        """Return the signed note about the lengths of streams."""
        root = root_of([entry_leaf(entry) for entry in self.entries[:size]]).hex()
        ends = StreamHeads(size, root, self.authority, {name: self.streams[name] for name in streams})
        return sign_stream_heads(ends, CheckpointKey(self.checkpoint_key.origin, self.checkpoint_with.seed))

    def page(self, start: int, *, limit: int | None = None) -> Page:
        """Return entries from ``start`` on."""
        return Page(list(enumerate(self.entries))[start:][:limit], len(self.entries), len(self.entries))

    def export(self, path: Path, stream: str | None = None, *, leave_out: Collection[int] = ()) -> Path:
        """Export the log, or one stream without the entries ``leave_out``, as a dishonest operator would."""

        def survey(*arguments: Any) -> export._Survey:
            surveyed = _survey(*arguments)
            surveyed.authority = [event for event in surveyed.authority if event[0] not in leave_out]
            return surveyed

        def select_entries(*arguments: Any) -> tuple[list[str], list[int]]:
            streams, indexes = _select_entries(*arguments)
            return streams, [index for index in indexes if index not in leave_out]

        fakes = {"_decode_head": _head_of, "_survey": survey, "_select_entries": select_entries}
        fakes |= {"read_batch_path": _read_path}
        with mock.patch.multiple(export, **fakes):
            path.unlink(missing_ok=True)
            export_bundle(_Client(self), path, stream=stream)  # type: ignore[arg-type]
        return path


def begin(actors: Actors) -> None:
    """Append the first events of every honest ledger."""
    actors.submit(actors.sign("root", actors.registered("ada", ["admin"])))
    actors.submit(actors.sign(NODE, actors.registered("router", ["service"])))
    actors.emit("alice", SESSION, SessionStarted(task="audit"))
    actors.approve("open", actors.hand_over("open", criteria=["it is checked"]))


@cache
def _begun() -> Forge:
    """Return a forge with the first events of every honest ledger. Each new forge copies it; nobody appends to it."""
    forge = Forge(is_begun=False)
    forge.submit(forge.sign("root", *forge.first_drafts()))
    begin(forge)
    return forge


def _head_of(index: int, data: bytes) -> BodyHead:
    """Return the fields that an export needs, even of an invalid entry. Bytes that are no entry belong to no stream."""
    try:
        head = _decode_head(index, data)
    except Corrupted:
        return BodyHead("unknown", SESSION if is_entry(data) else "", msgspec.Raw(b"{}"))
    try:
        read_event(index, data)
    except Refused:  # an export reads these kinds in full, and would fail on an invalid one
        return msgspec.structs.replace(head, kind="unknown") if head.kind in AUTHORITY_KINDS else head
    return head


def _read_path(reads: EntryReads, index: int, entry: Entry) -> list[bytes]:
    """Return the path of an entry in its batch, or nothing if a part of the batch is not an entry."""
    try:
        return read_batch_path(reads, index, entry)
    except Refused:
        return []


def is_entry(data: bytes) -> bool:
    """Return whether bytes are an entry; its body may be invalid."""
    try:
        decode_entry(data)
    except Refused:
        return False
    return True


class _Client:
    """A client with only the methods that an export calls."""

    def __init__(self, forge: Forge) -> None:
        self.ledger, self.checkpoint, self.entry, self.get_blob = (
            forge.id,
            forge.checkpoint,
            forge.entry,
            forge.get_blob,
        )
        self.blob_chunk, self.blob_chunks = forge.blob_chunk, forge.blob_chunks
        self.entries, self.ends = forge.page, forge.ends
