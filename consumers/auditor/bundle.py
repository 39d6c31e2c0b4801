"""``deed verify --bundle``: audits an exported bundle, a tar or its unpacked folder, without writing anything.

A bundle of one stream is a part of a log (``ledger.admission.replay``). It holds the authority events, the streams that
the rules read, and the ledger's signed statement of where those streams end.

In a tile, each entry follows its length (C2SP tlog-tiles, Log entries), so one wrong length would shift all entries
after it. The tree's tile has the hash of each entry: if one byte of a length changed, the reader finds the true length
by trying all values. So damage is reported for the damaged entry only. The commitments in the entries do the same for a
tile of bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from blake3 import blake3
from msgspec.structs import replace

from deedbook.consumers.auditor.replay import LogReplay
from deedbook.consumers.auditor.report import Anchor, AuditReport, Findings, ReplayOutcome
from deedbook.consumers.auditor.trusted_heads import compare_bundle, trusted_records
from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.bundle import Bundle, layout
from deedbook.ledger.bundle.blobs import BundleBlobs
from deedbook.ledger.bundle.page import PAGE, BundlePage
from deedbook.ledger.bundle.program import verify_program
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, message_of
from deedbook.ledger.format.envelope import commitment_in, decode_entry, entry_leaf, split_hashes, with_body
from deedbook.ledger.format.merkle import leaf_hash, root_of, verify_inclusion
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log.blobs import check_blob
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from deedbook.ledger.proof.checkpoint import Checkpoint, StreamHeads, open_stream_heads, verifiers_of, verify_checkpoint
from deedbook.ledger.proof.receipt import Receipt

_LENGTH = layout.LENGTH_BYTES

HashOf: TypeAlias = Callable[[bytes], bytes]
_WHOLE_LOG_ONLY = (
    "this audit did not check idempotency keys, the event limits of session keys, the sizes of batches, or \
the clock: that takes the whole log"
)


def verify_bundle(
    path: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a bundle, also compared with the heads of its ledger that this user trusted before.

    Raises Refused: ``NOT_FOUND``, ``INVALID_FORMAT``, ``TOO_LARGE``: not a bundle.
    """
    findings = Findings()
    try:
        with Bundle(path) as bundle:
            return verify_open_bundle(
                bundle, root=root, trusted_checkpoint=trusted_checkpoint, progress=progress, findings=findings
            )
    except Corrupted as error:
        findings.problem(error.details.get("index"), error.code, error.message, end=error.details.get("end"))
        return AuditReport(source="bundle", problems=findings.sorted_problems(), problems_total=findings.problems_total)


def verify_open_bundle(
    bundle: Bundle,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    findings: Findings | None = None,
) -> AuditReport:
    """Return the audit of an open bundle. Raises Corrupted: ``CORRUPTED`` if a member cannot be read."""
    findings = findings or Findings()
    anchor = Anchor(findings, root, trusted_checkpoint)
    anchor.trusted_records = trusted_records(bundle.manifest.ledger)
    if bundle.manifest.content == "stream":
        return _check_stream(bundle, findings, anchor)
    return _check_log(bundle, findings, anchor, progress or (lambda _done, _total: None))


def _check_log(bundle: Bundle, findings: Findings, anchor: Anchor, progress: Callable[[int, int], None]) -> AuditReport:
    size = bundle.manifest.size
    trusted = {record.trusted.size for record in anchor.trusted_records}
    blobs = BundleBlobs(bundle)
    replay = LogReplay(findings, size, roots_at={size, *anchor.sizes, *trusted}, observe=blobs.observe)
    hashes: list[bytes] = []
    page = BundlePage()
    try:
        for number, width in layout.tiles_of(size, 0):
            tile = _tile(bundle, 0, number, width, findings)
            start = number * TILE_WIDTH
            entries, damaged = _entries(bundle, number, tile, findings)
            replay.feed(entries, damaged=damaged)
            for index, data in enumerate(entries, start):
                page.add(index, data)
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
        findings.problem(None, "VERIFICATION_FAILED", "the root hash of the entries differs from the checkpoint's")
    erased = erased_blobs(replay.redactions().values())
    _check_page(bundle, page, findings, may_differ=bool(blobs.missing(erased) or bundle.lost))
    _report_blobs(blobs, erased, findings, is_whole=replay.lost_from is None)
    compare_bundle(bundle.manifest, replay.outcome, anchor.trusted_records, findings)
    return anchor.report("bundle", replay.outcome, checkpoint=checkpoint, missing_files=bundle.lost)


