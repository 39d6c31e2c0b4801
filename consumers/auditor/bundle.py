"""``deed verify --bundle``: what a stranger can check of an exported bundle, without writing anything.

A bundle of one stream is a part of a log (``ledger.admission.replay``): it holds authority, the streams that the rules
look at, and the ledger's word on where they end.

An entry bundle is taken apart by the tile beside it, so that damage stays with the entry that has it. Entries stand one
after the other, each behind its length (C2SP tlog-tiles, Log entries): one wrong length would shift all that follow.
The tile says which hash each must have, so a length with one byte changed is found by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from blake3 import blake3

from deedbook.consumers.auditor.replay import Replay
from deedbook.consumers.auditor.report import Anchor, AuditReport, Findings, Replayed
from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import Bundle, layout
from deedbook.ledger.bundle.program import verify_program
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, message_of
from deedbook.ledger.format.envelope import split_hashes
from deedbook.ledger.format.merkle import leaf_hash, root_of, verify_inclusion
from deedbook.ledger.log.blobs import check_blob
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from deedbook.ledger.proof.checkpoint import Checkpoint, StreamHeads, open_stream_heads, verifiers_of, verify_checkpoint
from deedbook.ledger.proof.receipt import Receipt

_LENGTH = 2
_WHOLE_LOG_ONLY = "only the whole log shows that idempotency keys were used once, session keys within their number of \
events, and that the clock did not jump"


def verify_bundle(
    path: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a bundle. Raises Refused: ``NOT_FOUND``, ``INVALID_FORMAT``, ``TOO_LARGE``: it is none."""
    findings = Findings()
    anchor = Anchor(findings, root, trusted_checkpoint)
    try:
        with Bundle(path) as bundle:
            if bundle.manifest.content == "stream":
                return _check_stream(bundle, findings, anchor)
            return _check_log(bundle, findings, anchor, progress or (lambda _done, _total: None))
    except Corrupted as error:
        findings.problem(error.details.get("index"), error.code, error.message, end=error.details.get("end"))
        return AuditReport(source="bundle", problems=findings.sorted_problems(), problems_total=findings.problems_total)


def _check_log(bundle: Bundle, findings: Findings, anchor: Anchor, progress: Callable[[int, int], None]) -> AuditReport:
    size = bundle.manifest.size
    replay = Replay(findings, size, roots_at={size, *anchor.sizes})
    hashes: list[bytes] = []
    try:
        for number, width in layout.tiles_of(size, 0):
            tile = _tile(bundle, 0, number, width, findings)
            start = number * TILE_WIDTH
            bundled = bundle.read(layout.tile_name("entries", number, width))
            entries, damaged = split_entries(bundled, tile, start, findings)
            replay.feed(entries, damaged=damaged)
            progress(replay.size, size)
            if width == TILE_WIDTH:
                hashes.append(root_of(tile))
        replay.finish()
    finally:
        replay.stop()
    _check_upper_tiles(bundle, hashes, findings)
    checkpoint = _check_members(bundle, replay.outcome, findings)
    frontier = replay.frontier
    if checkpoint is not None and frontier is not None and frontier.root() != checkpoint.root:
        findings.problem(None, "VERIFICATION_FAILED", "the entries do not give the root of the checkpoint")
    return anchor.report("bundle", replay.outcome, checkpoint=checkpoint)


