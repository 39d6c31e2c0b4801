"""``baton verify``: what a stranger can check of a ledger, over a client or from a bundle, without writing anything.

A bundle of one stream is a part of a log (``ledger.admission.replay``): it holds authority, the streams that the rules
look at, and the ledger's word on where they end.

An entry bundle is taken apart by the tile beside it, so that damage stays with the entry that has it. Entries stand one
after the other, each behind its length (C2SP tlog-tiles, Log entries): one wrong length would shift all that follow.
The tile says which hash each must have, so a length with one byte changed is found by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from consumers.auditor.replay import Replay
from consumers.auditor.report import Anchor, AuditReport, Findings, Replayed
from consumers.auditor.signatures import PROCESSES, apart, cores, pooled_events_min
from ledger.admission.replay import Part
from ledger.admission.rules import AUTHORITY_KINDS
from ledger.bundle import Bundle, layout
from ledger.bundle.program import verify_program
from ledger.checkpoint import Checkpoint, Ends, open_ends, verifiers_of, verify_checkpoint
from ledger.envelope import split_hashes
from ledger.errors import BatonError, Corrupted, Refused, message_of
from ledger.limits import range_events_max
from ledger.local import LocalClient
from ledger.log.blobs import check_blob
from ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from ledger.merkle import leaf_hash, root_of, verify_inclusion
from ledger.receipt import Receipt

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ledger.client import Client
    from ledger.config import Settings
    from projections import Difference

_LENGTH = 2
_WHOLE_LOG_ONLY = "only the whole log shows that idempotency keys were used once, session keys within their number of \
events, and that the clock did not jump"


def verify_log(
    client: Client,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    views: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a ledger, local or remote, as it is when it begins.

    ``root`` is the fingerprint of the root key, ``trusted_checkpoint`` a note kept from earlier; with settings in
    ``views``, the views are rebuilt and compared. ``progress`` is called with entries done and to do: with views each
    counts twice, as it is replayed and compared. Raises Refused: ``INVALID_FORMAT`` when the trusted checkpoint is no
    checkpoint. Unavailable: the ledger could not be read.
    """
    findings = Findings()
    head = client.head()
    anchor = Anchor(findings, root, trusted_checkpoint)
    replay = Replay(findings, head.size, roots_at=anchor.sizes)
    with ExitStack() as stack:
        stack.callback(replay.stop)
        is_long = head.size > pooled_events_min and cores() > 1 and isinstance(client, LocalClient)
        beside = _begin_comparison(views, stack) if views is not None and is_long else None
        tell = progress or (lambda _done, _total: None)
        whole = head.size if views is None else 2 * head.size  # they are replayed, and compared with the views
        _replay_all(client, head.size, replay, findings, lambda done, _total: tell(done, whole))
        replay.finish()
        if views is not None:

            def tell_compared(done: int, total: int) -> None:
                tell(head.size + head.size * done // max(total, 1), whole)

            _check_views(client, views, beside, findings, tell_compared)
    if replay.ledger != head.ledger:
        findings.problem(0, "WRONG_LEDGER", f"entry 0 is not of the ledger {head.ledger} that was asked for")
    frontier = replay.frontier
    if replay.size == head.size and frontier is not None and frontier.root().hex() != head.root:
        message = "the entries do not give the root of the log's head: `baton fsck` says which"
        findings.problem(None, "VERIFICATION_FAILED", message)
    return anchor.report("log", replay)


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


def _begin_comparison(settings: Settings, stack: ExitStack) -> Connection:
    """Have the views compared in a process of its own, beside the replay; return where the answer comes."""
    from projections.verify import compare_beside  # noqa: PLC0415 - the view store, which most audits do not need

    answers, answering = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=compare_beside, args=(settings, answering), daemon=True)
    with apart():
        process.start()
    answering.close()
    stack.callback(process.join)
    stack.callback(process.terminate)  # before: whoever interrupts the audit does not wait for the views
    return answers


def _check_views(
    client: Client,
    settings: Settings,
    beside: Connection | None,
    findings: Findings,
    progress: Callable[[int, int], None],
) -> None:
    from projections import VIEWS, Reader, verify_views  # noqa: PLC0415 - as above

    answer: list[Difference] | BatonError | None = None
    with suppress(EOFError):  # it was killed, as by a lack of memory: they are compared here
        while beside is not None and isinstance(answer := beside.recv(), tuple):
            progress(*answer)
            answer = None
    try:
        if isinstance(answer, BatonError):
            raise answer
        if answer is None:
            with Reader(client, settings) as reader:
                answer = verify_views(client, reader.store, VIEWS, progress=progress)
        for table in answer:
            message = f"table {table.table} of view {table.view} is not what the log gives"
            findings.problem(None, "VERIFICATION_FAILED", f"{message}: `baton project` rebuilds it")
    except Corrupted as error:
        findings.problem(None, error.code, f"the views: {error.message}")