def _check_stream(bundle: Bundle, findings: Findings, anchor: Anchor) -> AuditReport:
    """Return the audit of a bundle of one stream: authority, the stream, and the streams that its rules read."""
    manifest = bundle.manifest
    if manifest.indexes != sorted(set(manifest.indexes)):
        findings.problem(None, "CORRUPTED", "manifest.json lists entries out of order")
    part, root = PartialReplay(), bytes.fromhex(manifest.root)
    blobs, page = BundleBlobs(bundle), BundlePage()
    note = bundle.read("checkpoint")
    for index in manifest.indexes:
        if not {*layout.entry_names(index)}.isdisjoint(bundle.lost):
            continue  # reported later: the versions of a later entry, or the signed lengths, show which stream lacks it
        data, proof = (bundle.read(name) for name in layout.entry_names(index))
        blobs.observe_bytes(index, data)
        try:
            receipt = _read_proof(proof, index, note)
        except (Refused, UnicodeDecodeError) as error:
            findings.problem(index, "CORRUPTED", f"the proof of entry {index} cannot be used: {message_of(error)}")
            continue
        if verify_inclusion(entry_leaf(data), index, manifest.size, receipt.path, root):
            part.feed(index, data, split_hashes(receipt.extra or b""))
            page.add(index, data)
        else:
            message = "it is not in the checkpoint's tree"
            findings.problem(index, "VERIFICATION_FAILED", message)
    ends = _read_stream_heads(bundle, part, findings)
    if ends is not None:
        part.finish(ends.streams, ends.authority, ends.size)
    _report_refusals(part, findings)
    verified, suspects = part.kinds.total(), [*part.compromised()]
    # Treat an authority event that may be wrong as missing: nothing that follows from it is known.
    unsure = part.doubtful.keys() & {index for index, *_ in part.authority}
    lost = (*part.refused, *unsure, *(gap.since for gap in part.missing if gap.stream is None))
    lost_from, roots = min(lost, default=None), {manifest.size: root}
    outcome = ReplayOutcome(part, manifest.size, root, roots, lost_from, verified, suspects)
    checkpoint = _check_members(bundle, outcome, findings)
    erased = erased_blobs(part.redactions().values())
    if part.missing:
        findings.note(None, "NOT_FOUND", f"{PAGE} was not checked, because entries are missing: do not believe it")
    else:
        _check_page(bundle, page, findings, may_differ=bool(blobs.missing(erased) or bundle.lost))
    is_whole = not part.missing and not any(name.startswith("entries/") for name in bundle.lost)
    _report_blobs(blobs, erased, findings, is_whole=is_whole)
    compare_bundle(manifest, outcome, anchor.trusted_records, findings)
    return anchor.report(
        "bundle",
        outcome,
        checkpoint=checkpoint,
        stream=manifest.stream,
        missing=part.missing,
        missing_files=bundle.lost,
    )


def _report_refusals(part: PartialReplay, findings: Findings) -> None:
    """Report the refused entries as problems, and as notes the refusals that a missing entry may explain."""
    for report, by_index in (
        (findings.problem, part.refused),
        (findings.note, part.notes),
        (findings.note, part.doubtful),
    ):
        for index, refusals in sorted(by_index.items()):
            for refusal in refusals:
                report(index, refusal.code, refusal.message)
    findings.note(None, "NOT_FOUND", _WHOLE_LOG_ONLY)


def _report_blobs(blobs: BundleBlobs, erased: Collection[str], findings: Findings, *, is_whole: bool) -> None:
    """Report missing blobs, and blobs that no entry needs. A missing entry may need any blob that is not erased."""
    for ref, index in blobs.missing(erased).items():
        findings.missing_blob(ref, index)
    for ref, why in blobs.wrong(erased).items():
        is_unknown = not is_whole and blobs.may_be_of_missing_entry(ref, erased)
        report = findings.note if is_unknown else findings.problem
        report(None, "VERIFICATION_FAILED", f"{why} {layout.blob_name(ref)}, and it is here")


def _read_proof(proof: bytes, index: int, note: bytes) -> Receipt:
    receipt = Receipt.parse(proof.decode("utf-8"))
    if receipt.to_text().encode() != proof or receipt.index != index:
        raise Refused("INVALID_FORMAT", "it is not in canonical form, or is the proof of another index")
    if receipt.checkpoint_text.encode() != note:
        raise Refused("VERIFICATION_FAILED", "it refers to another checkpoint")
    return receipt