def _check_stream(bundle: Bundle, findings: Findings, anchor: Anchor) -> AuditReport:
    """Return the audit of a bundle of one stream: authority, the stream, and the streams that its rules look at."""
    manifest = bundle.manifest
    if manifest.indexes != sorted(set(manifest.indexes)):
        findings.problem(None, "CORRUPTED", "manifest.json does not list the entries in order")
    part, root = PartialReplay(), bytes.fromhex(manifest.root)
    note = bundle.read("checkpoint")
    for index in manifest.indexes:
        data, proof = (bundle.read(name) for name in layout.entry_names(index))
        try:
            receipt = _read_proof(proof, index, note)
        except (Refused, UnicodeDecodeError) as error:
            findings.problem(index, "CORRUPTED", f"the proof of entry {index} cannot be used: {message_of(error)}")
            continue
        if verify_inclusion(leaf_hash(data), index, manifest.size, receipt.path, root):
            part.feed(index, data, split_hashes(receipt.extra or b""))
        else:
            message = f"entry {index} is not in the tree of the checkpoint"
            findings.problem(index, "VERIFICATION_FAILED", message)
    ends = _read_stream_heads(bundle, part, findings)
    if ends is not None:
        part.finish(ends.streams, ends.authority, ends.size)
        for event in part.events:
            if event.kind not in AUTHORITY_KINDS and event.stream not in ends.streams:
                message = f"entry {event.index} is of the stream {event.stream}, which is not one of the bundle's"
                findings.problem(event.index, "INVALID_FIELD", message)
    for index, refusal in sorted(part.refused.items()):
        findings.problem(index, refusal.code, f"entry {index}: {refusal.message}")
    for index, refusal in sorted((part.notes | part.doubtful).items()):
        findings.note(index, refusal.code, f"entry {index}: {refusal.message}")
    findings.note(None, "NOT_FOUND", _WHOLE_LOG_ONLY)
    replay = Replayed(
        size=manifest.size,
        roots={manifest.size: root},
        frontier=None,
        kinds=part.kinds,
        created=part.created,
        ledger=part.state.ledger,
        authority=part.authority,
        checkpoint_keys=part.state.checkpoint_keys(),
        lost_from=min(part.refused, default=None),
        verified=part.kinds.total(),
        compromised_signatures=sorted(part.compromised_signatures),
    )
    checkpoint = _check_members(bundle, replay, findings)
    return anchor.report("bundle", replay, checkpoint=checkpoint, stream=manifest.stream, missing=part.missing)


def _read_proof(proof: bytes, index: int, note: bytes) -> Receipt:
    receipt = Receipt.parse(proof.decode("utf-8"))
    if receipt.to_text().encode() != proof or receipt.index != index:
        raise Refused("INVALID_FORMAT", "it is not in its one form, or of another index")
    if receipt.checkpoint_text.encode() != note:
        raise Refused("VERIFICATION_FAILED", "it is under another checkpoint")
    return receipt


def _read_stream_heads(bundle: Bundle, part: PartialReplay, findings: Findings) -> StreamHeads | None:
    """Return the ledger's word on where the bundle's streams end, if it is of the tree of its checkpoint."""
    manifest, created = bundle.manifest, part.created
    try:
        if created is None:
            raise Refused("VERIFICATION_FAILED", "entry 0 does not name the ledger's keys")
        note = bundle.read("ends").decode("utf-8")
        ends = open_stream_heads(note, *verifiers_of(created.origin, part.state.checkpoint_keys().at(manifest.size)))
        if (ends.size, ends.root) != (manifest.size, manifest.root) or manifest.stream not in ends.streams:
            raise Refused("VERIFICATION_FAILED", "it is of another tree or stream")
    except (DeedbookError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"where the streams end cannot be told: {message_of(error)}")
        part.finish()
        return None
    return ends


def _tile(bundle: Bundle, level: int, number: int, width: int, findings: Findings) -> list[bytes]:
    name = layout.tile_name(level, number, width)
    content = bundle.read(name)
    if len(content) != width * HASH_SIZE:
        place = layout.entry_range(name)
        findings.problem(place["index"], "CORRUPTED", f"{name} has {len(content)} bytes", end=place["end"])
        content = content.ljust(width * HASH_SIZE, b"\0")[: width * HASH_SIZE]
    return [content[start : start + HASH_SIZE] for start in range(0, len(content), HASH_SIZE)]


def _check_upper_tiles(bundle: Bundle, hashes: list[bytes], findings: Findings) -> None:
    size = bundle.manifest.size
    for level in layout.levels_of(size)[1:]:
        above: list[bytes] = []
        for number, width in layout.tiles_of(size, level):
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