def _replay_all(
    client: Client, size: int, replay: Replay, findings: Findings, progress: Callable[[int, int], None]
) -> None:
    while replay.size < size:
        position = replay.size
        try:
            page = client.entries(position, limit=min(range_events_max, size - position))
        except Corrupted as error:
            message = f"entries from {position} on cannot be read: {error.message}"
            findings.problem(position, error.code, message, end=size)
            return
        entries = [data for offset, (index, data) in enumerate(page.entries) if index == position + offset]
        if not entries:
            findings.problem(position, "CORRUPTED", f"entry {position} is missing", end=size)
            return
        replay.feed(entries[: size - position])
        progress(replay.size, size)


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
    checkpoint = _check_members(bundle, replay, findings)
    frontier = replay.frontier
    if checkpoint is not None and frontier is not None and frontier.root() != checkpoint.root:
        findings.problem(None, "VERIFICATION_FAILED", "the entries do not give the root of the checkpoint")
    return anchor.report("bundle", replay, checkpoint=checkpoint)


def _check_stream(bundle: Bundle, findings: Findings, anchor: Anchor) -> AuditReport:
    """Return the audit of a bundle of one stream: authority, the stream, and the streams that its rules look at."""
    manifest = bundle.manifest
    if manifest.indexes != sorted(set(manifest.indexes)):
        findings.problem(None, "CORRUPTED", "manifest.json does not list the entries in order")
    part, root = Part(), bytes.fromhex(manifest.root)
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
    ends = _read_ends(bundle, part, findings)
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
        size=manifest.size, roots={manifest.size: root}, frontier=None, kinds=part.kinds, created=part.created,
        ledger=part.state.ledger, authority=part.authority, checkpoint_keys=part.state.checkpoint_keys(),
        lost_from=min(part.refused, default=None), verified=part.kinds.total(), suspects=sorted(part.suspects),
    )  # fmt: skip
    checkpoint = _check_members(bundle, replay, findings)
    return anchor.report("bundle", replay, checkpoint=checkpoint, stream=manifest.stream, missing=part.missing)


def _read_proof(proof: bytes, index: int, note: bytes) -> Receipt:
    receipt = Receipt.parse(proof.decode("utf-8"))
    if receipt.to_text().encode() != proof or receipt.index != index:
        raise Refused("INVALID_FORMAT", "it is not in its one form, or of another index")
    if receipt.checkpoint_text.encode() != note:
        raise Refused("VERIFICATION_FAILED", "it is under another checkpoint")
    return receipt


def _read_ends(bundle: Bundle, part: Part, findings: Findings) -> Ends | None:
    """Return the ledger's word on where the bundle's streams end, if it is of the tree of its checkpoint."""
    manifest, created = bundle.manifest, part.created
    try:
        if created is None:
            raise Refused("VERIFICATION_FAILED", "entry 0 does not name the ledger's keys")
        note = bundle.read("ends").decode("utf-8")
        ends = open_ends(note, *verifiers_of(created.origin, part.state.checkpoint_keys().at(manifest.size)))
        if (ends.size, ends.root) != (manifest.size, manifest.root) or manifest.stream not in ends.streams:
            raise Refused("VERIFICATION_FAILED", "it is of another tree or stream")
    except (BatonError, UnicodeDecodeError) as error:
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


def _check_members(bundle: Bundle, replay: Replay | Replayed, findings: Findings) -> Checkpoint | None:
    """Check what is no entry against what the entries say; return the checkpoint if it is the ledger's."""
    manifest, created = bundle.manifest, replay.created
    _check_files(bundle, findings)
    if (manifest.content == "log") != (manifest.stream is None):
        findings.problem(None, "CORRUPTED", "manifest.json names a stream for a whole log, or none for a stream")
    program = bundle.read("verify.py")
    if sha256(program).hexdigest() != manifest.verify_py:
        findings.problem(None, "CORRUPTED", "verify.py is not the program that the manifest names")
    elif program != verify_program():
        findings.note(None, "UNSUPPORTED_VERSION", "verify.py is of another version of Baton: do not run it unread")
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
    except (BatonError, UnicodeDecodeError) as error:
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


def _check_keys(bundle: Bundle, replay: Replay | Replayed, findings: Findings) -> None:
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
