"""Checks a bundle of a Baton ledger; needs Python 3.11, PyNaCl and blake3, and nothing of Baton.

    tar xf audit.tar && python3 verify.py [--root FINGERPRINT] [FOLDER or TAR]

It checks the form of every entry, its id, its signature (its own, or that of its batch), that the ledger's clock
goes back or far ahead only where the root set it, that every signing key was registered before it signed and neither
revoked, replaced nor removed, the Merkle tree, the signed checkpoint, and the blobs. It does not replay the rules of
handoffs, reasonings and sessions: `baton verify --bundle` does. Exit code 0: everything fits; 6: something does not,
and the output names the index; 2: no bundle.

This file is written to be read: it shares no code with Baton, so that a mistake there is not repeated here; and it is
one file, however long, because it travels alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT = b"application/vnd.baton.event.v1+json"
BATCH = b"application/vnd.baton.batch.v1"
ENTRY_MAX = 48 * 1024
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORWARD_MAX_MS = 30 * 86_400_000
CLOCK_MAX_MS = 253_402_300_799_999
FIELDS = {"format", "ledger", "origin", "size", "root", "content", "stream", "indexes", "blobs", "verify_py", "files"}

AUTHORITY = {
    *("ledger.created", "ledger.epoch_started", "ledger.clock_set", "agent.registered", "agent.removed"),
    *("role.granted", "role.revoked", "key.delegated", "key.revoked", "key.rotated"),
    *("key.compromised", "checkpoint_key.rotated"),
}
POSSESSION = b"application/vnd.baton.possession.v1"


class WrongError(Exception):
    """Something in the bundle is not what it must be."""


def need(condition: object, message: str) -> None:
    """Stop with a message unless the condition holds."""
    if not condition:
        raise WrongError(message)


def leaf_hash(data: bytes) -> bytes:
    """RFC 6962 §2.1: the hash of a leaf."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 §2.1: the hash of an inner node."""
    return hashlib.sha256(b"\1" + left + right).digest()


def tree_root(hashes: list[bytes]) -> bytes:
    """RFC 6962 §2.1: the root over leaf hashes."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    while len(hashes) > 1:
        pairs = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
        hashes = pairs + ([hashes[-1]] if len(hashes) % 2 else [])
    return hashes[0]


def path_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """RFC 9162 §2.1.3.2: the root that a path leads to."""
    last, rest = size - 1, list(path)
    while last > 0:
        if index % 2 or index < last:
            need(rest, "a path is too short")
            sibling = rest.pop(0)
            leaf = node_hash(sibling, leaf) if index % 2 else node_hash(leaf, sibling)
        index, last = index // 2, last // 2
    need(not rest, "a path is too long")
    return leaf


def pae(kind: bytes, body: bytes) -> bytes:
    """DSSE: the bytes that are signed."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature fits (RFC 8032)."""
    try:
        VerifyKey(key).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Take bytes out of an entry."""
    need(at + size <= len(data), "the entry ends too soon")
    return data[at : at + size], at + size


def take_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a msgpack unsigned integer in its shortest form."""
    (first,), at = take(data, at, 1)
    if first < 0x80:
        return first, at
    need(0xCC <= first <= 0xCF, "a number was expected")
    size = 1 << (first - 0xCC)
    raw, at = take(data, at, size)
    number = int.from_bytes(raw, "big")
    need(number >= (0x80 if size == 1 else 1 << (4 * size)), "a number is not in its shortest form")
    return number, at


