"""The check of one bundle, and its verdict."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.authority import ALONE, AUTHORITY, Authority
from deedbook.ledger.bundle.standalone.form import (
    BATCH_BYTES_MAX,
    Entry,
    Event,
    Kinds,
    entry_leaf,
    read_entry,
    read_json,
    take_text,
    with_body,
)
from deedbook.ledger.bundle.standalone.members import HOME, Members
from deedbook.ledger.bundle.standalone.page import Page, details, escape, when
from deedbook.ledger.bundle.standalone.proofs import (
    ENDS,
    PROOF,
    TREE_MAX,
    WrongError,
    digest_of,
    is_signed,
    leaf_hash,
    need,
    parse_checkpoint,
    path_root,
    read_checkpoint,
    read_note,
    read_proof,
    read_text,
    signed_bytes,
    tile_name,
    tree_root,
    vkey,
)
from deedbook.ledger.bundle.standalone.receipt import RECEIPT_MAX, check_receipt
from deedbook.ledger.bundle.standalone.rules import AUTHORITY_FAMILIES, Rules

SUSPECTS_MAX = 20
ERASED_MAX = 20
FORWARD_MAX_MS = 30 * 86_400_000
FORMAT = "deedbook-bundle-1"
FIELDS = {"format", "ledger", "origin", "size", "root", "content", "stream", "indexes", "blobs", "verify_py", "files"}
FAULTS = (WrongError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
CLOSED = "gate: closed"
UNKNOWN_GATE = "not known (entries are missing or not valid, perhaps also some about keys and roles)"
REF = re.compile("(blake3|sha256):[0-9a-f]{64}")
CITING = ("artifacts", "evidence")
REF_IN_TEXT = re.compile(r"(?:event|blake3|sha256):[0-9a-f]{64}(?![0-9a-f])")


def read_manifest(text: bytes) -> dict[str, Any]:
    """Return the manifest: the bundle's description of itself. Each of its values is checked later."""
    document: Any = read_json(text)
    found = document.get("format") if isinstance(document, dict) else None
    message = f"its format is {found!r}, and this program reads {FORMAT}: take the program of the Deedbook that made it"
    need(found == FORMAT, message, "UNSUPPORTED_VERSION")
    manifest: dict[str, Any] = document
    need(set(manifest) == FIELDS, "manifest.json has unknown or missing fields", "CORRUPTED")
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    need(canonical.encode() + b"\n" == text, "manifest.json is not in canonical form", "CORRUPTED")
    content, indexes, files = manifest["content"], manifest["indexes"], manifest["files"]
    numbers = [manifest["size"], *indexes]
    is_in_range = all(type(number) is int and 0 <= number <= TREE_MAX for number in numbers)
    need(is_in_range, "manifest.json has a number out of range", "CORRUPTED")
    need(indexes == sorted(set(indexes)), "manifest.json does not list the entries in order", "CORRUPTED")
    is_whole = content == "log" and manifest["stream"] is None and not indexes
    is_stream = content == "stream" and isinstance(manifest["stream"], str)
    need(is_whole or is_stream, "manifest.json describes neither a whole log nor a stream", "CORRUPTED")
    are_refs = isinstance(manifest["blobs"], list) and all(REF.fullmatch(ref) for ref in manifest["blobs"])
    need(are_refs, "manifest.json has an invalid ref of a blob", "CORRUPTED")
    is_backup = isinstance(files, dict) and set(files) <= set(HOME)
    need(is_backup, "manifest.json names a file that no backup contains", "CORRUPTED")
    return manifest


