"""One run over one bundle, and the verdict."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.authority import AUTHORITY, Authority
from deedbook.ledger.bundle.standalone.form import Event, Kinds, read_json
from deedbook.ledger.bundle.standalone.members import HOME, Members
from deedbook.ledger.bundle.standalone.proofs import (
    BATCH,
    ENDS,
    EVENT,
    TREE_MAX,
    WrongError,
    digest_of,
    is_signed,
    leaf_hash,
    need,
    pae,
    path_root,
    read_checkpoint,
    read_note,
    read_proof,
    read_text,
    tile_name,
    tree_root,
    vkey,
)

FORWARD_MAX_MS = 30 * 86_400_000
FIELDS = {"format", "ledger", "origin", "size", "root", "content", "stream", "indexes", "blobs", "verify_py", "files"}
FAULTS = (WrongError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
REF = re.compile("(blake3|sha256):[0-9a-f]{64}")


def read_manifest(text: bytes) -> dict[str, Any]:
    """Return the manifest: what the bundle says it is, of which nothing is believed."""
    manifest: dict[str, Any] = read_json(text)
    need(set(manifest) == FIELDS, "manifest.json has other fields than it must")
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    need(canonical.encode() + b"\n" == text, "manifest.json is not in its one form")
    need(manifest["format"] == "deedbook-bundle-1", "manifest.json names an unknown format")
    content, indexes, files = manifest["content"], manifest["indexes"], manifest["files"]
    numbers = [manifest["size"], *indexes]
    need(all(type(one) is int and 0 <= one <= TREE_MAX for one in numbers), "manifest.json has an impossible number")
    need(indexes == sorted(set(indexes)), "manifest.json does not list the entries in order")
    is_whole = content == "log" and manifest["stream"] is None and not indexes
    is_stream = content == "stream" and isinstance(manifest["stream"], str)
    need(is_whole or is_stream, "manifest.json is neither of a whole log nor of a stream")
    need(all(REF.fullmatch(ref) for ref in manifest["blobs"]), "manifest.json names a blob by no ref")
    need(isinstance(files, dict) and set(files) <= set(HOME), "manifest.json names a file of no backup")
    return manifest


class Audit:
    """What one run found, and what it knows so far."""

    def __init__(self, members: Members) -> None:
        """Read the manifest and the table of kinds."""
        self.members = members
        self.authority = Authority()
        self.clock = self.signatures = self.entries = 0
        self.last, self.jumps = -1, dict[int, int]()
        self.batch: list[tuple[Event, bytes]] = []
        self.problems: list[tuple[int | None, str]] = []
        self.missing: list[str] = []
        self.is_unsure = False
        self.ids: set[bytes] = set()
        self.idems: set[tuple[str, str]] = set()
        self.versions: Counter[str] = Counter()
        self.streams, self.named = dict[str, int](), dict[str, int]()
        self.batches: dict[bytes, tuple[int, int]] = {}
        self.manifest = read_manifest(members.read("manifest.json"))
        self.lost = members.check_names(self.manifest)
        self.missing += self.lost
        self.is_unsure = any(name.startswith("entries/") for name in self.lost)
        self.kinds = Kinds(members.read("schemas.json"))
        self.size: int = self.manifest["size"]

    def problem(self, index: int | None, message: str) -> None:
        """Record a problem at an index."""
        self.problems.append((index, message))

    def guarded(self, index: int, check: Callable[..., None], *details: Any) -> None:
        """Run a check; what it finds is a problem of this index."""
        try:
            check(index, *details)
        except FAULTS as wrong:
            self.problem(index, f"{wrong}" if isinstance(wrong, WrongError) else f"it lacks what it needs: {wrong!r}")

    def entry(self, index: int, data: bytes, proof: tuple[bytes, str] | None = None) -> None:
        """Check one entry: form, place in the tree, signature, clock, versions, and whether its key may sign it."""
        event = self.kinds.read(index, data)
        if proof is None:
            self.guarded(index, self.signed, event)
        else:
            self.proven(event, data, *proof)
        need(event.id not in self.ids, "the event is in the log twice")
        self.ids.add(event.id)
        self.guarded(index, self.time, event)
        self.guarded(index, self.counted, event)
        self.meant(event)
        try:
            self.authority.check(event)
        except WrongError as wrong:
            if not self.is_unsure:
                raise
            self.missing.append(f"what allows index {index} ({wrong})")  # it may stand in what is missing
        self.entries += 1

    def signed(self, index: int, event: Event) -> None:
        """Check the signature of an entry, or keep it until its batch is whole."""
        entry, signed = event.entry, pae(EVENT, event.entry.body)
        batch, self.batch = self.batch, []
        if entry.batch == 1:
            need(is_signed(entry.key, signed, entry.signature), "its signature does not fit")
            self.signatures += 1
            need(not batch, "it stands within a batch")
            return
        need(entry.place == len(batch), "it is not the next of its batch")
        first = batch[0][0].entry if batch else entry
        shared = (first.key, first.signature, first.batch, first.accepted_ms)
        is_alike = shared == (entry.key, entry.signature, entry.batch, entry.accepted_ms)
        need(is_alike, "it differs from its batch in key, signature, size or time")
        batch.append((event, leaf_hash(signed)))
        if len(batch) < entry.batch:
            self.batch = batch
            return
        root = tree_root([leaf for _, leaf in batch])
        if is_signed(entry.key, pae(BATCH, entry.batch.to_bytes(8, "big") + root), entry.signature):
            self.signatures += entry.batch
        else:
            self.problem(batch[0][0].index, f"the signature of the batch up to entry {index} does not fit")

    def proven(self, event: Event, data: bytes, root: bytes, note: str) -> None:
        """Check an entry of a stream by its C2SP tlog-proof, and its signature by its path in its batch."""
        index, entry = event.index, event.entry
        name = f"entries/{index:020d}.tlog-proof"
        path, batch_path = read_proof(read_text(self.members.read(name), "its proof"), index, note)
        need(path_root(leaf_hash(data), index, self.size, path) == root, "its proof does not lead to the root")
        self.streams["" if event.kind in AUTHORITY else event.stream] = index
        # What the rules of a handoff look at: the handoffs that it waits for, and the one that takes its place.
        mapped = event.data.get("mapped", event.data) if event.stream.startswith("handoff/") else {}
        named = [*(mapped.get("depends_on") or []), *([mapped["by"]] if event.kind == "handoff.superseded" else [])]
        self.named |= {f"handoff/{name}": index for name in named}
        signed = pae(EVENT, entry.body)
        need((entry.batch == 1) == (batch_path is None), "its proof has a path in a batch, and it is of none")
        if batch_path is not None:
            top = path_root(leaf_hash(signed), entry.place, entry.batch, batch_path)
            signed = pae(BATCH, entry.batch.to_bytes(8, "big") + top)
            place = (index - entry.place, entry.accepted_ms)
            is_one = self.batches.setdefault(entry.signature, place) == place
            need(is_one, "it differs from its batch in time, or does not stand where it belongs in it")
        need(is_signed(entry.key, signed, entry.signature), "its signature, or that of its batch, does not fit")
        self.signatures += 1

    def time(self, index: int, event: Event) -> None:
        """Compare the entry's time with that of the one before it: only the root sets the clock back, or far ahead."""
        before, self.clock = self.clock, event.entry.accepted_ms
        is_next, self.last = index == self.last + 1, index
        if event.kind == "ledger.clock_set":
            # The root said of what lies ahead of this time that it was wrong: what was granted then holds no longer.
            self.jumps = {jump: jump_ms for jump, jump_ms in self.jumps.items() if jump_ms <= self.clock}
            return
        is_old_copy = event.kind == "ledger.history_reset"  # the root goes on from it
        if is_next and index > 0 and self.clock - before > FORWARD_MAX_MS and not is_old_copy:
            self.jumps[index] = self.clock
        now, self.clock = self.clock, max(before, self.clock)
        need(now >= before, "the ledger's clock goes back")

    def counted(self, index: int, event: Event) -> None:
        """Compare the entry's counts, of its stream and of authority, with those so far: a gap is what is missing."""
        for name, given in zip((event.stream, ""), event.entry.versions, strict=True):
            count = self.versions[name] + (name != "" or event.kind in AUTHORITY)
            if given > count and self.manifest["content"] == "stream":
                self.missing.append(f"{given - count} of {name or 'authority'} before index {index}")
                self.is_unsure |= name == ""
                count = given
            self.versions[name] = count
            need(given == count, f"it says that it is entry {given} of {name or 'authority'}, and is {count}")

    def meant(self, event: Event) -> None:
        """Check the version that the author expected, and that an idempotency key of its author is used once."""
        expected, idem = event.body.get("expect"), event.body.get("idem")
        version = event.entry.versions[0] - 1
        need(expected in (None, version), f"its stream is at version {version}, not {expected}")
        need(idem is None or (event.author, idem) not in self.idems, f"the idempotency key {idem!r} was used before")
        self.idems |= {(event.author, idem)} if idem is not None else set()

    def log(self) -> list[bytes]:
        """Check a bundle of a whole log; return its leaf hashes."""
        leaves: list[bytes] = []
        for number in range(-(-self.size // 256)):
            width, index = min(256, self.size - number * 256), number * 256
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
        level, below = 1, leaves
        while len(below) >= 256:
            below = [tree_root(below[at : at + 256]) for at in range(0, len(below) - 255, 256)]
            for number in range(-(-len(below) // 256)):
                wanted = below[number * 256 : number * 256 + 256]
                if self.members.read(tile_name(level, number, len(wanted))) != b"".join(wanted):
                    first = number * 256 ** (level + 1)
                    self.problem(first, f"tile {number} of level {level} does not fit the entries")
            level += 1
        return leaves

    def files(self) -> None:
        """Check blobs, and what a backup holds of the ledger's folder, by their hashes."""
        named = {f"blobs/{ref.replace(':', '/')}": ref for ref in self.manifest["blobs"]}
        named |= {f"home/{name}": f"blake3:{digest}" for name, digest in self.manifest["files"].items()}
        for name, ref in named.items():
            if name in self.lost:
                continue
            algorithm, _, digest = ref.partition(":")
            need(digest_of(algorithm, self.members.read(name)) == digest, f"{name} has another content")
        program = digest_of("sha256", self.members.read("verify.py"))
        need(program == self.manifest["verify_py"], "verify.py is another program")

    def checkpoint_keys(self) -> list[bytes]:
        """Return the keys that may sign for a tree of this size: of each node the last one named within it."""
        need(self.authority.root, "entry 0 names no keys")
        return self.authority.checkpoint_keys(self.size)

    def checkpoint(self, leaves: list[bytes] | None) -> None:
        """Check the checkpoint, the manifest and the key files against entry 0 and the tree."""
        authority, manifest, read = self.authority, self.manifest, self.members.read
        note = read_text(read("checkpoint"), "the checkpoint")
        size, root = read_checkpoint(note, authority.origin, self.checkpoint_keys())
        need(size == self.size and root.hex() == manifest["root"], "checkpoint and manifest differ")
        need(leaves is None or tree_root(leaves) == root, "the entries do not lead to the root of the checkpoint")
        is_ours = manifest["ledger"] == authority.ledger and manifest["origin"] == authority.origin
        need(is_ours, "the manifest is of another ledger")
        root_key = bytes.fromhex(authority.root)
        wanted = {
            "keys/checkpoint.vkey": "\n".join(
                vkey(authority.origin, key) for _, _, key in authority.checkpoints if key not in authority.ends
            ),
            "keys/root.vkey": vkey("root", root_key),
            "keys/root.fingerprint": blake3(root_key).hexdigest(),
        }
        if not self.is_unsure:
            wanted["keys/agents.vkeys"] = "\n".join(authority.lines)
        for name, text in wanted.items():
            need(read(name) == text.encode() + b"\n", f"{name} is not what the entries say")

    def ends(self, root: bytes) -> None:
        """Compare where the streams end with the ledger's word on it, and see that all which are named are there."""
        stream, text = self.manifest["stream"], read_text(self.members.read("ends"), "the note of ends")
        lines = read_note(text, self.authority.origin, self.checkpoint_keys())
        need(len(lines) == 2 and lines[0] == ENDS, "the note of ends has another form")
        ends = read_json(lines[1].encode())
        counts = {"": ends["authority"], **ends["streams"]}
        need(all(type(one) is int and one >= 0 for one in counts.values()), "the note of ends has odd numbers")
        names = sorted(ends["streams"], key=lambda name: name.encode("utf-16-be"))  # RFC 8785
        plain = {"authority": counts[""], "root": root.hex(), "size": self.size}
        plain["streams"] = {name: counts[name] for name in names}
        is_plain = json.dumps(plain, separators=(",", ":"), ensure_ascii=False) == lines[1]
        need(is_plain and stream in names, "the note of ends is of another tree or stream, or not in its one form")
        for name, index in self.streams.items():
            if self.versions[name] > counts.get(name, 0):
                self.problem(index, f"{name or 'authority'} has more entries here than the ledger signed that it has")
        for name, count in counts.items():
            if self.versions[name] < count:
                self.missing.append(f"{count - self.versions[name]} of {name or 'authority'} at its end")
        for name, index in self.named.items():
            if not self.versions[name]:
                self.missing.append(f"{name}, which index {index} names")

    def run(self) -> None:
        """Check everything; what is of no index stops it."""
        leaves = None
        if self.manifest["content"] == "log":
            leaves = self.log()
        else:
            root, note = bytes.fromhex(self.manifest["root"]), read_text(self.members.read("checkpoint"), "checkpoint")
            for index in self.manifest["indexes"]:
                name = f"entries/{index:020d}.entry"
                if {name, f"entries/{index:020d}.tlog-proof"} & set(self.lost):
                    continue  # the entries after it, or the note of ends, tell which stream it is missing from
                data = self.members.read(name)
                self.guarded(index, self.entry, data, (root, note))
            self.ends(root)
        for index in self.jumps:
            self.problem(index, "its time is more than 30 days after the one before it, and the root did not set it")
        self.files()
        self.checkpoint(leaves)

    def verdict(self, fingerprint: str | None, *, is_partial_enough: bool) -> tuple[int, str]:
        """Return the exit code and the last line."""
        found = blake3(bytes.fromhex(self.authority.root)).hexdigest()
        trust = "root key as given" if fingerprint else f"self-asserted: compare the root key's fingerprint {found}"
        if self.problems:
            where = next((f" at index {index}" for index, _ in self.problems if index is not None), "")
            return 6, f"INVALID{where}: {len(self.problems)} problem(s) in {self.entries} entries ({trust})"
        left = sorted({stream.partition("/")[0] for stream in self.versions} - {"", "agent", "ledger"})
        stream = self.manifest["stream"]
        scope = "whole log" if stream is None else f"stream {stream} and authority as of head {self.size}"
        rules = f"authority replayed, rules not replayed: {', '.join(left) or 'none'}"
        what = f"{self.signatures} signatures, tree of {self.size}, checkpoint ({scope}; {rules}; {trust})"
        if self.missing:
            return 0 if is_partial_enough else 6, f"PARTIAL: {'; '.join(self.missing[:5])}: {what}"
        compromised = self.authority.compromised_signatures()
        if compromised:
            first, total = compromised[0], len(compromised)
            return 0, f"SUSPECT_KEY at index {first}: {total} entries with compromised signatures: {what}"
        return 0, f"VALID: {what}"


def shown(text: str) -> str:
    """Return a line of which no character moves or hides others: a stranger named streams and fields."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def main(arguments: list[str]) -> int:
    """Check the bundle and print the verdict; return the exit code."""
    parser = argparse.ArgumentParser("verify.py", description="Check a bundle of a Deedbook ledger.")
    parser.add_argument("place", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--root", help="the fingerprint of the root key, or its first 32 digits")
    parser.add_argument("--partial", action="store_true", help="exit with 0 even if events are missing")
    options = parser.parse_args(arguments)
    try:
        audit = Audit(Members(options.place))
    except OSError as error:
        print(f"{options.place} is no bundle: {error}", file=sys.stderr)
        return 2
    except FAULTS as wrong:
        print(shown(f"INVALID: {wrong}"))
        return 6
    try:
        audit.run()
    except (*FAULTS, OSError) as wrong:
        audit.problem(None, str(wrong))
    if audit.authority.root and options.root is not None:
        found, given = blake3(bytes.fromhex(audit.authority.root)).hexdigest(), options.root.lower()
        if len(given) < 32 or not found.startswith(given):
            audit.problem(0, f"the root key has the fingerprint {found}, not {given}")
    for index, message in audit.problems[:100]:
        print(shown(f"index {index}: {message}" if index is not None else message))
    code, line = audit.verdict(options.root, is_partial_enough=options.partial)
    print(shown(line))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
