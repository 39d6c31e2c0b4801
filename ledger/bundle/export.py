"""Writing a bundle: two passes over the log, so that memory holds the tree's hashes and never the entries.

The checkpoint is made first, and all is of its size: the log may grow meanwhile. A crash leaves no half bundle.
"""

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import msgspec
from blake3 import blake3

from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import layout
from deedbook.ledger.bundle.archive import ending, header, padding
from deedbook.ledger.bundle.program import schemas, verify_program
from deedbook.ledger.client.client import Client, read_batch_path
from deedbook.ledger.errors import Corrupted, Refused, Unavailable, message_of
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.envelope import BodyHead, decode_entry, head_of
from deedbook.ledger.format.merkle import inclusion_proof, leaf_hash, node_hash
from deedbook.ledger.log.expiry import REFS
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_HEIGHT, TILE_WIDTH
from deedbook.ledger.proof.checkpoint import parse_checkpoint
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.system.files import TEMPORARY, as_unavailable, replacing


class TreeHashes:
    """The hashes of all perfect subtrees, 32 bytes each and nothing around them: 64 bytes an entry."""

    def __init__(self) -> None:
        self.levels: list[bytearray] = [bytearray()]

    def add(self, leaf: bytes) -> None:
        """Add the next leaf hash and the subtrees it completes."""
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


class _Survey(msgspec.Struct):
    """What the first pass finds: the tree, the authority events, the refs in event data, where other streams lie.

    ``has_stream``: the stream that was asked for is there.
    """

    tree: TreeHashes
    authority: list[tuple[int, str, EventData]]
    refs: set[str]
    streams: dict[str, array[int]]
    has_stream: bool = False


