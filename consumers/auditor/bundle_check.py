"""Checking a bundle: members against each other, entries against tiles and proofs, and then the replay.

Of a whole log everything is replayed. A bundle of one stream holds every authority event: these are replayed by their
rules, so that each key is checked as at the gate (but for what is left of a budget). Of the rest form, ids, signatures
and inclusion are checked: its rules depend on streams that are not there, and the report says
``rules_replayed: false``.

An entry bundle is taken apart by the tile beside it, so that damage stays with the entry that has it. Entries stand one
after the other, each behind its length (C2SP tlog-tiles, Log entries): one wrong length would shift all that follow.
The tile says which hash each must have, so a length with one byte changed is found by trying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blake3 import blake3

from consumers.auditor.replay import PackedState, Replay
from ledger.admission.check import Candidate
from ledger.admission.decide import apply, check_signer
from ledger.admission.rules import AUTHORITY_KINDS
from ledger.admission.state import Layer
from ledger.bundle.layout import (
    blob_name,
    checkpoint_keys,
    entry_names,
    entry_range,
    home_name,
    key_members,
    levels_of,
    tile_name,
    tiles_of,
)
from ledger.bundle.program import program_digest, verify_program
from ledger.checkpoint import Checkpoint, CheckpointVerifier, verify_checkpoint
from ledger.envelope import batch_root_pae, decode_entry, event_id, pae
from ledger.errors import BatonError, Corrupted, Refused, message_of
from ledger.events.authority import LedgerCreated
from ledger.events.body import decode_body, make_event
from ledger.identity import verify
from ledger.lifecycle.clock import Clock
from ledger.log.blobs import check_blob
from ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from ledger.merkle import Frontier, leaf_hash, root_of, root_of_path, verify_inclusion
from ledger.receipt import Receipt

if TYPE_CHECKING:
    from consumers.auditor.report import Anchor, AuditReport, Findings
    from ledger.bundle import Bundle
    from ledger.envelope import Entry
    from ledger.events import EventData
    from ledger.events.body import Body, Event
_LENGTH = 2


def check_log(bundle: Bundle, findings: Findings, anchor: Anchor, progress: Callable[[int, int], None]) -> AuditReport:
    """Return the audit of a bundle of a whole log."""
    size = bundle.manifest.size
    replay = Replay(findings, size, roots_at={size, *anchor.sizes})
    hashes: list[bytes] = []
    try:
        for number, width in tiles_of(size, 0):
            tile = _tile(bundle, 0, number, width, findings)
            start = number * TILE_WIDTH
            entries, damaged = split_entries(bundle.read(tile_name("entries", number, width)), tile, start, findings)
            replay.feed(entries, damaged=damaged)
            progress(replay.size, size)
            if width == TILE_WIDTH:
                hashes.append(root_of(tile))
        replay.finish()
    finally:
        replay.stop()
    _check_upper_tiles(bundle, hashes, findings)
    checkpoint = _check_members(bundle, replay, findings)
    frontier = replay.frontier
    if checkpoint is not None and frontier is not None and frontier.root() != checkpoint.root:
        findings.problem(None, "VERIFICATION_FAILED", "the entries do not give the root of the checkpoint")
    return anchor.report("bundle", replay, checkpoint_size=None if checkpoint is None else checkpoint.size)


def check_stream(bundle: Bundle, findings: Findings, anchor: Anchor) -> AuditReport:
    """Return the audit of a bundle of one stream."""
    manifest = bundle.manifest
    replay = StreamReplay(findings, manifest.size, bytes.fromhex(manifest.root))
    if manifest.indexes != sorted(set(manifest.indexes)):
        findings.problem(None, "CORRUPTED", "manifest.json does not list the entries in order")
    note = bundle.read("checkpoint")
    for index in manifest.indexes:
        data, proof = (bundle.read(name) for name in entry_names(index))
        try:
            receipt = Receipt.parse(proof.decode("utf-8"))
            if receipt.to_text().encode() != proof or receipt.index != index:
                raise Refused("INVALID_FORMAT", "it is not in its one form, or of another index")  # noqa: TRY301
            if receipt.checkpoint_text.encode() != note:
                raise Refused("VERIFICATION_FAILED", "it is under another checkpoint")  # noqa: TRY301
        except (Refused, UnicodeDecodeError) as error:
            findings.problem(index, "CORRUPTED", f"the proof of entry {index} cannot be used: {message_of(error)}")
            continue
        replay.feed(index, data, receipt, manifest.stream)
    replay.finish()
    checkpoint = _check_members(bundle, replay, findings)
    findings.note(None, "VERIFICATION_FAILED", f"rules were not replayed: only {manifest.stream} is in the bundle")
    return anchor.report(
        "bundle", replay, rules_replayed=False, checkpoint_size=None if checkpoint is None else checkpoint.size
    )


def _tile(bundle: Bundle, level: int, number: int, width: int, findings: Findings) -> list[bytes]:
    name = tile_name(level, number, width)
    content = bundle.read(name)
    if len(content) != width * HASH_SIZE:
        place = entry_range(name)
        findings.problem(place["index"], "CORRUPTED", f"{name} has {len(content)} bytes", end=place["end"])
        content = content.ljust(width * HASH_SIZE, b"\0")[: width * HASH_SIZE]
    return [content[start : start + HASH_SIZE] for start in range(0, len(content), HASH_SIZE)]


def _check_upper_tiles(bundle: Bundle, hashes: list[bytes], findings: Findings) -> None:
    """Compare each level above 0 with what the stored level below it gives."""
    size = bundle.manifest.size
    for level in levels_of(size)[1:]:
        above: list[bytes] = []
        for number, width in tiles_of(size, level):
            tile = _tile(bundle, level, number, width, findings)
            start = number * TILE_WIDTH
            for place, (stored, wanted) in enumerate(zip(tile, hashes[start : start + width], strict=True), start):
                if stored != wanted:
                    first, covered = place * TILE_WIDTH**level, TILE_WIDTH**level
                    message = f"hash {place} of tile level {level} is not that of entries {first} on"
                    findings.problem(first, "CORRUPTED", message, end=first + covered)
            if width == TILE_WIDTH:
                above.append(root_of(tile))
        hashes = above


def _check_members(bundle: Bundle, replay: Replay | StreamReplay, findings: Findings) -> Checkpoint | None:
    """Check what is no entry against what the entries say; return the checkpoint if it is the ledger's."""
    manifest, created = bundle.manifest, replay.created
    _check_files(bundle, findings)
    if (manifest.content == "log") != (manifest.stream is None):
        findings.problem(None, "CORRUPTED", "manifest.json names a stream for a whole log, or none for a stream")
    program = bundle.read("verify.py")
    if program_digest(program) != manifest.verify_py:
        findings.problem(None, "CORRUPTED", "verify.py is not the program that the manifest names")
    elif program != verify_program():
        findings.note(None, "UNSUPPORTED_VERSION", "verify.py is of another version of Baton: do not run it unread")
    if program_digest(bundle.read("schemas.json")).encode() not in program:
        findings.problem(None, "CORRUPTED", "schemas.json is not the table of kinds that verify.py knows")
    if created is None:
        message = "entry 0 does not name the ledger's keys: nothing can be checked by them"
        findings.problem(0, "VERIFICATION_FAILED", message)
        return None
    try:
        _check_keys(bundle, replay, findings)
        note = bundle.read("checkpoint").decode("utf-8")
        key = checkpoint_keys(replay.authority).at(manifest.size)
        checkpoint = verify_checkpoint(note, CheckpointVerifier(created.origin, bytes.fromhex(key)))
    except (BatonError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"the checkpoint: {message_of(error)}")
        return None
    named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
    if named != (replay.ledger, created.origin, checkpoint.size, checkpoint.root.hex()):
        findings.problem(None, "VERIFICATION_FAILED", "manifest.json is not what checkpoint and entry 0 say")
    return checkpoint