def take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read msgpack bytes in their shortest form."""
    (first,), at = take(data, at, 1)
    need(first in (0xC4, 0xC5), "bytes were expected")
    raw, at = take(data, at, first - 0xC3)
    size = int.from_bytes(raw, "big")
    need(first == 0xC4 or size > 0xFF, "bytes are not in their shortest form")
    return take(data, at, size)


def read_entry(data: bytes) -> tuple[bytes, bytes, bytes, int, int, int]:
    """Return (body, key, signature, index in batch, size of batch, accepted_ms) of an entry in its one form."""
    need(len(data) <= ENTRY_MAX, "the entry is too large")
    need(data[:1] == b"\x98", "the entry is no array of eight")
    version, at = take_number(data, 1)
    need(version == 1, "the entry is of an unknown version")
    body, at = take_bytes(data, at)
    key, at = take_bytes(data, at)
    algorithm, at = take_number(data, at)
    need(algorithm == 1, "the signature is of an unknown algorithm")
    signature, at = take_bytes(data, at)
    number, at = take_number(data, at)
    size, at = take_number(data, at)
    accepted_ms, at = take_number(data, at)
    need(at == len(data), "there are bytes after the entry")
    need(len(key) == 32 and len(signature) == 64, "key or signature has the wrong length")
    need(number < size <= 256, "its place in the batch is impossible")
    need(accepted_ms <= CLOCK_MAX_MS, "its time lies beyond the year 9999")
    return body, key, signature, number, size, accepted_ms


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a key twice."""
    need(len(dict(pairs)) == len(pairs), "a JSON key stands twice")
    return dict(pairs)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities."""
    raise WrongError(f"{name} is not JSON")


def read_json(text: bytes) -> Any:
    """Parse strict JSON."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise WrongError(f"this is not JSON: {error}") from error


class Keys:
    """Which key may sign for whom, as the authority events say, in the order of the log."""

    def __init__(self) -> None:
        """Start without keys."""
        self.owner: dict[bytes, str] = {}
        self.ended: dict[bytes, int] = {}
        self.identity: dict[str, bytes] = {}
        self.delegator: dict[bytes, bytes] = {}
        self.roles: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.origin = self.ledger = ""
        self.root = self.checkpoint = b""
        self.lines: list[str] = []

    def check(self, index: int, body: dict[str, Any], key: bytes) -> None:
        """Compare the signing key with the author, then learn what the event changes."""
        kind, author, data = body["kind"], body["author"], body["data"]
        if index == 0:
            need(kind == "ledger.created", "entry 0 is not ledger.created")
            need(bytes.fromhex(data["root"]) == key, "entry 0 is not signed by the root key it names")
            self.root, self.origin, self.ledger = key, data["origin"], blake3(key).hexdigest(length=16)
            self.checkpoint = bytes.fromhex(data["checkpoint_key"])
            self.register("root", key, identity=True)
            self.register("node", bytes.fromhex(data["node_key"]), identity=True)
            self.roles = {"root": {"admin"}, "node": set()}
        need(body["ledger"] == self.ledger, "the event is for another ledger")
        need(self.owner.get(key) == author, f"the key is not one of {author}")
        for one in (key, self.delegator.get(key, key)):
            need(one not in self.ended, f"the key of {author} ended at entry {self.ended.get(one)}")
        if kind in AUTHORITY and index > 0:
            need(key not in self.delegator, f"{kind} is signed with a session key")
            self.learn(index, kind, author, key, data)

    def learn(self, index: int, kind: str, author: str, key: bytes, data: dict[str, Any]) -> None:
        """Check who says it, and learn what an authority event changes."""
        is_admin = "admin" in self.roles[author]
        name = str(data.get("agent", data.get("name", author)))
        if kind == "agent.registered":
            need(is_admin or (author == "node" and data["roles"] == ["service"]), "an agent is registered by no admin")
            need(name not in self.identity and name != "checkpoint", f"{name} is registered twice")
            self.admit(name, data, identity=True)
            self.roles[name] = set(data["roles"])
        elif kind == "agent.removed":
            need(is_admin and name not in ("root", "node"), f"{name} is removed by no admin, or cannot be")
            self.ended.setdefault(self.identity[name], index)
            self.roles[name] = set()
            self.removed.add(name)
        elif kind in ("role.granted", "role.revoked"):
            need(is_admin and name not in self.removed, "a role is changed by no admin, or of who was removed")
            held = self.roles[name] - {data["role"]}
            self.roles[name] = held | {data["role"]} if kind == "role.granted" else held
        elif kind == "key.delegated":
            self.admit(author, data, identity=False)
            self.delegator[bytes.fromhex(data["key"])] = key
        elif kind == "key.rotated":
            works = name not in ("root", "node") and not self.roles[name] & {"admin", "human", "reviewer"}
            is_his = author in (name, "root") and (name != "root" or author == "root")
            need(is_his or (is_admin and works), f"the key of {name} is replaced by somebody who may not")
            need(name not in self.removed, f"{name} was removed before")
            old = self.identity[name]
            self.admit(name, data, identity=True)
            self.ended.setdefault(old, index)
        elif kind == "ledger.epoch_started":
            need(author == "root", "entries are given up by somebody who is not root")
        elif kind == "checkpoint_key.rotated":
            need(author == "root", "the checkpoint key is replaced by somebody who is not root")
            self.prove("checkpoint", data)
            self.checkpoint = bytes.fromhex(data["key"])
        elif kind in ("key.revoked", "key.compromised"):
            mine = bytes.fromhex(data["key"])
            owner = self.owner[mine]
            need(author == owner or is_admin, f"a key of {owner} is ended by somebody who may not")
            may = owner not in ("root", "node") or (mine in self.ended and author == "root")
            need(may, f"a key of {owner} is replaced, never ended")
            self.ended.setdefault(mine, index)

    def admit(self, name: str, data: dict[str, Any], *, identity: bool) -> None:
        """Let a key that proves whose it is sign for a name."""
        self.prove(name, data)
        self.register(name, bytes.fromhex(data["key"]), identity=identity)

    def prove(self, name: str, data: dict[str, Any]) -> None:
        """Check the proof that the holder of a key wants it to be of this name."""
        text = f"{self.ledger}\n{name}\n{data['key']}".encode()
        proof = bytes.fromhex(data["proof"])
        need(is_signed(bytes.fromhex(data["key"]), pae(POSSESSION, text), proof), f"no proof that the key is {name}'s")

    def register(self, name: str, key: bytes, *, identity: bool) -> None:
        """Let a key sign for a name."""
        need(key not in self.owner, "a key is registered twice")
        self.owner[key] = name
        if identity:
            self.identity[name] = key
        self.lines.append(vkey(name, key))