def _read_stream_heads(bundle: Bundle, part: PartialReplay, findings: Findings) -> StreamHeads | None:
    """Return the ledger's signed statement of where the bundle's streams end, if it is about the checkpoint's tree."""
    manifest, created = bundle.manifest, part.created
    try:
        if created is None:
            raise Refused("VERIFICATION_FAILED", "entry 0 does not name the ledger's keys")
        note = bundle.read("ends").decode("utf-8")
        ends = open_stream_heads(note, *verifiers_of(created.origin, part.state.checkpoint_keys().at(manifest.size)))
        if (ends.size, ends.root) != (manifest.size, manifest.root) or manifest.stream not in ends.streams:
            raise Refused("VERIFICATION_FAILED", "it is about another tree or stream")
    except (DeedbookError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"nothing proves where the streams end: {message_of(error)}")
        part.finish()
        return None
    return ends


def _tile(bundle: Bundle, level: int, number: int, width: int, findings: Findings) -> list[bytes]:
    name = layout.tile_name(level, number, width)
    content = bundle.read(name)
    if len(content) != width * HASH_SIZE:
        covered = layout.entry_range(name)
        findings.problem(covered["index"], "CORRUPTED", f"{name} has {len(content)} bytes", end=covered["end"])
        content = content.ljust(width * HASH_SIZE, b"\0")[: width * HASH_SIZE]
    return [content[start : start + HASH_SIZE] for start in range(0, len(content), HASH_SIZE)]


def _check_upper_tiles(bundle: Bundle, hashes: list[bytes], findings: Findings) -> None:
    size = bundle.manifest.size
    for level in layout.levels_of(size)[1:]:
        above: list[bytes] = []
        for number, width in layout.tiles_of(size, level):
            tile = _tile(bundle, level, number, width, findings)
            start = number * TILE_WIDTH
            for position, (stored, wanted) in enumerate(zip(tile, hashes[start : start + width], strict=True), start):
                if stored != wanted:
                    first, covered = position * TILE_WIDTH**level, TILE_WIDTH**level
                    message = f"hash {position} of tile level {level} does not match the entries from {first} on"
                    findings.problem(first, "CORRUPTED", message, end=first + covered)
            if width == TILE_WIDTH:
                above.append(root_of(tile))
        hashes = above


def _check_members(bundle: Bundle, outcome: ReplayOutcome, findings: Findings) -> Checkpoint | None:
    """Compare all other files of the bundle with its entries; return the checkpoint if the ledger signed it."""
    manifest, replay, created = bundle.manifest, outcome.replay, outcome.replay.created
    _check_files(bundle, findings)
    if (manifest.content == "log") != (manifest.stream is None):
        findings.problem(None, "CORRUPTED", "manifest.json names a stream of a whole log, or none of a stream bundle")
    program = bundle.read("verify.py")
    if sha256(program).hexdigest() != manifest.verify_py:
        findings.problem(None, "CORRUPTED", "verify.py does not match its hash in manifest.json")
    elif program != verify_program():
        findings.note(None, "UNSUPPORTED_VERSION", "verify.py is from another Deedbook version: read it before running")
    if sha256(bundle.read("schemas.json")).hexdigest().encode() not in program:
        findings.problem(None, "CORRUPTED", "schemas.json does not match the schemas that verify.py expects")
    if created is None:
        message = "entry 0 does not name the ledger's keys, so no signature of the ledger can be checked"
        findings.problem(0, "VERIFICATION_FAILED", message)
        return None
    try:
        _check_keys(bundle, outcome, findings)
        note = bundle.read("checkpoint").decode("utf-8")
        checkpoint = verify_checkpoint(
            note, *verifiers_of(created.origin, replay.state.checkpoint_keys().at(manifest.size))
        )
    except (DeedbookError, UnicodeDecodeError) as error:
        findings.problem(None, "VERIFICATION_FAILED", f"the checkpoint: {message_of(error)}")
        return None
    named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
    if named != (replay.ledger, created.origin, checkpoint.size, checkpoint.root.hex()):
        findings.problem(None, "VERIFICATION_FAILED", "manifest.json contradicts the checkpoint or entry 0")
    return checkpoint


def _check_page(bundle: Bundle, page: BundlePage, findings: Findings, *, may_differ: bool) -> None:
    """Report a page that differs from the one that the entries give.

    If missing blobs were added to the bundle, its page may be the one with these blobs or the one without them. If
    blobs are still missing (``may_differ``), a different page is only a note.
    """
    for line in page.unapproved():
        findings.note(None, "NOT_APPROVED", line)
    if findings.problems_total or bundle.read(PAGE) == page.encode(bundle.manifest):
        return
    if bundle.added and bundle.read(PAGE) == page.encode(replace(bundle.manifest, blobs=sorted(bundle.blobs))):
        return
    message = f"{PAGE} is not the page that this version of Deedbook makes of the entries: do not believe it"
    (findings.note if may_differ else findings.problem)(None, "CORRUPTED", message)