def _check_files(bundle: Bundle, findings: Findings) -> None:
    """Check blobs, and what a backup holds of the ledger's folder, against their hashes."""
    for ref in bundle.manifest.blobs:
        try:
            check_blob(ref, bundle.read(blob_name(ref)))
        except Corrupted as error:
            findings.problem(None, error.code, f"{blob_name(ref)}: {error.message}")
    for file, digest in bundle.manifest.files.items():
        if blake3(bundle.read(home_name(file))).hexdigest() != digest:
            findings.problem(None, "CORRUPTED", f"{home_name(file)} is not the file that the manifest names")


def _check_keys(bundle: Bundle, replay: Replay | StreamReplay, findings: Findings) -> None:
    if replay.lost_from is not None:
        findings.note(replay.lost_from, "VERIFICATION_FAILED", "keys/ were not compared: an entry is lost")
        return
    for name, wanted in key_members(replay.authority).items():
        if bundle.read(name) != wanted:
            findings.problem(None, "CORRUPTED", f"{name} is not what the entries say")


def split_entries(
    content: bytes, tile: Sequence[bytes], start: int, findings: Findings
) -> tuple[list[bytes | None], set[int]]:
    """Return the entries of a bundle, None for those that are lost, and the indexes whose hash is not the tile's."""
    entries: list[bytes | None] = []
    damaged: set[int] = set()
    at = 0
    for position, wanted in enumerate(tile):
        index = start + position
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if leaf_hash(entry) != wanted or len(entry) != size:
            damaged.add(index)
            true_size = _true_size(content, at, wanted, tile[position + 1 :])
            if true_size is None:
                message = f"entries {index} to {start + len(tile) - 1} cannot be told apart"
                findings.problem(index, "CORRUPTED", message, end=start + len(tile))
                return entries + [None] * (len(tile) - position), damaged
            where = "the length before entry" if true_size != size else "entry"
            findings.problem(index, "CORRUPTED", f"{where} {index} is not the one whose hash is in the tree")
            size = true_size
            entry = content[at + _LENGTH : at + _LENGTH + size]
        entries.append(entry)
        at += _LENGTH + size
    if at != len(content):
        findings.problem(start, "CORRUPTED", f"bytes follow entry {start + len(tile) - 1}", end=start + len(tile))
    return entries, damaged