def export_bundle(
    client: Client,
    path: Path,
    *,
    stream: str | None = None,
    files: Mapping[layout.HomeFile, bytes] = MappingProxyType({}),
    is_folder: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> layout.Manifest:
    """Write the ledger, or one stream of it, to a tar at ``path``, or to files in a new folder; return the manifest.

    The folder can be served as it is: it is a log as C2SP tlog-tiles lays it out, with our own files beside it.
    ``files`` of the ledger's folder make a backup of it, which `deed restore` takes; ``progress`` is called with steps
    done and to do (two for each entry). Equal logs give equal files. Raises Refused: ``NOT_FOUND`` when there is no
    such stream; the codes of a key file when that of the checkpoint key is not here. Unavailable: ``STORE_UNAVAILABLE``
    when ``path`` cannot be written.
    """
    note, program = client.checkpoint(), verify_program()
    checkpoint = parse_checkpoint(note)
    tell = progress or (lambda _done, _total: None)
    survey = _survey(client, checkpoint.size, stream, lambda done: tell(done, 2 * checkpoint.size))
    indexes: list[int] = []
    given = {"checkpoint": note.encode(), "schemas.json": schemas(), "verify.py": program}
    if stream is not None:
        if not survey.has_stream:
            raise Refused("NOT_FOUND", f"there is no stream {stream}", stream=stream)
        streams, indexes = _looked_at(client, survey, stream)
        given["ends"] = client.ends(checkpoint.size, streams).encode()
    blobs = [ref for ref in sorted(survey.refs) if _get_blob(client, ref) is not None]
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
    given |= {layout.home_name(name): content for name, content in files.items()}
    with as_unavailable(path), (_folder if is_folder else _tar)(path) as write:
        for name, content in _members(client, manifest, survey, given):
            write(name, content)
            if name.startswith("tile/entries/"):
                done = min(checkpoint.size, layout.entry_range(name)["end"])
                tell(checkpoint.size + done, 2 * checkpoint.size)
    return manifest


@contextmanager
def _tar(path: Path) -> Iterator[Callable[[str, bytes], None]]:
    with replacing(path, label="bundle-") as file:
        position = 0

        def write(name: str, content: bytes) -> None:
            nonlocal position
            member = header(name, len(content)) + content + padding(len(content))
            file.write(member)
            position += len(member)

        yield write
        file.write(ending(position))


@contextmanager
def _folder(path: Path) -> Iterator[Callable[[str, bytes], None]]:
    # If we crash within, a hidden folder is left beside the path: it is renamed when it is whole.
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=TEMPORARY))

    def write(name: str, content: bytes) -> None:
        file = temporary / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    try:
        yield write
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_range(client: Client, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (index, entry bytes) of the entries from ``start`` to ``end`` (not included).

    Raises Corrupted: the ledger does not hand out what it says it has.
    """
    while start < end:
        page = client.entries(start)
        for index, data in page.entries:
            if index != start:
                raise Corrupted("CORRUPTED", f"entry {start} is missing", index=start)
            if index < end:
                yield index, data
            start += 1
        if not page.entries:
            raise Corrupted("CORRUPTED", f"entry {start} is missing", index=start)


def _survey(client: Client, size: int, stream: str | None, tell: Callable[[int], None]) -> _Survey:
    survey = _Survey(TreeHashes(), [], set(), {})
    for index, data in read_range(client, 0, size):
        survey.tree.add(leaf_hash(data))
        head = _decode_head(index, data)
        is_authority = head.kind in AUTHORITY_KINDS
        if is_authority:
            event = read_event(index, data)
            survey.authority.append((index, event.author, event.data))
        is_asked = stream is None or head.stream == stream
        survey.has_stream = survey.has_stream or is_asked
        if is_asked:
            survey.refs |= {found.decode() for found in REFS.findall(bytes(head.data))}
        if stream is not None and not is_authority:
            survey.streams.setdefault(head.stream, array("Q")).append(index)
        if index % TILE_WIDTH == 0:
            tell(index)
    return survey


def _looked_at(client: Client, survey: _Survey, stream: str) -> tuple[list[str], list[int]]:
    """Return the streams that a bundle of ``stream`` holds, and all its indexes: authority, and what rules look at.

    The rules themselves say which streams those are: as long as they look at one that is there and not chosen yet, it
    is chosen, too, and all is decided anew.
    """
    streams, entries = {stream}, dict[int, bytes]()
    while True:
        of_streams = (index for name in streams for index in survey.streams.get(name, ()))
        indexes = sorted({*(index for index, _, _ in survey.authority), *of_streams})
        part = PartialReplay()
        for index in indexes:
            if index not in entries:
                entries[index] = client.entry(index)
            part.feed(index, entries[index], is_verified=True)
        part.finish()
        more = {one.stream for one in part.missing if one.stream is not None} & survey.streams.keys() - streams
        if not more:
            return sorted(streams), indexes
        streams |= more


def _decode_head(index: int, data: bytes) -> BodyHead:
    try:
        return head_of(decode_entry(data).body)
    except (*UNREADABLE, Refused) as error:
        raise Corrupted("CORRUPTED", f"entry {index} cannot be read: {message_of(error)}", index=index) from error


def _members(
    client: Client, manifest: layout.Manifest, survey: _Survey, given: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yield the members in the order of ``layout.member_names``; ``given`` are those not made of entries."""
    for ref in manifest.blobs:
        content = _get_blob(client, ref)
        if content is None:
            raise Unavailable("STORE_IN_USE", f"blob {ref} was erased while it was exported: export again", ref=ref)
        yield layout.blob_name(ref), content
    yield "checkpoint", given["checkpoint"]
    if "ends" in given:
        yield "ends", given["ends"]
    for index in manifest.indexes:
        data = client.entry(index)
        path = tuple(inclusion_proof(index, manifest.size, survey.tree.subtree))
        batch = b"".join(read_batch_path(client, index, decode_entry(data))) or None
        receipt = Receipt(index, path, given["checkpoint"].decode(), batch)
        yield from zip(layout.entry_names(index), (data, receipt.to_text().encode()), strict=True)
    yield from ((name, given[name]) for name in map(layout.home_name, sorted(manifest.files)))
    yield from sorted(layout.key_members(survey.authority).items())
    yield "manifest.json", manifest.encode()
    yield "schemas.json", given["schemas.json"]
    if manifest.content == "log":
        for level in layout.levels_of(manifest.size):
            for number, width in layout.tiles_of(manifest.size, level):
                yield layout.tile_name(level, number, width), survey.tree.tile(level, number, width)
        for number, width in layout.tiles_of(manifest.size, 0):
            start = number * TILE_WIDTH
            entries = [data for _, data in read_range(client, start, start + width)]
            content = b"".join(len(data).to_bytes(2, "big") + data for data in entries)
            yield layout.tile_name("entries", number, width), content
    yield "verify.py", given["verify.py"]


def _get_blob(client: Client, ref: str) -> bytes | None:
    try:
        return client.get_blob(ref)
    except Refused as refusal:
        if refusal.code == "NOT_FOUND":
            return None  # a ref to an event or a graph, or a blob that was erased
        raise