def _check_files(bundle: Bundle, findings: Findings) -> None:
    for ref in bundle.blobs:
        name = layout.blob_name(ref)
        if name in bundle.lost:
            continue
        try:
            check_blob(ref, bundle.chunks(name))
        except Corrupted as error:
            findings.problem(None, error.code, f"{name}: {error.message}")
    for file, digest in bundle.manifest.files.items():
        if blake3(bundle.read(layout.home_name(file))).hexdigest() != digest:
            findings.problem(None, "CORRUPTED", f"{layout.home_name(file)} does not match its hash in manifest.json")


def _check_keys(bundle: Bundle, outcome: ReplayOutcome, findings: Findings) -> None:
    replay, lost_from = outcome.replay, outcome.lost_from
    members = layout.key_members(replay.authority)
    refused = (index for index, *_ in replay.authority if not replay.is_accepted(index))
    unsure = next(refused, None) if lost_from is None else lost_from
    if unsure is not None:
        message = "only the root's files in keys/ were compared, because an entry is lost or was refused"
        findings.note(unsure, "VERIFICATION_FAILED", message)
        members = {name: wanted for name, wanted in members.items() if name.startswith("keys/root.")}
    for name, wanted in members.items():
        if bundle.read(name) != wanted:
            findings.problem(None, "CORRUPTED", f"{name} contradicts the entries")


def _entries(bundle: Bundle, number: int, tile: Sequence[bytes], findings: Findings) -> tuple[list[bytes], set[int]]:
    """Return the entries under a tile, and the indexes of those that differ from the tile."""
    start, width = number * TILE_WIDTH, len(tile)
    content = bundle.read(layout.tile_name("entries", number, width))
    bare, damaged = split_items(content, tile, leaf_hash, start, findings)
    commitments = [None if index in damaged else _commitment_in(data) for index, data in enumerate(bare, start)]
    content = bundle.read(layout.tile_name("bodies", number, width))
    bodies, changed = split_items(content, commitments, _commitment_in_body, start, findings)
    return list(map(with_body, bare, bodies)), damaged | changed


def _commitment_in_body(stored: bytes) -> bytes:
    try:
        return commitment_in(stored)
    except Refused:
        return b""  # a damaged remnant


def _commitment_in(bare: bytes) -> bytes | None:
    try:
        return decode_entry(bare).body  # a bare entry has the commitment in place of the body
    except Refused:
        return None  # the replay reports the entry


def split_items(
    content: bytes, wanted: Sequence[bytes | None], hash_of: HashOf, start: int, findings: Findings
) -> tuple[list[bytes], set[int]]:
    """Return the items of a tile, and the indexes of the items whose hash is not the wanted one.

    In a tile, each item follows its length. An item whose wanted hash is None is not compared.
    """
    items: list[bytes] = []
    damaged: set[int] = set()
    at = 0
    for index, digest in enumerate(wanted, start):
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        item = content[at + _LENGTH : at + _LENGTH + size]
        if digest is not None and (hash_of(item) != digest or len(item) != size):
            damaged.add(index)
            true_size = _true_size(content, at, digest, hash_of)
            where = "the length before entry" if true_size != size else "entry"
            findings.problem(index, "CORRUPTED", f"{where} {index} does not match the hash in the tree")
            size = true_size
            item = content[at + _LENGTH : at + _LENGTH + size]
        items.append(item)
        at += _LENGTH + size
    if at != len(content):
        end = start + len(wanted)
        findings.problem(start, "CORRUPTED", f"bytes follow entry {end - 1}", end=end)
    return items, damaged


def _true_size(content: bytes, at: int, wanted: bytes, hash_of: HashOf) -> int:
    """Return the true length of the item at ``at``.

    One byte of the stored length may be wrong: return the length that gives the wanted hash. If there is none, return
    the stored length.
    """
    high, low = content[at : at + _LENGTH].ljust(_LENGTH, b"\0")
    for size in (*(byte << 8 | low for byte in range(256)), *(high << 8 | byte for byte in range(256))):
        item = content[at + _LENGTH : at + _LENGTH + size]
        if len(item) == size and hash_of(item) == wanted:
            return size
    return high << 8 | low