def key_id(name: str, key: bytes) -> bytes:
    """C2SP signed-note: the four bytes that name a key."""
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def vkey(name: str, key: bytes) -> str:
    """C2SP signed-note: the text of a key."""
    return f"{name}+{key_id(name, key).hex()}+{base64.b64encode(bytes([1]) + key).decode()}"


def read_base64(text: str) -> bytes:
    """Read base64 in its one form."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raw = b""
    need(text and base64.b64encode(raw).decode() == text, "base64 is not in its one form")
    return raw


def read_checkpoint(note: str, origin: str, key: bytes) -> tuple[int, bytes]:
    """Return (size, root) of a C2SP tlog-checkpoint signed by the key."""
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    lines = text.split("\n")
    need(len(lines) >= 4 and lines[0] == origin, "the checkpoint is not of this ledger")
    ours = []
    for line in signatures.removesuffix("\n").split("\n"):
        need(line.startswith("— ") and line.count(" ") == 2, "the checkpoint has a malformed signature line")
        _, name, blob = line.split(" ")
        raw = read_base64(blob)
        if name == origin and raw[:4] == key_id(origin, key):
            ours.append(raw[4:])
    need(ours, "the checkpoint is not signed by the checkpoint key of its size")
    need(all(is_signed(key, text.encode(), one) for one in ours), "the signature of the checkpoint does not fit")
    need(signatures.endswith("\n"), "the checkpoint does not end in a newline")
    return int(lines[1]), read_base64(lines[2])


class Members:
    """The files of a bundle, in a folder or still in the tar."""

    def __init__(self, place: Path) -> None:
        """Open the place."""
        self.tar = None if place.is_dir() else tarfile.open(place, "r:")  # noqa: SIM115 - closed with the process
        self.place = place
        self.used = {"verify.py"}

    def read(self, name: str) -> bytes:
        """Return the content of a member."""
        self.used.add(name)
        try:
            if self.tar is None:
                return (self.place / name).read_bytes()
            file = self.tar.extractfile(name)
        except (OSError, KeyError) as error:
            raise WrongError(f"{name} is missing") from error
        need(file is not None, f"{name} is no file")
        return b"" if file is None else file.read()

    def names(self) -> list[str]:
        """Return the names of all members."""
        if self.tar is not None:
            return self.tar.getnames()
        return [str(one.relative_to(self.place)) for one in self.place.rglob("*") if one.is_file()]


def tile_name(level: int | str, number: int, width: int) -> str:
    """C2SP tlog-tiles: the path of a tile."""
    digits = str(number)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "".join(f"x{part}/" for part in parts[:-1]) + parts[-1]
    return f"tile/{level}/{path}" + ("" if width == 256 else f".p/{width}")


class Audit:
    """One run over one bundle."""

    def __init__(self, members: Members) -> None:
        """Read the manifest."""
        self.members = members
        self.keys = Keys()
        self.clock = self.signatures = 0
        self.last, self.jumps = -1, dict[int, int]()
        self.batch: list[tuple[int, tuple[bytes, bytes, int], bytes]] = []
        self.problems: list[tuple[int | None, str]] = []
        self.ids: set[bytes] = set()
        text = members.read("manifest.json")
        self.manifest = read_json(text)
        canonical = json.dumps(self.manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        need(canonical.encode() + b"\n" == text, "manifest.json is not in its one form")
        need(set(self.manifest) == FIELDS, "manifest.json has other fields than it must")
        need(self.manifest["format"] == "baton-bundle-1", "manifest.json names an unknown format")
        self.size = self.manifest["size"]

    def problem(self, index: int | None, message: str) -> None:
        """Record a problem at an index."""
        self.problems.append((index, message))

    def entry(self, index: int, data: bytes, batch_path: list[bytes] | None = None) -> None:
        """Check one entry alone: form, id, key, clock; then its signature, or keep it for that of its batch."""
        body, key, signature, number, size, accepted_ms = read_entry(data)
        event = read_json(body)
        signed = pae(EVENT, body)
        identity = blake3(signed).digest()
        need(identity not in self.ids, "the event is in the log twice")
        self.ids.add(identity)
        self.time(index, accepted_ms, event)
        if size == 1:
            need(not self.batch, "it stands within a batch")
            need(is_signed(key, signed, signature), "its signature does not fit")
            self.signatures += 1
        elif batch_path is not None:
            root = path_root(leaf_hash(signed), number, size, batch_path)
            need(
                is_signed(key, pae(BATCH, size.to_bytes(8, "big") + root), signature), "its batch's signature is wrong"
            )
            self.signatures += 1
        else:
            self.member(number, size, (key, signature, accepted_ms), leaf_hash(signed))
        try:
            self.keys.check(index, event, key)
        except (KeyError, TypeError, ValueError) as error:
            raise WrongError(f"the event lacks what it needs: {error}") from error

    def time(self, index: int, accepted_ms: int, event: dict[str, Any]) -> None:
        """Compare the entry's time with that of the one before it: only the root sets the clock back, or far ahead."""
        before, self.clock = self.clock, accepted_ms
        is_next, self.last = index == self.last + 1, index
        if event["kind"] != "ledger.clock_set":
            is_old_copy = event["kind"] == "ledger.epoch_started"  # the root goes on from it
            if is_next and index > 0 and accepted_ms - before > FORWARD_MAX_MS and not is_old_copy:
                self.jumps[index] = accepted_ms
            self.clock = max(before, accepted_ms)
            need(accepted_ms >= before, "the ledger's clock goes back")
            return
        time = datetime.fromisoformat(event["data"]["time"])
        need(event["author"] == "root", "the clock is not set by the root")
        need(accepted_ms == (time - EPOCH) // timedelta(milliseconds=1), "the clock is set to another time than signed")
        # The root said of what lies ahead of this time that it was wrong: what was granted then holds no longer.
        self.jumps = {jump: jump_ms for jump, jump_ms in self.jumps.items() if jump_ms <= accepted_ms}

    def member(self, number: int, size: int, shared: tuple[bytes, bytes, int], leaf: bytes) -> None:
        """Add an event to its batch; when the batch is whole, check its one signature."""
        need(number == len(self.batch), "it is not the next of its batch")
        need(
            not self.batch or self.batch[0][:2] == (size, shared), "it differs from its batch in key, signature or time"
        )
        self.batch.append((size, shared, leaf))
        if number + 1 == size:
            leaves, self.batch = [one[2] for one in self.batch], []
            signed = pae(BATCH, size.to_bytes(8, "big") + tree_root(leaves))
            need(
                is_signed(shared[0], signed, shared[1]),
                f"the signature of the batch of {size} ending here does not fit",
            )
            self.signatures += size

    def guarded(self, index: int, check: Callable[..., None], *details: bytes) -> None:
        """Run a check; what it finds is a problem of this index."""
        try:
            check(index, *details)
        except (WrongError, KeyError, TypeError, ValueError, IndexError) as wrong:
            self.problem(index, str(wrong))
            self.batch = []

    def log(self) -> list[bytes]:
        """Check a bundle of a whole log; return its leaf hashes."""
        leaves: list[bytes] = []
        for number in range(-(-self.size // 256)):
            width = min(256, self.size - number * 256)
            tile = self.members.read(tile_name(0, number, width))
            data, at = self.members.read(tile_name("entries", number, width)), 0
            for position in range(width):
                index = number * 256 + position
                end = at + 2 + int.from_bytes(data[at : at + 2], "big")
                entry, at = data[at + 2 : end], end
                leaves.append(leaf_hash(entry))
                if leaves[-1] != tile[position * 32 : position * 32 + 32] or end > len(data):
                    self.problem(index, "the entry is not the one that the tile holds")
                self.guarded(index, self.entry, entry)
            if at != len(data) or len(tile) != width * 32:
                self.problem(number * 256, f"the tiles of entries {number * 256} to {index} have another length")
        if self.batch:
            self.problem(self.size - len(self.batch), "the last batch is not whole")
        self.tiles(leaves)
        return leaves

    def tiles(self, hashes: list[bytes]) -> None:
        """Compare the tiles above level 0 with what they are computed from."""
        level, below = 1, hashes
        while len(below) >= 256:
            below = [tree_root(below[at : at + 256]) for at in range(0, len(below) - 255, 256)]
            for number in range(-(-len(below) // 256)):
                wanted = below[number * 256 : number * 256 + 256]
                if self.members.read(tile_name(level, number, len(wanted))) != b"".join(wanted):
                    self.problem(
                        number * 256 ** (level + 1), f"tile {number} of level {level} does not fit the entries"
                    )
            level += 1

    def stream(self, root: bytes) -> None:
        """Check a bundle of one stream: each entry and its proof."""
        for index in self.manifest["indexes"]:
            data = self.members.read(f"entries/{index:020d}.entry")
            self.guarded(index, self.proven, data, root)

    def proven(self, index: int, data: bytes, root: bytes) -> None:
        """Check an entry and its C2SP tlog-proof."""
        head, _, note = (
            self.members.read(f"entries/{index:020d}.tlog-proof").decode("utf-8", "replace").partition("\n\n")
        )
        lines = head.split("\n")
        need(lines.pop(0) == "c2sp.org/tlog-proof@v1", "its proof is of an unknown form")
        extra = read_base64(lines.pop(0)[6:]) if lines[0].startswith("extra ") else b""
        need(lines.pop(0) == f"index {index}", "its proof is of another index")
        need(note.encode() == self.members.read("checkpoint"), "its proof is under another checkpoint")
        path = [read_base64(line) for line in lines]
        need(path_root(leaf_hash(data), index, self.size, path) == root, "its proof does not lead to the root")
        event = read_json(read_entry(data)[0])
        is_asked = event["stream"] == self.manifest["stream"]
        need(is_asked or event["kind"] in AUTHORITY, f"it is of the stream {event['stream']}, not that of the bundle")
        self.entry(index, data, [extra[at : at + 32] for at in range(0, len(extra), 32)])

    def blobs(self) -> None:
        """Check that each blob has the hash it is named by."""
        for ref in self.manifest["blobs"]:
            need(re.fullmatch("(blake3|sha256):[0-9a-f]{64}", ref), "the manifest names a blob by no ref")
            algorithm, _, digest = ref.partition(":")
            content = self.members.read(f"blobs/{algorithm}/{digest}")
            found = blake3(content).hexdigest() if algorithm == "blake3" else hashlib.sha256(content).hexdigest()
            need(found == digest, f"blob {ref} has another content")

    def files(self) -> None:
        """Check that each file of the ledger's folder, which a backup holds, is the one that the manifest names."""
        for name, digest in self.manifest["files"].items():
            need(name in ("chains.toml", "config.toml", "keys.sealed"), "the manifest names a file of no backup")
            need(blake3(self.members.read(f"home/{name}")).hexdigest() == digest, f"home/{name} has another content")

    def checkpoint(self, leaves: list[bytes] | None) -> None:
        """Check the checkpoint, the manifest and the key files against entry 0 and the tree."""
        keys, manifest, read = self.keys, self.manifest, self.members.read
        need(keys.checkpoint, "entry 0 names no keys")
        size, root = read_checkpoint(read("checkpoint").decode("utf-8", "replace"), keys.origin, keys.checkpoint)
        need(size == self.size and root.hex() == manifest["root"], "checkpoint and manifest differ")
        need(leaves is None or tree_root(leaves) == root, "the entries do not lead to the root of the checkpoint")
        need(
            manifest["ledger"] == keys.ledger and manifest["origin"] == keys.origin, "the manifest is of another ledger"
        )
        need(hashlib.sha256(read("verify.py")).hexdigest() == manifest["verify_py"], "verify.py is another program")
        wanted = {
            "keys/checkpoint.vkey": vkey(keys.origin, keys.checkpoint),
            "keys/root.vkey": vkey("root", keys.root),
            "keys/root.fingerprint": blake3(keys.root).hexdigest(),
            "keys/agents.vkeys": "\n".join(keys.lines),
        }
        for name, text in wanted.items():
            need(read(name) == text.encode() + b"\n", f"{name} is not what the entries say")
        unknown = set(self.members.names()) - self.members.used
        need(not unknown, f"files that do not belong to the bundle: {', '.join(sorted(unknown)[:3])}")

    def run(self) -> None:
        """Check everything; problems without an index stop it."""
        need(self.manifest["content"] in ("log", "stream"), "manifest.json names an unknown content")
        leaves = None
        if self.manifest["content"] == "log":
            need(self.manifest["stream"] is None and self.manifest["indexes"] == [], "a whole log has all entries")
            leaves = self.log()
        else:
            self.stream(bytes.fromhex(self.manifest["root"]))
        for index in self.jumps:
            self.problem(index, "its time is more than 30 days after the one before it, and the root did not set it")
        self.blobs()
        self.files()
        self.checkpoint(leaves)


def main(arguments: list[str]) -> int:
    """Check the bundle and print the verdict; return the exit code."""
    fingerprint = None
    if arguments[:1] == ["--root"] and len(arguments) > 1:
        fingerprint, arguments = arguments[1], arguments[2:]
    place = Path(arguments[0]) if arguments else Path(__file__).resolve().parent
    try:
        audit = Audit(Members(place))
    except (OSError, tarfile.TarError) as error:
        print(f"{place} is no bundle: {error}", file=sys.stderr)
        return 2
    except (WrongError, KeyError, TypeError) as wrong:
        print(f"FAILED: {wrong}")
        return 6
    try:
        audit.run()
    except (WrongError, KeyError, TypeError, ValueError) as wrong:
        audit.problem(None, str(wrong))
    found = blake3(audit.keys.root).hexdigest() if audit.keys.root else ""
    if fingerprint is not None and (len(fingerprint) < 32 or not found.startswith(fingerprint.lower())):
        audit.problem(0, f"the root key has the fingerprint {found}, not {fingerprint}")
    for index, message in audit.problems[:100]:
        print(f"index {index}: {message}" if index is not None else message)
    if audit.problems:
        print(f"FAILED: {len(audit.problems)} problem(s) in {audit.size} entries")
        return 6
    trust = "root key as given" if fingerprint else f"self-asserted: compare the root key's fingerprint {found}"
    scope = (
        "whole log" if audit.manifest["content"] == "log" else f"stream {audit.manifest['stream']}, rules not replayed"
    )
    print(f"OK: {audit.signatures} signatures, tree of {audit.size}, checkpoint ({scope}; {trust})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
