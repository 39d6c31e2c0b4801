"""Checking a bundle: members against each other, entries against tiles and proofs, and then the replay.

Of a whole log everything is replayed. Of one stream only form, ids, signatures, keys and inclusion can be checked:
the rules depend on streams that are not there, and the report says ``rules_replayed: false``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumers.auditor.entry_bundles import split_entries
from consumers.auditor.replay import Replay
from consumers.auditor.stream_replay import StreamReplay
from ledger.bundle.layout import (
    blob_name,
    entry_names,
    entry_range,
    key_members,
    levels_of,
    program_digest,
    tile_name,
    tiles_of,
    verify_program,
)
from ledger.checkpoint import Checkpoint, CheckpointVerifier, verify_checkpoint
from ledger.errors import BatonError, Corrupted, Refused, message_of
from ledger.log.blobs import check_blob
from ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from ledger.merkle import root_of
from ledger.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumers.auditor.anchor import Anchor
    from consumers.auditor.report import AuditReport, Findings
    from ledger.bundle import Bundle


def check_log(bundle: Bundle, findings: Findings, anchor: Anchor, progress: Callable[[int, int], None]) -> AuditReport:
    """Return the audit of a bundle of a whole log."""
    size = bundle.manifest.size
    replay = Replay(findings, size, roots_at={size, *anchor.sizes})
    hashes: list[bytes] = []
    try:
        for number, width in tiles_of(size, 0):
            tile = _tile(bundle, 0, number, width, findings)
            start = number * TILE_WIDTH
            content = bundle.read(tile_name("entries", number, width))
            entries, damaged = split_entries(content, tile, start, findings)
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
    for ref in manifest.blobs:
        try:
            check_blob(ref, bundle.read(blob_name(ref)))
        except Corrupted as error:
            findings.problem(None, error.code, f"{blob_name(ref)}: {error.message}")
    if (manifest.content == "log") != (manifest.stream is None):
        findings.problem(None, "CORRUPTED", "manifest.json names a stream for a whole log, or none for a stream")
    program = bundle.read("verify.py")
    if program_digest(program) != manifest.verify_py:
        findings.problem(None, "CORRUPTED", "verify.py is not the program that the manifest names")
    elif program != verify_program():
        findings.note(None, "UNSUPPORTED_VERSION", "verify.py is of another version of Baton: do not run it unread")
    if created is None:
        findings.problem(
            0, "VERIFICATION_FAILED", "entry 0 does not name the ledger's keys: nothing can be checked by them"
        )
        return None
    try:
        _check_keys(bundle, replay, findings)
        note = bundle.read("checkpoint").decode("utf-8")
        key = CheckpointVerifier(created.origin, bytes.fromhex(created.checkpoint_key))
        checkpoint = verify_checkpoint(note, key)
    except (BatonError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"the checkpoint: {message_of(error)}")
        return None
    named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
    if named != (replay.ledger, created.origin, checkpoint.size, checkpoint.root.hex()):
        findings.problem(None, "VERIFICATION_FAILED", "manifest.json is not what checkpoint and entry 0 say")
    return checkpoint


def _check_keys(bundle: Bundle, replay: Replay | StreamReplay, findings: Findings) -> None:
    if replay.lost_from is not None:
        findings.note(replay.lost_from, "VERIFICATION_FAILED", "keys/ were not compared: an entry is lost")
        return
    for name, wanted in key_members(replay.authority).items():
        if bundle.read(name) != wanted:
            findings.problem(None, "CORRUPTED", f"{name} is not what the entries say")