def _check_members(bundle: Bundle, replay: Replayed, findings: Findings) -> Checkpoint | None:
    """Check what is no entry against what the entries say; return the checkpoint if it is the ledger's."""
    manifest, created = bundle.manifest, replay.created
    _check_files(bundle, findings)
    if (manifest.content == "log") != (manifest.stream is None):
        findings.problem(None, "CORRUPTED", "manifest.json names a stream for a whole log, or none for a stream")
    program = bundle.read("verify.py")
    if sha256(program).hexdigest() != manifest.verify_py:
        findings.problem(None, "CORRUPTED", "verify.py is not the program that the manifest names")
    elif program != verify_program():
        findings.note(None, "UNSUPPORTED_VERSION", "verify.py is of another version of Deedbook: do not run it unread")
    if sha256(bundle.read("schemas.json")).hexdigest().encode() not in program:
        findings.problem(None, "CORRUPTED", "schemas.json is not the table of kinds that verify.py knows")
    if created is None:
        message = "entry 0 does not name the ledger's keys: nothing can be checked by them"
        findings.problem(0, "VERIFICATION_FAILED", message)
        return None
    try:
        _check_keys(bundle, replay, findings)
        note = bundle.read("checkpoint").decode("utf-8")
        checkpoint = verify_checkpoint(note, *verifiers_of(created.origin, replay.checkpoint_keys.at(manifest.size)))
    except (DeedbookError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"the checkpoint: {message_of(error)}")
        return None
    named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
    if named != (replay.ledger, created.origin, checkpoint.size, checkpoint.root.hex()):
        findings.problem(None, "VERIFICATION_FAILED", "manifest.json is not what checkpoint and entry 0 say")
    return checkpoint


def _check_files(bundle: Bundle, findings: Findings) -> None:
    for ref in bundle.manifest.blobs:
        try:
            check_blob(ref, bundle.read(layout.blob_name(ref)))
        except Corrupted as error:
            findings.problem(None, error.code, f"{layout.blob_name(ref)}: {error.message}")
    for file, digest in bundle.manifest.files.items():
        if blake3(bundle.read(layout.home_name(file))).hexdigest() != digest:
            findings.problem(None, "CORRUPTED", f"{layout.home_name(file)} is not the file that the manifest names")


def _check_keys(bundle: Bundle, replay: Replayed, findings: Findings) -> None:
    if replay.lost_from is not None:
        findings.note(replay.lost_from, "VERIFICATION_FAILED", "keys/ were not compared: an entry is lost")
        return
    for name, wanted in layout.key_members(replay.authority).items():
        if bundle.read(name) != wanted:
            findings.problem(None, "CORRUPTED", f"{name} is not what the entries say")


def split_entries(
    content: bytes, tile: Sequence[bytes], start: int, findings: Findings
) -> tuple[list[bytes], set[int]]:
    """Return the entries of a bundle, and the indexes whose hash is not the tile's."""
    entries: list[bytes] = []
    damaged: set[int] = set()
    at = 0
    for position, wanted in enumerate(tile):
        index = start + position
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if leaf_hash(entry) != wanted or len(entry) != size:
            damaged.add(index)
            true_size = _true_size(content, at, wanted)
            where = "the length before entry" if true_size != size else "entry"
            findings.problem(index, "CORRUPTED", f"{where} {index} is not the one whose hash is in the tree")
            size = true_size
            entry = content[at + _LENGTH : at + _LENGTH + size]
        entries.append(entry)
        at += _LENGTH + size
    if at != len(content):
        findings.problem(start, "CORRUPTED", f"bytes follow entry {start + len(tile) - 1}", end=start + len(tile))
    return entries, damaged


def _true_size(content: bytes, at: int, wanted: bytes) -> int:
    """Return the length of the entry at ``at``: that with one byte changed which gives the hash, else the one there."""
    high, low = content[at : at + _LENGTH].ljust(_LENGTH, b"\0")
    for size in (*(byte << 8 | low for byte in range(256)), *(high << 8 | byte for byte in range(256))):
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if len(entry) == size and leaf_hash(entry) == wanted:
            return size
    return high << 8 | low