class Audit:
    """The state of one check: the problems so far, and the values that later entries are compared with.

    ``clock_ms`` is the time of the ledger's clock since the entry ``changed_at``, and ``before_ms`` the time before it.
    ``blobs`` are those of the bundle. ``needed`` are the blobs that entries need, each with its first index; no entry
    names the ``unreferenced`` ones. ``cited`` are the refs of a file or event that entries give as evidence or result,
    each with its first entry. ``last_read`` are index and time of the last entry that could be read. ``batch`` are the
    entries of the open batch of ``batch_size``, each None if it cannot be read, and ``unread`` the indexes of entries
    that cannot be read and that no open batch has. ``doubt`` are index and time of an entry that is earlier than the
    one before it, until the next entry decides. ``problems`` are (index, code, message), and so are ``refusals``, whose
    reason may be an entry that is missing or cannot be read. ``gaps`` are (index, text): an event at that index or
    later may need such an entry. ``leaves`` are the leaf hashes of a whole log. ``trusted_size`` is the size of the
    reader's checkpoint, if this ledger signed it, and ``is_continued``: this log begins with it. ``is_whole``: every
    entry before this one is present and can be read. ``has_all_authority``: every event of authority is present and was
    accepted, so the files of keys can be compared. ``lacks_authority``: a version count shows that one is missing.
    """

    def __init__(self, members: Members) -> None:
        """Read the manifest and the table of kinds."""
        self.members = members
        self.authority = Authority()
        self.signatures = self.entries = self.before_ms = self.clock_ms = self.changed_at = 0
        self.last_index, self.jumps = -1, dict[int, int]()
        self.last_read: tuple[int, int] | None = None
        self.doubt: tuple[int, int] | None = None
        self.batch: list[tuple[int, Entry | None]] = []
        self.batch_size = 1
        self.unread: set[int] = set()
        self.problems: list[tuple[int | None, str, str]] = []
        self.refusals: list[tuple[int, str, str]] = []
        self.gaps: list[tuple[int, str]] = []
        self.missing: list[str] = []
        self.leaves: list[bytes] | None = None
        self.trusted_size: int | None = None
        self.is_continued = False
        self.is_root_right: bool | None = None
        self.idems: set[tuple[str, str]] = set()
        self.versions: Counter[str] = Counter()
        self.last_of_stream: dict[str, int] = {}
        self.batches: dict[bytes, tuple[int, int]] = {}
        self.manifest = read_manifest(members.read("manifest.json"))
        self.is_whole = self.manifest["content"] == "log"
        self.lost = members.check_names(self.manifest)
        self.missing += self.lost
        self.has_all_authority = not any(name.startswith("entries/") for name in self.lost)
        self.lacks_authority = False
        self.kinds = Kinds(members.read("schemas.json"))
        self.rules = Rules(self.kinds, self.authority)
        self.page = Page(self.kinds)
        self.is_page_checked = False
        self.broken = 0  # the number of correctly signed events that break a rule
        self.size: int = self.manifest["size"]
        self.needed: dict[str, int] = {}
        self.cited: dict[str, tuple[int, str]] = {}
        self.blobs: list[str] = [*self.manifest["blobs"], *members.added]
        self.unreferenced = set(self.blobs)

    def add_problem(self, index: int | None, message: str, code: str) -> None:
        """Record a problem at an index, or of the whole bundle (None)."""
        self.problems.append((index, code, message))

    def add_fault(self, index: int | None, fault: Exception) -> None:
        """Record a failed check as a problem."""
        if isinstance(fault, WrongError):
            self.add_problem(index, str(fault), fault.code)
        else:
            self.add_problem(index, f"it is malformed: {fault!r}", "INVALID_FORMAT")

    def run_check(self, index: int, check: Callable[..., None], *details: Any) -> None:
        """Run a check; record its failure as a problem of this index."""
        try:
            check(index, *details)
        except FAULTS as fault:
            self.add_fault(index, fault)

    def check_entry(self, index: int, data: bytes, proof: tuple[bytes, str] | None = None) -> None:
        """Check one entry: form, inclusion, signature, clock, versions, and whether its author may append it.

        ``proof`` is the root and the checkpoint in a bundle of one stream.
        """
        event = self.read_event(index, data, proof)
        self.entries += 1
        self.run_check(index, self.check_time, event.entry, event.kind)
        self.run_check(index, self.check_versions, event)
        at_ms = event.entry.accepted_ms
        # The rules use the ledger's clock, which a wrong time does not turn back.
        event = replace(event, entry=event.entry._replace(accepted_ms=self.clock_ms))
        try:
            self.decide(event)
            stored, is_erased = event.entry.stored, event.entry.is_erased
            self.page.add(index, at_ms, event.entry.key.hex(), event.body, stored, is_erased=is_erased)
        except WrongError as fault:
            self.has_all_authority &= event.kind not in AUTHORITY
            self.refusals.append((index, fault.code, f"{event.kind} by {event.author} on {event.stream}: {fault}"))
        finally:
            self.rules.remember(event)
            if event.entry.is_erased:
                self.authority.find_erased(event)
            for name, version in zip((event.stream, ""), event.entry.versions, strict=True):
                self.versions[name] = version  # so that a wrong count is reported once, not for every entry after it

    def read_event(self, index: int, data: bytes, proof: tuple[bytes, str] | None) -> Event:
        """Return the event in an entry, and check its signature. An unreadable entry of a log is a gap."""
        entry = None
        try:
            entry = read_entry(data)
            self.last_read = index, entry.accepted_ms
            if proof is None:
                self.add_to_batch(index, entry)
            event = self.kinds.read(index, entry)
        except FAULTS:
            self.has_all_authority = False
            if self.manifest["content"] == "log":
                if entry is None:
                    self.add_to_batch(index, None)
                self.is_whole = False
                self.gaps.append((index, f"entry {index}, which cannot be read"))
                if entry is not None:
                    self.run_check(index, self.check_time, entry, "")
            raise
        for ref in self.kinds.blobs_of(event):
            self.needed.setdefault(ref, index)
        self.note_cited(index, event)
        if self.unreferenced:
            self.unreferenced -= set(REF_IN_TEXT.findall(json.dumps(event.data, ensure_ascii=False)))
        if proof is not None:
            self.check_proof(index, entry, *proof)
        return event

    def note_cited(self, index: int, event: Event) -> None:
        """Note the refs that an event gives as evidence or result."""
        for value in (event.data.get(name) for name in CITING):
            for ref in REF_IN_TEXT.findall(details(value)):
                if not ref.startswith("sha256:"):  # a sha256 ref may also name a version or a graph
                    self.cited.setdefault(ref, (index, f"{event.kind} by {event.author} on {event.stream}"))

    def decide(self, event: Event) -> None:
        """Check whether the author may append an event, and apply it. A refused event changes nothing."""
        is_alone = event.kind not in ALONE or event.entry.batch_size == 1
        need(is_alone, f"{event.kind} is in a batch with other events", "INVALID_FIELD")
        need(not self.rules.has_event(event), "the log contains the event twice", "PARTIAL_RETRY")
        row, idem = self.rules.row_of(event), event.body.get("idem")
        self.authority.check_signer(event, is_decision=bool(row and row.get("identity_key")))
        self.check_expectations(event)
        self.rules.apply(event, row)
        self.authority.count(event)
        self.idems |= {(event.author, idem)} if idem is not None else set()

    def add_to_batch(self, index: int, entry: Entry | None) -> None:
        """Add the next entry of a log to its batch, and check the batch at its last entry.

        ``entry`` is None if it cannot be read: then it may be any member of the batch that is open or follows.
        """
        if self.batch and not self.continues_batch(index, entry):
            self.end_batch()
        if not self.batch:
            position, self.batch_size = (0, 1) if entry is None else (entry.position, entry.batch_size)
            self.batch = [(earlier, None) for earlier in range(index - position, index)]
            if not self.unread.issuperset(earlier for earlier, _ in self.batch):
                message = f"it is number {position} of a batch whose earlier entries are missing"
                self.add_problem(index, message, "VERIFICATION_FAILED")
            self.unread |= {index} if entry is None else set()
        self.batch.append((index, entry))
        if len(self.batch) >= self.batch_size:
            batch, self.batch = self.batch, []
            known = [(member, entry) for member, entry in batch if entry is not None]
            if len(known) == len(batch):  # otherwise, the entry that cannot be read is a problem already
                self.check_batch(known)

    def continues_batch(self, index: int, entry: Entry | None) -> bool:
        """Return whether an entry belongs to the open batch: by its numbers, or by its key and signature."""
        if entry is None or (entry.batch_size, entry.position) == (self.batch_size, len(self.batch)):
            return True
        first = next((member for _, member in self.batch if member is not None), None)
        if first is None or (entry.key, entry.signature) != (first.key, first.signature):
            return False
        message = f"it has wrong batch numbers: it is number {len(self.batch)} of a batch of {self.batch_size}"
        self.add_problem(index, message, "VERIFICATION_FAILED")
        return True

    def end_batch(self) -> None:
        """Record an open batch as incomplete: another batch or the end of the log follows."""
        if self.batch:
            message = f"its batch has {len(self.batch)} of {self.batch_size} events"
            self.add_problem(self.batch[0][0], message, "VERIFICATION_FAILED")
            self.batch = []

    def check_batch(self, batch: list[tuple[int, Entry]]) -> None:
        """Check a complete batch. A member that differs from most others is the wrong one, not the whole batch."""
        start, end = batch[0][0], batch[-1][0]
        size = sum(len(member.body) for _, member in batch if not member.is_erased)
        if size > BATCH_BYTES_MAX:
            self.add_problem(start, f"the batch up to entry {end} has {size} bytes", "TOO_LARGE")
        [(usual_ms, _)] = Counter(member.accepted_ms for _, member in batch).most_common(1)
        for index, member in batch:
            if member.accepted_ms != usual_ms:
                self.add_problem(index, "it has another time than its batch", "VERIFICATION_FAILED")
        signed = signed_bytes(len(batch), tree_root([member.commitment for _, member in batch]))
        pairs = dict.fromkeys((member.key, member.signature) for _, member in batch)
        right = next(((key, signature) for key, signature in pairs if is_signed(key, signed, signature)), None)
        if right is None:
            which = "its signature" if start == end else f"the signature of the batch up to entry {end}"
            self.add_problem(start, f"{which} is not valid", "SIGNATURE_INVALID")
            return
        for index, member in batch:
            if (member.key, member.signature) == right:
                self.signatures += 1
            else:
                self.add_problem(index, "it has another key or signature than its batch", "SIGNATURE_INVALID")

    def check_proof(self, index: int, entry: Entry, root: bytes, note: str) -> None:
        """Check the inclusion of an entry by its C2SP tlog-proof, and its signature, or that of its batch.

        An entry without a valid signature is reported and has no effect. If an entry does not fit its batch, this is
        reported, and the entry still has its effect.
        """
        name = f"entries/{index:020d}.tlog-proof"
        path, batch_path = read_proof(read_text(self.members.read(name), "its proof"), index, note)
        need(path_root(entry.leaf, index, self.size, path) == root, "its proof does not lead to the root")
        need(
            entry.is_signed_in_batch(batch_path),
            "its signature, or that of its batch, is not valid",
            "SIGNATURE_INVALID",
        )
        self.signatures += 1
        batch = (index - entry.position, entry.accepted_ms)
        if entry.batch_size > 1 and self.batches.setdefault(entry.signature, batch) != batch:
            message = "it differs from its batch in time, or is not at its position in the batch"
            self.add_problem(index, message, "VERIFICATION_FAILED")

    def check_time(self, index: int, entry: Entry, kind: str) -> None:
        """Compare the entry's time with those before it: only root sets the clock back, or far ahead.

        If the clock goes back, this entry may be too early, or the one before it too late: the next entry decides.
        """
        now_ms = entry.accepted_ms
        is_next, self.last_index = index == self.last_index + 1, index
        if kind == "ledger.clock_set":
            # Root corrects the clock: jumps beyond the new time are no longer a problem.
            self.end_doubt()
            self.jumps = {jump: jump_ms for jump, jump_ms in self.jumps.items() if jump_ms <= now_ms}
            self.before_ms, self.clock_ms, self.changed_at = now_ms, now_ms, index
            return
        is_reset = kind == "ledger.history_reset"  # root continues a copy, which may be old
        if is_next and index > 0 and now_ms - self.clock_ms > FORWARD_MAX_MS and not is_reset:
            self.jumps[index] = now_ms
        if self.doubt is not None:
            (early, early_ms), self.doubt = self.doubt, None
            is_early = now_ms >= self.clock_ms
            self.add_wrong_time(early if is_early else early - 1)
            if not is_early:
                self.clock_ms, self.changed_at = early_ms, early
        if now_ms > self.clock_ms:
            self.before_ms, self.clock_ms, self.changed_at = self.clock_ms, now_ms, index
        elif now_ms < self.clock_ms and self.changed_at == index - 1 and now_ms >= self.before_ms:
            self.doubt = (index, now_ms)
        elif now_ms < self.clock_ms:
            self.add_wrong_time(index)

    def end_doubt(self) -> None:
        """Record both entries as wrong if no later entry has shown which of the two times is wrong."""
        if self.doubt is not None:
            self.add_wrong_time(self.doubt[0] - 1)
            self.add_wrong_time(self.doubt[0])
            self.doubt = None

    def add_wrong_time(self, index: int) -> None:
        """Record an entry whose time is too early or too late."""
        self.jumps.pop(index, None)
        self.add_problem(index, "its time does not fit those of the entries next to it", "VERIFICATION_FAILED")

    def check_versions(self, index: int, event: Event) -> None:
        """Compare the entry's two versions with the numbers of entries so far; a jump means missing entries."""
        for name, version in zip((event.stream, ""), event.entry.versions, strict=True):
            count = self.versions[name] + (name != "" or event.kind in AUTHORITY)
            is_log = self.manifest["content"] == "log"
            if not self.is_whole and (is_log or version > count):
                if not is_log:
                    self.add_gap(name, f"{version - count} of {name or 'authority'} before entry {index}")
                count = version
            self.versions[name] = count
            if name or event.kind in AUTHORITY:
                self.last_of_stream[name] = index
            need(version == count, f"its version of {name or 'authority'} is {version}, but it is entry {count}")

    def add_gap(self, name: str, text: str) -> None:
        """Record missing entries of a stream, or of authority. They are after the last one that is present."""
        self.gaps.append((self.last_of_stream.get(name, -1) + 1, text))
        self.has_all_authority &= name != ""
        self.lacks_authority |= name == ""

    def check_expectations(self, event: Event) -> None:
        """Check that the author used the idempotency key once, and the stream version that the author expected."""
        expected, idem, version = event.body.get("expect"), event.body.get("idem"), self.versions[event.stream] - 1
        is_new = idem is None or (event.author, idem) not in self.idems
        need(is_new, f"the idempotency key {idem!r} is used twice", "IDEMPOTENCY_CONFLICT")
        is_expected = expected in (None, version)
        need(is_expected, f"its stream is at version {version}, but it expects {expected}", "STREAM_CONFLICT")

    def check_log(self) -> list[bytes]:
        """Check the entries and tiles of a whole log; return its leaf hashes."""
        leaves: list[bytes] = []
        for number in range(-(-self.size // 256)):
            width, index = min(256, self.size - number * 256), number * 256
            tile = self.members.read(tile_name(0, number, width))
            forms, bodies = (self.members.read(tile_name(part, number, width)) for part in ("entries", "bodies"))
            at, body_at = 0, 0
            for position in range(width):
                index = number * 256 + position
                bare, at = take_text(forms, at)
                body, body_at = take_text(bodies, body_at)
                entry = with_body(bare, body)
                leaves.append(entry_leaf(entry))
                is_same = leaves[-1] == leaf_hash(bare) == tile[position * 32 : position * 32 + 32]
                if not is_same or at > len(forms) or body_at > len(bodies):
                    self.add_problem(index, "the entry does not match its hash in the tile", "CORRUPTED")
                self.run_check(index, self.check_entry, entry)
            if (at, body_at, width * 32) != (len(forms), len(bodies), len(tile)):
                message = f"the tiles of entries {number * 256} to {index} have the wrong length"
                self.add_problem(number * 256, message, "CORRUPTED")
        self.end_batch()
        level, below = 1, leaves
        while len(below) >= 256:
            below = [tree_root(below[start : start + 256]) for start in range(0, len(below) - 255, 256)]
            for number in range(-(-len(below) // 256)):
                wanted = below[number * 256 : number * 256 + 256]
                if self.members.read(tile_name(level, number, len(wanted))) != b"".join(wanted):
                    first = number * 256 ** (level + 1)
                    self.add_problem(first, f"tile {number} of level {level} does not match the entries", "CORRUPTED")
            level += 1
        return leaves

    def check_files(self) -> None:
        """Check the hashes of the blobs, of the files under home/ in a backup, and of verify.py."""
        named = {f"blobs/{ref.replace(':', '/')}": ref for ref in self.blobs}
        named |= {f"home/{name}": f"blake3:{digest}" for name, digest in self.manifest["files"].items()}
        for name, ref in named.items():
            if name in self.lost:
                continue
            algorithm, _, digest = ref.partition(":")
            is_same = digest_of(algorithm, self.members.chunks(name)) == digest
            need(is_same, f"{name} does not match its hash", "CORRUPTED")
        program = digest_of("sha256", self.members.chunks("verify.py"))
        is_same = program == self.manifest["verify_py"]
        need(is_same, "verify.py does not match its hash in manifest.json", "CORRUPTED")

    def checkpoint_keys(self) -> list[bytes]:
        """Return the keys that may sign a checkpoint of this size: the last one of each node."""
        need(self.authority.root, "entry 0 does not name the ledger's keys")
        return self.authority.checkpoint_keys(self.size)

    def check_checkpoint(self) -> None:
        """Check the checkpoint, the manifest and the key files against entry 0 and the tree."""
        authority, manifest, read = self.authority, self.manifest, self.members.read
        note = read_text(read("checkpoint"), "the checkpoint")
        size, root = read_checkpoint(note, authority.origin, self.checkpoint_keys())
        need(size == self.size and root.hex() == manifest["root"], "the checkpoint and manifest.json differ")
        need(
            self.leaves is None or tree_root(self.leaves) == root, "the entries do not give the root of the checkpoint"
        )
        is_ours = manifest["ledger"] == authority.ledger and manifest["origin"] == authority.origin
        need(is_ours, "manifest.json names another ledger")
        root_key = bytes.fromhex(authority.root)
        wanted = {"keys/root.vkey": vkey("root", root_key), "keys/root.fingerprint": blake3(root_key).hexdigest()}
        if self.has_all_authority:
            current = [key for _, _, key in authority.checkpoints if key not in authority.checkpoint_ends]
            wanted["keys/checkpoint.vkey"] = "\n".join(vkey(authority.origin, key) for key in current)
            wanted["keys/agents.vkeys"] = "\n".join(authority.vkeys)
        for name, text in wanted.items():
            need(read(name) == text.encode() + b"\n", f"{name} contradicts the entries", "CORRUPTED")

    def check_stream_heads(self, root: bytes) -> None:
        """Compare the lengths of the streams with the signed ones, and list named handoffs that are missing."""
        stream, text = self.manifest["stream"], read_text(self.members.read("ends"), "the note of stream heads")
        lines = read_note(text, self.authority.origin, self.checkpoint_keys())
        need(len(lines) == 2 and lines[0] == ENDS, "the note of stream heads has an unknown form")
        heads = read_json(lines[1].encode())
        counts = {"": heads["authority"], **heads["streams"]}
        are_counts = all(type(count) is int and count >= 0 for count in counts.values())
        need(are_counts, "the note of stream heads has an invalid count")
        names = sorted(heads["streams"], key=lambda name: name.encode("utf-16-be"))  # RFC 8785
        canonical = {"authority": counts[""], "root": root.hex(), "size": self.size}
        canonical["streams"] = {name: counts[name] for name in names}
        is_canonical = json.dumps(canonical, separators=(",", ":"), ensure_ascii=False) == lines[1]
        need(is_canonical, "the note of stream heads is for another tree, or not in canonical form")
        need(stream in names, "the note of stream heads does not name this stream")
        for name, index in self.last_of_stream.items():
            is_counted = name in counts or name.partition("/")[0] not in AUTHORITY_FAMILIES
            if is_counted and self.versions[name] > counts.get(name, 0):
                message = f"{name or 'authority'} has more entries than the ledger signed"
                self.add_problem(index, message, "VERIFICATION_FAILED")
        for name, count in counts.items():
            if self.versions[name] < count:
                self.add_gap(name, f"{count - self.versions[name]} of {name or 'authority'} at its end")

    def settle(self) -> None:
        """Decide whether refused events are wrong, or may only need an entry that is missing or cannot be read."""
        if self.manifest["content"] == "stream":
            unread = {name: index for name, index in self.rules.reads.items() if not self.versions[name]}
            self.gaps += [(index, f"{name}, which entry {index} depends on") for name, index in unread.items()]
        self.gaps += [(int(name[8:28]), name) for name in self.lost if name.startswith("entries/")]
        self.missing += [text for _, text in self.gaps if text not in self.lost]
        self.compare_blobs()
        first = min((index for index, _ in self.gaps), default=None)
        for index, code, message in self.refusals:
            if first is None or index < first:
                self.add_problem(index, message, code)
                self.broken += 1
            else:
                self.missing.append(f"the entry that allows entry {index} ({code}: {message})")
        self.settle_erased()
        self.problems.sort(key=lambda problem: (problem[0] is None, problem[0] or 0))

    def settle_erased(self) -> None:
        """Record erased entries that no redaction names. A missing or unreadable entry may be that redaction."""
        is_log = self.manifest["content"] == "log"
        for index in self.authority.unconfirmed():
            message = "its body is missing, and no later entry.redacted names its remnant"
            if self.gaps and is_log:
                continue  # the entry that cannot be read is a problem already
            if self.lacks_authority:
                self.missing.append(f"the entry.redacted that names entry {index}")
            else:
                self.add_problem(index, message, "VERIFICATION_FAILED")

    def compare_blobs(self) -> None:
        """Compare the blobs with those that entries reference.

        A missing entry may reference any blob of the manifest. A blob that somebody added needs an entry that is here.
        """
        erased = self.authority.erased_blobs()
        for ref in sorted(erased.intersection(self.blobs)):
            self.add_problem(None, f"blobs/{ref.replace(':', '/')} is here, and was erased", "VERIFICATION_FAILED")
        absent = [ref for ref in self.needed if ref not in self.blobs and ref not in erased]
        self.missing += [f"blobs/{ref.replace(':', '/')}" for ref in absent]
        refused = self.unreferenced.intersection(self.members.added) if self.gaps else self.unreferenced
        for ref in sorted(refused - erased):
            self.add_problem(None, f"no entry references blobs/{ref.replace(':', '/')}", "VERIFICATION_FAILED")

    def run(self) -> None:
        """Check everything. A failure of the entries as a whole raises, and ends the check."""
        checks = [self.check_files, self.check_checkpoint]
        if self.manifest["content"] == "log":
            self.leaves = self.check_log()
        else:
            root, note = bytes.fromhex(self.manifest["root"]), read_text(self.members.read("checkpoint"), "checkpoint")
            checks.insert(0, lambda: self.check_stream_heads(root))
            for index in self.manifest["indexes"]:
                name = f"entries/{index:020d}.entry"
                if {name, f"entries/{index:020d}.tlog-proof"} & set(self.lost):
                    continue  # a later entry, or the note of stream heads, shows which stream lacks an entry
                data = self.members.read(name)
                self.run_check(index, self.check_entry, data, (root, note))
        self.end_doubt()
        for index in self.jumps:
            message = "its time is more than 30 days after that of the entry before it, and root did not set the clock"
            self.add_problem(index, message, "CLOCK_JUMPED")
        for check in checks:
            try:
                check()
            except (*FAULTS, OSError) as fault:
                self.add_fault(None, fault)

    def check_page(self) -> None:
        """Compare index.html with the page of these entries.

        If something is missing, a different page is not an error: it may show the complete bundle. If blobs were added,
        the page may have been made with or without them.
        """
        if self.problems or self.gaps:
            return
        page, complete = self.members.read("index.html"), self.manifest | {"blobs": sorted(self.blobs)}
        is_equal = page == self.page.to_html(self.manifest)
        is_equal |= bool(self.members.added) and page == self.page.to_html(complete)
        self.is_page_checked = is_equal or not self.missing
        message = "index.html is not the page that this program makes of the entries: do not believe it"
        need(is_equal or self.missing, message, "CORRUPTED")

    def compare_checkpoint(self, note: str | None) -> None:
        """Compare the log with the checkpoint that the reader has from another source, if any."""
        if note is None:
            return
        authority, (_, size, root) = self.authority, parse_checkpoint(note)
        try:
            read_checkpoint(note, authority.origin, authority.checkpoint_keys(size))
        except WrongError as fault:
            self.add_problem(0, f"the checkpoint that you trust is not of this ledger: {fault}", fault.code)
            return
        roots = {} if self.manifest["stream"] is None else {self.size: bytes.fromhex(self.manifest["root"])}
        if self.leaves is not None and size <= len(self.leaves):
            roots[size] = tree_root(self.leaves[:size])
        self.trusted_size, self.is_continued = size, roots.get(size) == root
        if size in roots and not self.is_continued:
            message = f"the history forked: the first {size} entries do not match the checkpoint that you trust"
            self.add_problem(0, message, "HISTORY_CHANGED")

    def uncompared(self) -> list[str]:
        """Return what the reader's checkpoint shows to be missing at the end of the log, or why it shows nothing."""
        if self.trusted_size is None or self.is_continued:
            return []
        if self.trusted_size > self.size:
            return [f"the last {self.trusted_size - self.size} of {self.trusted_size} entries"]
        return [f"a proof that the log continues the checkpoint of {self.trusted_size} entries"]

    def newest(self) -> list[str]:
        """Return the line about the last entry: without the reader's checkpoint, newer ones may be left out."""
        if self.last_read is None or self.trusted_size is not None:
            return []
        (index, at_ms), advice = self.last_read, "newer ones may be left out, which only --checkpoint shows"
        return [f"newest entry here: {index}, {when(at_ms)}; {advice}"]

    def suspects(self) -> list[str]:
        """Return lines about the newest events of handoffs that rest on a stolen key."""
        events = [(name, signed) for name, signed in self.page.events if self.page.doubt(signed)]
        return [
            f"entry {signed.index}: rests on a stolen key: {signed.kind} by {signed.author} on handoff/{name}"
            for name, signed in events[-SUSPECTS_MAX:]
        ]

    def absent(self) -> list[str]:
        """Return lines about evidence and results that are not here. They may be elsewhere, so nothing is wrong."""
        here = {*self.blobs, *self.needed, *self.authority.erased_blobs()}
        lines = [
            f"entry {index}: names {ref}, and this bundle has no such file or event: {event}"
            for ref, (index, event) in self.cited.items()
            if ref not in here and ref not in self.rules.ids
        ]
        return lines[-SUSPECTS_MAX:]

    def erased(self) -> list[tuple[int, Event]]:
        """Return the erased entries, and the redactions that name them."""
        records = sorted(self.authority.redactions.items())
        return [
            (index, record.done) for index, record in records if record.done and record.is_here and not record.found
        ]

    def erasures(self) -> list[str]:
        """Return lines about the erased entries, each with the reason that the redaction gives."""
        return [
            f"entry {index}: redacted by {event.author} on {when(event.entry.accepted_ms)} with entry {event.index}: "
            f"{event.data['reason']}"
            for index, event in self.erased()[:ERASED_MAX]
        ]

    def kept(self) -> list[str]:
        """Return lines about entries whose bodies are here, although a redaction erased them."""
        records = sorted(self.authority.redactions.items())
        done = [(index, record.done) for index, record in records if record.done and not record.is_here]
        return [
            f"the body of entry {index} is here, although {event.author} erased it with entry {event.index}: "
            "this copy of the ledger kept it"
            for index, event in done
            if event.data["event"] in self.rules.ids
        ][:ERASED_MAX]

    def gate(self) -> str:
        """Return the line about the gate."""
        is_known = self.has_all_authority and not self.problems and (self.trusted_size or 0) <= self.size
        return f"gate: {self.authority.gate() if is_known else UNKNOWN_GATE}"

    def compare_root(self, expected: str | None) -> None:
        """Compare the root key with the fingerprint that the reader has from another source, if any."""
        if expected is None:
            return
        fingerprint, expected = self.fingerprint(), expected.lower()
        self.is_root_right = len(expected) >= 32 and fingerprint.startswith(expected)
        if self.authority.root and not self.is_root_right:
            message = f"the root key has the fingerprint {fingerprint}, not {expected}"
            self.add_problem(0, message, "VERIFICATION_FAILED")

    def fingerprint(self) -> str:
        """Return the fingerprint of the root key that entry 0 names."""
        return blake3(bytes.fromhex(self.authority.root)).hexdigest()

    def trust(self) -> str:
        """Return how the root key and the log compare with the reader's own knowledge."""
        if not self.authority.root:
            return "entry 0 names no root key"
        match = "matches" if self.is_root_right else "does not match"
        checked = [] if self.is_root_right is None else [f"root key {match} --root"]
        if self.is_continued and not self.problems:
            how = "continues" if self.missing else "complete up to"
            checked.append(f"{how} the checkpoint of {self.trusted_size} entries")
        return "; ".join(checked) or f"self-asserted: compare the root key's fingerprint {self.fingerprint()}"

    def verdict(self, accepted: list[str]) -> tuple[int, str]:
        """Return the exit code and the last line. ``accepted`` are the values of --accept."""
        trust = self.trust()
        if self.problems and all(code == "HISTORY_CHANGED" for _, code, _ in self.problems):
            return 6, f"HISTORY_CHANGED: this is not the history of the checkpoint that you trust ({trust})"
        if self.problems:
            where = next((f" at entry {index}" for index, _, _ in self.problems if index is not None), "")
            count = f"{len(self.problems)} problem{'s' * (len(self.problems) != 1)}"
            are_signed = len(self.problems) == self.broken and self.signatures == self.entries
            rest = "; all signatures are right, but rules are broken" if are_signed else ""
            rest += "" if self.is_page_checked else "; index.html not checked"
            return 6, f"INVALID{where}: {count} in {self.entries} entries{rest} ({trust})"
        streams = [name for name in self.versions if name and not self.rules.is_replayed(name)]
        unreplayed = sorted({name.partition("/")[0] for name in streams})
        stream = self.manifest["stream"]
        scope = "all streams" if stream is None else f"stream {stream} and authority as of head {self.size}"
        summary = f"{self.signatures} signatures, tree of {self.size}, rules, checkpoint ({scope}; {trust})"
        wants = {ref: f" (entry {index} names it)" for ref, (index, _) in self.cited.items()}
        wants |= {ref: f" (entry {index} needs it)" for ref, index in self.needed.items()}
        needs = {f"blobs/{ref.replace(':', '/')}": text for ref, text in wants.items()}
        missing = [*self.uncompared(), *(name + needs.get(name, "") for name in self.missing)]
        reasons = [f"missing {'; '.join(missing[:5])}"] if missing else []
        reasons += [f"fields and rules not checked, of the families {', '.join(unreplayed)}"] if unreplayed else []
        reasons += [] if self.is_page_checked else ["index.html not checked"]
        compromised = self.authority.compromised_signatures()
        count = "1 entry" if len(compromised) == 1 else f"{len(compromised)} entries"
        suspect = f"{count} signed with stolen keys of {', '.join(self.authority.compromised_owners())}"
        is_accepted = (not reasons or "PARTIAL" in accepted) and (not compromised or "SUSPECT_KEY" in accepted)
        exit_code = 0 if is_accepted else 6
        if reasons:
            reasons += [suspect] if compromised else []
            return exit_code, f"PARTIAL: {'; '.join(reasons)}: {summary}"
        if compromised:
            return exit_code, f"SUSPECT_KEY at entry {compromised[0]}: {suspect}: {summary}"
        if erased := self.erased():
            named = ", ".join(f"{index} by {event.author}" for index, event in erased[:ERASED_MAX])
            more = f" and {len(erased) - ERASED_MAX} more" if len(erased) > ERASED_MAX else ""
            count = "1 entry" if len(erased) == 1 else f"{len(erased)} entries"
            return exit_code, f"VALID_WITH_ERASURES: the bodies of {count} were erased ({named}{more}): {summary}"
        return exit_code, f"VALID: {summary}"


def read_trusted(argument: str | None) -> str | None:
    """Return the checkpoint in a file, or in an argument of several lines. A mail may change how its lines end."""
    if argument is None:
        return None
    text = argument if "\n" in argument else read_text(Path(argument).read_bytes(), "the file")
    note = text.replace("\r\n", "\n").strip("\n") + "\n"
    parse_checkpoint(note)
    return note


def read_receipt(path: Path) -> bytes | None:
    """Return the receipt in a file; None if the path is not that of a receipt."""
    if not path.is_file():  # opening a pipe would wait
        return None
    try:
        with path.open("rb") as file:
            content = file.read(RECEIPT_MAX + 1)
    except OSError:
        return None
    return content if content.startswith(PROOF.encode()) else None


def judge_receipt(receipt: bytes, fingerprint: str | None) -> int:
    """Check a receipt and print the verdict; return the exit code."""
    try:
        need(len(receipt) <= RECEIPT_MAX, "the receipt is too large", "TOO_LARGE")
        lines = check_receipt(read_text(receipt, "the receipt"), fingerprint)
    except FAULTS as fault:
        code = fault.code if isinstance(fault, WrongError) else "INVALID_FORMAT"
        print(escape(f"INVALID: {code}: {fault}"))
        return 6
    print("\n".join(map(escape, lines)))
    return 0


def judge_bundle(
    path: Path, root: str | None, note: str | None, accepted: list[str], *, needs_closed_gate: bool = False
) -> int:
    """Check a bundle and print the verdict; return the exit code."""
    try:
        audit = Audit(Members(path))
    except OSError as error:
        print(f"{path} is not a bundle: {error}", file=sys.stderr)
        return 2
    except FAULTS as fault:
        code = fault.code if isinstance(fault, WrongError) else "INVALID_FORMAT"
        if code == "UNSUPPORTED_VERSION":  # no verdict
            print(escape(f"{code}: {fault}"), file=sys.stderr)
            return 2
        print(escape(f"INVALID: {code}: {fault}"))
        return 6
    try:
        audit.run()
    except (*FAULTS, OSError) as fault:
        audit.add_fault(None, fault)
    audit.settle()
    for check in (audit.check_page, lambda: audit.compare_checkpoint(note)):
        try:
            check()
        except FAULTS as fault:
            audit.add_fault(None, fault)
    audit.compare_root(root)
    for index, code, message in audit.problems[:100]:
        print(escape(f"{'' if index is None else f'entry {index}: '}{code}: {message}"))
    (exit_code, line), gate = audit.verdict(accepted), audit.gate()
    if needs_closed_gate and not gate.startswith(CLOSED):
        exit_code, gate = 6, f"{gate}, so --closed-gate is not met"
    notes = (
        *audit.erasures(),
        *audit.kept(),
        *audit.suspects(),
        *audit.absent(),
        *audit.page.unapproved(),
        *audit.newest(),
        gate,
    )
    print("\n".join(map(escape, notes)))
    print(escape(line))
    return exit_code


def main(arguments: list[str] | None = None) -> int:
    """Check the bundle or receipt and print the verdict; return the exit code."""
    parser = argparse.ArgumentParser(description="Check a bundle of a Deedbook ledger, or a receipt.")
    beside = Path(__file__).resolve().parent
    is_in_bundle = (beside / "manifest.json").exists()
    parser.add_argument("bundle", nargs="?" if is_in_bundle else None, type=Path, default=beside)
    parser.add_argument("--root", help="the fingerprint of the root key, or at least its first 32 digits")
    accept = "exit with 0 although the verdict is this one; may be repeated"
    parser.add_argument("--accept", action="append", default=[], choices=("PARTIAL", "SUSPECT_KEY"), help=accept)
    text = "a checkpoint from another source than the bundle: a file, or its text"
    parser.add_argument("--checkpoint", metavar="FILE|TEXT", help=text)
    parser.add_argument("--closed-gate", action="store_true", help="exit with 6 unless the gate is closed")
    options = parser.parse_args(arguments)
    if (receipt := read_receipt(options.bundle)) is not None:
        if options.checkpoint is not None:
            parser.error("--checkpoint is for bundles: a receipt has its own checkpoint")
        if options.closed_gate:
            parser.error("--closed-gate is for bundles: a receipt says nothing of the gate")
        return judge_receipt(receipt, options.root)
    try:
        note = read_trusted(options.checkpoint)
    except (*FAULTS, OSError) as fault:
        print(escape(f"--checkpoint is not a checkpoint: {fault}"), file=sys.stderr)
        return 2
    return judge_bundle(options.bundle, options.root, note, options.accept, needs_closed_gate=options.closed_gate)


if __name__ == "__main__":
    sys.exit(main())
