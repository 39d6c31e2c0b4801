"""Writes a bundle in two passes over the log, so memory holds the hashes of the tree and never all entries.

The checkpoint is signed first and fixes the size of the bundle; the log may grow meanwhile. If the process dies, at
most a hidden file remains: a bundle gets its name when it is complete.
"""

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import layout
from deedbook.ledger.bundle.archive import Bundle, ending, header, padding
from deedbook.ledger.bundle.page import PAGE, BundlePage
from deedbook.ledger.bundle.program import schemas, verify_program
from deedbook.ledger.bundle.signed_file import blob_included_max_bytes, encode_signed_file
from deedbook.ledger.client.client import Client, read_batch_path
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable, message_of
from deedbook.ledger.events.authority import EntryRedacted
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.envelope import BodyHead, decode_entry, entry_leaf, head_of, without_body
from deedbook.ledger.format.merkle import inclusion_proof, node_hash
from deedbook.ledger.log.expiry import refs_in
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_HEIGHT, TILE_WIDTH
from deedbook.ledger.proof.checkpoint import parse_checkpoint
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.system.files import TEMPORARY, as_unavailable, replacing
from deedbook.ledger.trust.history import ProvenEntry, StreamRequest

_Write = Callable[[str, int, Iterable[bytes]], None]


class TreeHashes:
    """The hashes of all perfect subtrees, packed: 64 bytes of memory for each entry."""

    def __init__(self) -> None:
        self.levels: list[bytearray] = [bytearray()]

    def add(self, leaf: bytes) -> None:
        """Add the next leaf hash and the subtrees that it completes."""
        level = 0
        while True:
            self.levels[level] += leaf
            count = len(self.levels[level]) // HASH_SIZE
            if count % 2:
                return
            leaf = node_hash(self.subtree(level, count - 2), self.subtree(level, count - 1))
            level += 1
            if level == len(self.levels):
                self.levels.append(bytearray())

    def subtree(self, level: int, number: int) -> bytes:
        """Return the root of a perfect subtree (a ``merkle.SubtreeReader``)."""
        return bytes(self.levels[level][number * HASH_SIZE : (number + 1) * HASH_SIZE])

    def tile(self, level: int, number: int, width: int) -> bytes:
        """Return a tile (C2SP tlog-tiles, Merkle Tree)."""
        start = number * TILE_WIDTH * HASH_SIZE
        return bytes(self.levels[level * TILE_HEIGHT][start : start + width * HASH_SIZE])


class Exported(NamedTuple):
    """The manifest of a bundle, and the blobs that its entries need and that are not here."""

    manifest: layout.Manifest
    missing_blobs: list[str]


class _Survey(msgspec.Struct):
    """The result of the first pass: the tree, the authority events, the refs in event data, the indexes of each stream.

    ``needed`` are the refs without which an event is incomplete. Only an export of one stream fills ``streams`` and
    ``has_stream`` (whether the log has that stream) in this pass; it fills ``refs``, ``needed`` and ``page`` later.
    """

    tree: TreeHashes
    authority: list[tuple[int, str, EventData]]
    refs: set[str]
    needed: set[str]
    streams: dict[str, array[int]]
    page: BundlePage
    has_stream: bool = False

    def add_refs(self, index: int, data: bytes, head: BodyHead) -> None:
        """Add the refs in the data of an entry."""
        if refs := refs_in(bytes(head.data)):
            self.refs.update(refs)
            with suppress(Refused):  # if not even the kind is known, verifiers report it
                self.needed.update(blobs_of(read_event(index, data).data))