def _true_size(content: bytes, at: int, wanted: bytes, later: Sequence[bytes]) -> int | None:
    """Return the length of the entry at ``at``: the one in front of it, or that with one byte changed."""
    stored = content[at : at + _LENGTH]
    if len(stored) < _LENGTH:
        return None
    high, low = stored
    changed = [byte << 8 | low for byte in range(256)] + [high << 8 | byte for byte in range(256)]
    for size in changed:
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if len(entry) == size and leaf_hash(entry) == wanted:
            return size
    size = int.from_bytes(stored, "big")
    return size if _continues(content, at + _LENGTH + size, later) else None


def _continues(content: bytes, at: int, later: Sequence[bytes]) -> bool:
    """Whether what begins at ``at`` is the end, or one of the next entries has the hash it must have."""
    for wanted in later:
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        if len(content) < at + _LENGTH + size:
            return False
        if leaf_hash(content[at + _LENGTH : at + _LENGTH + size]) == wanted:
            return True
        at += _LENGTH + size
    return at == len(content)


class StreamReplay:
    """The checks of a bundle of one stream, entry by entry; offers what a report is made of."""

    def __init__(self, findings: Findings, size: int, root: bytes) -> None:
        self.size = size
        self.roots = {size: root}
        self.frontier: Frontier | None = None
        self.kinds: Counter[str] = Counter()
        self.created: LedgerCreated | None = None
        self.ledger: str | None = None
        self.authority: list[tuple[int, str, EventData]] = []
        self.lost_from: int | None = None
        self.verified = 0
        self._findings = findings
        self._layer = Layer(PackedState())
        self._clock = Clock(findings)

    def finish(self) -> None:
        """Settle what a later entry would have told; from now on the report is complete."""
        self._clock.end()

    def feed(self, index: int, data: bytes, receipt: Receipt, stream: str | None) -> None:
        """Check the next entry."""
        try:
            if not verify_inclusion(leaf_hash(data), index, self.size, receipt.path, self.roots[self.size]):
                raise Refused("VERIFICATION_FAILED", "it is not in the tree of the checkpoint")  # noqa: TRY301
            entry = decode_entry(data)
            body, content = decode_body(entry.body)
            event = make_event(
                body, content, index=index, event_id=event_id(pae(entry.body)), key=entry.key,
                accepted_ms=entry.accepted_ms,
            )  # fmt: skip
            self._check(entry, body, event, stream)
            if not _is_signed(entry, receipt.extra):
                raise Refused("SIGNATURE_INVALID", "its signature does not fit")  # noqa: TRY301
        except Refused as refusal:
            self._findings.problem(index, refusal.code, f"entry {index}: {refusal.message}")
            self.lost_from = index if self.lost_from is None else self.lost_from
            return
        self.verified += 1
        self.kinds[event.kind] += 1

    def _check(self, entry: Entry, body: Body, event: Event, stream: str | None) -> None:
        is_authority = event.kind in AUTHORITY_KINDS
        if event.stream != stream and not is_authority:
            raise Refused("INVALID_FIELD", f"it is of the stream {event.stream}, which is not that of the bundle")
        self._clock.check(event.index, entry.accepted_ms, event.data)
        if event.index == 0 and isinstance(event.data, LedgerCreated):
            self.created, self.ledger = event.data, event.ledger
        self._layer.size = event.index
        if not is_authority:
            if event.ledger != self.ledger:
                raise Refused("WRONG_LEDGER", f"it is for ledger {event.ledger}")
            check_signer(body, event.data, event.key, self._layer, event.accepted_ms)
            return
        # Every authority event is here: what they decide needs nothing that is not.
        self.authority.append((event.index, event.author, event.data))
        apply(Candidate(body, event.data, event.id, entry.body), entry.key, self._layer, event.accepted_ms)


def _is_signed(entry: Entry, batch_path: bytes | None) -> bool:
    signed = pae(entry.body)
    if entry.batch_size == 1:
        return batch_path is None and verify(entry.key, signed, entry.sig)
    path = batch_path or b""
    hashes = [path[start : start + HASH_SIZE] for start in range(0, len(path), HASH_SIZE)]
    root = root_of_path(leaf_hash(signed), entry.batch_index, entry.batch_size, hashes)
    return root is not None and verify(entry.key, batch_root_pae(entry.batch_size, root), entry.sig)