def export_bundle(
    client: Client,
    path: Path,
    *,
    stream: str | None = None,
    files: Mapping[layout.HomeFile, bytes] = MappingProxyType({}),
    is_folder: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write the ledger, or one stream of it, to a tar at ``path``, or to files in a new folder.

    The bundle has the blobs that its entries reference.

    A web server can serve the folder: it has the layout of C2SP tlog-tiles, and a few more files. With ``files`` of the
    ledger's folder, the bundle is a backup for `deed restore`. ``progress`` gets the steps done and their total, two
    for each entry. Equal logs give equal files. A file at ``path`` is replaced only if the new file contains everything
    in it. Raises Refused: ``FILE_EXISTS`` for another file, or a folder with files; ``NOT_FOUND`` for an unknown
    stream; the codes of a key file when the checkpoint key is missing. Unavailable: ``STORE_UNAVAILABLE`` when ``path``
    cannot be written.
    """
    if is_folder:
        _check_empty(path)
    note, program = client.checkpoint(), verify_program()
    checkpoint = parse_checkpoint(note)
    report = progress or (lambda _done, _total: None)
    survey = _survey(client, checkpoint.size, stream, lambda done: report(done, 2 * checkpoint.size))
    indexes: list[int] = []
    members = {"checkpoint": note.encode(), "schemas.json": schemas(), "verify.py": program}
    if stream is not None:
        if not survey.has_stream:
            raise Refused("NOT_FOUND", f"there is no stream {stream}", stream=stream)
        streams, indexes = _select_entries(client, survey, stream)
        members["ends"] = client.ends(checkpoint.size, streams).encode()
        for index in indexes:
            data = client.entry(index)
            survey.page.add(index, data)
            survey.add_refs(index, data, _decode_head(index, data))
    redactions = [data for _, _, data in survey.authority if isinstance(data, EntryRedacted)]
    erased = {ref for redaction in redactions for ref in redaction.blobs}
    blobs = [ref for ref in sorted(survey.refs - erased) if _blob_size(client, ref) is not None]
    manifest = layout.Manifest(
        format=layout.FORMAT,
        ledger=client.ledger,
        origin=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root.hex(),
        content="log" if stream is None else "stream",
        stream=stream,
        indexes=indexes,
        blobs=blobs,
        verify_py=sha256(program).hexdigest(),
        files={name: blake3(content).hexdigest() for name, content in files.items()},
    )
    if not is_folder:
        _check_replaceable(client, path, manifest)
    members |= {layout.home_name(name): content for name, content in files.items()}
    members[PAGE] = survey.page.encode(manifest)
    with as_unavailable(path), (_folder if is_folder else _tar)(path) as write:
        for name, size, chunks in _members(client, manifest, survey, members):
            write(name, size, chunks)
            if name.startswith("tile/bodies/"):
                done = min(checkpoint.size, layout.entry_range(name)["end"])
                report(checkpoint.size + done, 2 * checkpoint.size)
    return Exported(manifest, sorted(survey.needed - erased - {*blobs}))


def _check_empty(folder: Path) -> None:
    """Refuse a folder with files. Raises Refused: ``FILE_EXISTS``. Unavailable: it is no folder, or cannot be read."""
    with as_unavailable(folder, "cannot be used as a folder"):
        if folder.exists() and any(folder.iterdir()):
            message = f"{folder} is a folder with files: name a file, such as log.tar, or a new folder"
            raise Refused("FILE_EXISTS", message, path=str(folder))


def _check_replaceable(client: Client, path: Path, new: layout.Manifest) -> None:
    """Refuse to replace a file, unless it is a bundle of an earlier state of this log with nothing extra.

    Raises Refused: ``FILE_EXISTS``.
    """
    if not path.exists():
        return
    advice = "name another file, or a folder"
    try:
        with Bundle(path) as bundle:
            old = bundle.manifest
    except DeedbookError:
        old = None
    if old is None or old.ledger != new.ledger:
        raise Refused("FILE_EXISTS", f"{path} exists and is no backup of this ledger: {advice}", path=str(path))
    is_earlier = old.size <= new.size and client.consistency(0, old.size).root == old.root
    is_within = new.content == "log" or (old.content, old.stream) == (new.content, new.stream)
    if not (is_earlier and is_within):
        raise Refused(
            "FILE_EXISTS", f"{path} has entries of this ledger that the new file lacks: {advice}", path=str(path)
        )
    if lacking := sorted({*old.files, *old.blobs} - {*new.files, *new.blobs}):
        raise Refused("FILE_EXISTS", f"{path} has {lacking[0]}, which the new file lacks: {advice}", path=str(path))


def signed_file_of(client: Client, stream: str) -> bytes:
    """Return one stream of the ledger as a signed file (``signed_file``), without reading the rest of the log.

    Raises Refused: ``NOT_FOUND`` for an unknown stream; ``TOO_LARGE``; the codes of a key file when the checkpoint key
    is missing.
    """
    note = client.checkpoint()
    size, proven = parse_checkpoint(note).size, dict[int, ProvenEntry]()

    def read_stream(name: str) -> list[int]:
        # The first answer has all entries of authority; the later ones need not repeat them.
        start, indexes = 0, list[int]()
        request = StreamRequest(name, authority_start=size if proven else 0, size=size)
        while True:
            page = client.stream(request)
            for entry in page.entries:
                proven[entry.index] = entry
                if _decode_head(entry.index, entry.data).stream == name:
                    indexes.append(entry.index)
            if page.next_index is None or page.next_index <= start:
                return indexes
            start = page.next_index
            request = replace(request, start=start, authority_start=max(start, request.authority_start))

    if not read_stream(stream):
        raise Refused("NOT_FOUND", f"there is no stream {stream}", stream=stream)
    authority = [index for index, entry in proven.items() if _decode_head(index, entry.data).kind in AUTHORITY_KINDS]
    streams, indexes = select_streams(stream, authority, read_stream, lambda index: proven[index].data)
    entries = [proven[index] for index in indexes]
    return encode_signed_file(
        client.ledger,
        stream,
        checkpoint=note,
        ends=client.ends(size, streams),
        entries=entries,
        get_blob=lambda ref: _get_small_blob(client, ref),
    )


@contextmanager
def _tar(path: Path) -> Iterator[_Write]:
    with replacing(path, label="bundle-") as file:

        def write(name: str, size: int, chunks: Iterable[bytes]) -> None:
            file.write(header(name, size))
            end = file.tell() + size
            file.writelines(chunks)
            if file.tell() != end:
                raise Corrupted("CORRUPTED", f"{name} does not have {size} bytes: export again", member=name)
            file.write(padding(size))

        yield write
        file.write(ending(file.tell()))


@contextmanager
def _folder(path: Path) -> Iterator[_Write]:
    # If the process dies here, a hidden folder remains beside the path. The rename is the last step.
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=TEMPORARY))

    def write(name: str, _size: int, chunks: Iterable[bytes]) -> None:
        target = temporary / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.writelines(chunks)

    try:
        yield write
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_range(client: Client, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (index, entry bytes) of the entries from ``start`` to ``end`` (not included).

    Raises Corrupted: the ledger does not return an entry below its size.
    """
    while start < end:
        page = client.entries(start)
        for index, data in page.entries:
            if index != start:
                raise _missing(start)
            if index < end:
                yield index, data
            start += 1
        if not page.entries:
            raise _missing(start)


def _missing(index: int) -> Corrupted:
    message = f"entry {index} is missing: run `deed fsck` in the ledger's folder"
    return Corrupted("CORRUPTED", message, index=index)


def _survey(client: Client, size: int, stream: str | None, report: Callable[[int], None]) -> _Survey:
    survey = _Survey(TreeHashes(), [], set(), set(), {}, BundlePage())
    for index, data in read_range(client, 0, size):
        survey.tree.add(entry_leaf(data))
        if stream is None:
            survey.page.add(index, data)
        head = _decode_head(index, data)
        is_authority = head.kind in AUTHORITY_KINDS
        if is_authority:
            event = read_event(index, data)
            survey.authority.append((index, event.author, event.data))
        survey.has_stream = survey.has_stream or head.stream == stream
        if stream is None:
            survey.add_refs(index, data, head)
        if stream is not None and not is_authority:
            survey.streams.setdefault(head.stream, array("Q")).append(index)
        if index % TILE_WIDTH == 0:
            report(index)
    return survey


def _select_entries(client: Client, survey: _Survey, stream: str) -> tuple[list[str], list[int]]:
    """Return the streams in a bundle of ``stream``, and the indexes of its entries, those of authority included.

    See ``select_streams``.
    """
    authority = [index for index, _, _ in survey.authority]
    return select_streams(stream, authority, lambda name: survey.streams.get(name, ()), cache(client.entry))


def select_streams(
    stream: str, authority: Sequence[int], indexes_of: Callable[[str], Sequence[int]], read: Callable[[int], bytes]
) -> tuple[list[str], list[int]]:
    """Return the streams in a bundle of ``stream``, and the indexes of its entries, those of ``authority`` included.

    The rules decide which other streams belong to it: if the replay reads a stream of the log that is not included yet,
    that stream is added, and the replay begins again. ``indexes_of`` is empty for a stream that the log does not have.
    """
    streams, absent = {stream: indexes_of(stream)}, set[str]()
    while True:
        indexes = sorted({*authority, *(index for own in streams.values() for index in own)})
        part = PartialReplay()
        for index in indexes:
            part.feed(index, read(index), is_verified=True)
        part.finish()
        named = {gap.stream for gap in part.missing if gap.stream is not None} - streams.keys() - absent
        more = {name: indexes_of(name) for name in sorted(named)}
        absent |= {name for name, own in more.items() if not own}
        if absent >= more.keys():
            return sorted(streams), indexes
        streams |= {name: own for name, own in more.items() if own}


def _decode_head(index: int, data: bytes) -> BodyHead:
    try:
        return head_of(decode_entry(data).body)
    except (*UNREADABLE, Refused) as error:
        message = f"entry {index} cannot be read ({message_of(error)}): run `deed fsck` in the ledger's folder"
        raise Corrupted("CORRUPTED", message, index=index) from error


def _members(
    client: Client, manifest: layout.Manifest, survey: _Survey, fixed: Mapping[str, bytes]
) -> Iterator[tuple[str, int, Iterable[bytes]]]:
    """Yield name, size and chunks of each member in the order of ``layout.member_names``."""
    for ref in manifest.blobs:
        size = _blob_size(client, ref)
        if size is None:
            raise Unavailable("STORE_IN_USE", f"blob {ref} was deleted during the export: export again", ref=ref)
        yield layout.blob_name(ref), size, client.blob_chunks(ref)
    for name, content in _small_members(client, manifest, survey, fixed):
        yield name, len(content), (content,)


def _small_members(
    client: Client, manifest: layout.Manifest, survey: _Survey, fixed: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yield the members after the blobs; ``fixed`` are those not made from entries."""
    yield "checkpoint", fixed["checkpoint"]
    if "ends" in fixed:
        yield "ends", fixed["ends"]
    for index in manifest.indexes:
        data = client.entry(index)
        path = tuple(inclusion_proof(index, manifest.size, survey.tree.subtree))
        batch = b"".join(read_batch_path(client, index, decode_entry(data))) or None
        receipt = Receipt(index, path, fixed["checkpoint"].decode(), batch)
        yield from zip(layout.entry_names(index), (data, receipt.to_text().encode()), strict=True)
    yield from ((name, fixed[name]) for name in map(layout.home_name, sorted(manifest.files)))
    yield PAGE, fixed[PAGE]
    yield from sorted(layout.key_members(survey.authority).items())
    yield "manifest.json", manifest.encode()
    yield "schemas.json", fixed["schemas.json"]
    if manifest.content == "log":
        for level in layout.levels_of(manifest.size):
            for number, width in layout.tiles_of(manifest.size, level):
                yield layout.tile_name(level, number, width), survey.tree.tile(level, number, width)
        for number, width in layout.tiles_of(manifest.size, 0):
            start = number * TILE_WIDTH
            parts = zip(*(without_body(data) for _, data in read_range(client, start, start + width)), strict=True)
            for part, items in zip(("entries", "bodies"), parts, strict=True):
                yield layout.tile_name(part, number, width), layout.join_tile(items)
    yield "verify.py", fixed["verify.py"]


def _blob_size(client: Client, ref: str) -> int | None:
    try:
        return client.blob_chunk(ref, 0)[0]
    except Refused as refusal:
        if refusal.code == "NOT_FOUND":
            return None  # the ref is of an event or a graph, or the blob was deleted
        raise


def _get_small_blob(client: Client, ref: str) -> bytes | None:
    size = _blob_size(client, ref)
    return None if size is None or size > blob_included_max_bytes else client.get_blob(ref)
