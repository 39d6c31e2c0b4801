"""Reads the entries and blobs of a bundle like those of a ledger, for somebody who has only the bundle.

The caller has verified the bundle (``consumers.auditor.bundle_ledger``). The views are folded from its entries, so they
answer what a ledger's own views answer. A bundle of one stream has only some entries of its log: pages of entries and
views skip the others. A bundle can only be read: signing, appending and proving are refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from deedbook.ledger import limits
from deedbook.ledger.bundle import layout
from deedbook.ledger.client.local_reader import Views, is_selected
from deedbook.ledger.client.reads import HeadView, LogReads, Page
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.envelope import commitment_in, decode_entry, entry_leaf, event_id, head_of
from deedbook.ledger.format.merkle import root_of
from deedbook.ledger.log.blobs import blob_not_found, checked_chunks
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.ledger.system.resource import Resource
from deedbook.ledger.trust.history import ConsistencyProof
from deedbook.ledger.trust.store import TrustStore

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.bundle.archive import Bundle
    from deedbook.ledger.client.client import Progress, When
    from deedbook.ledger.client.stream_reader import StreamReader
    from deedbook.ledger.format.envelope import Submission
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blobs import BlobPage, BlobView
    from deedbook.ledger.proof.receipt import Receipt
    from deedbook.ledger.trust.history import StreamPage, StreamRequest

tiles_cached_max: Final = 8


class BundleReader(Resource):
    """A ``Client`` of a verified bundle. It closes the bundle."""

    def __init__(self, bundle: Bundle, views: Callable[[LogReads], Views]) -> None:
        """Read an open ``bundle``; ``views`` opens the views at the first query."""
        self.bundle = bundle
        self._open_views = views
        self._views: Views | None = None
        self._tile = lru_cache(tiles_cached_max)(bundle.read_tile)

    @property
    def ledger(self) -> str:
        return self.bundle.manifest.ledger

    @property
    def trust_store(self) -> TrustStore:
        return TrustStore(self.ledger, "bundle")

    @property
    def disagreement(self) -> Corrupted | None:
        """Always None, because the audit that made this reader already compared the bundle with the trust stores."""
        return None

    @cached_property
    def indexes(self) -> Sequence[int]:
        """The indexes of the entries in the bundle, in order."""
        manifest = self.bundle.manifest
        if manifest.content == "log":
            return range(manifest.size)
        return [index for index in manifest.indexes if layout.entry_names(index)[0] not in self.bundle.lost]

    def close(self) -> None:
        """Close the views and the bundle."""
        if self._views is not None:
            self._views.close()
            self._views = None
        self.bundle.close()

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        if as_of is not None and self.bundle.manifest.content == "stream":
            raise Refused("USAGE", "a bundle of one stream shows no earlier state: omit the time, or read the log")
        if self._views is None:
            self._views = self._open_views(self)
        return self._views.answer(query, arguments, as_of)

    def head(self) -> HeadView:
        return HeadView(self.ledger, self.bundle.manifest.size, self.bundle.manifest.root)

    def entry(self, index: int) -> bytes:
        place = bisect_left(self.indexes, index)
        if place < len(self.indexes) and self.indexes[place] == index:
            return self._read(index)
        manifest = self.bundle.manifest
        part = "" if manifest.stream is None else f", which has {manifest.stream} and what its rules read"
        raise Refused("NOT_FOUND", f"entry {index} is not in this bundle{part}", index=index)

    def _read(self, index: int) -> bytes:
        manifest = self.bundle.manifest
        if manifest.content == "stream":
            return self.bundle.read(layout.entry_names(index)[0])
        number, position = divmod(index, TILE_WIDTH)
        return self._tile(number, min(TILE_WIDTH, manifest.size - number * TILE_WIDTH))[position]

    def index_of(self, stream: str, event_id: str) -> int | None:
        for index in self.indexes:
            body = decode_entry(self._read(index)).body
            if head_of(body).stream == stream and _id_of(body) == event_id:
                return index
        return None

    def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
        old_size: int | None = None,
    ) -> Page:
        if start < 0:
            raise Refused("INVALID_FIELD", f"an index is never negative: {start}", path="$.start")
        place = bisect_left(self.indexes, start)
        indexes = self.indexes[place : place + max(1, min(limit, limits.range_events_max))]
        entries = [(index, self._read(index)) for index in indexes]
        if kinds or stream is not None:
            entries = [(index, data) for index, data in entries if is_selected(data, kinds, stream)]
        following = self.indexes[place + len(indexes) : place + len(indexes) + 1]
        size = self.bundle.manifest.size
        return Page(entries, following[0] if following else max(start, size), size)

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        name = self._blob_name(ref)
        return self.bundle.size(name), next(self.bundle.chunks(name, number * limits.blob_chunk_bytes), b"")

    def blob_chunks(self, ref: str) -> Iterator[bytes]:
        return checked_chunks(ref, self.bundle.chunks(self._blob_name(ref)))

    def get_blob(self, ref: str) -> bytes:
        return b"".join(self.blob_chunks(ref))

    def _blob_name(self, ref: str) -> str:
        name = layout.blob_name(ref)
        if ref not in self.bundle.blobs or name in self.bundle.lost:
            raise blob_not_found(ref)
        return name

    def checkpoint(self) -> str:
        return self.bundle.read("checkpoint").decode("utf-8")

    def stat_blob(self, ref: str) -> BlobView:
        self._refuse("it does not know when a blob was stored")

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        self._refuse("its manifest.json lists its blobs")

    @property
    def streams(self) -> StreamReader:
        self._refuse("nobody acts on its streams")

    def agents(self) -> list[AgentRecord]:
        self._refuse("the query agents.list lists its agents")

    def stream(self, request: StreamRequest) -> StreamPage:
        self._refuse("it serves no streams to readers who act")

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        manifest, size = self.bundle.manifest, self.bundle.manifest.size if new_size is None else new_size
        if old_size or size > manifest.size or manifest.content == "stream":
            self._refuse("it proves only its own checkpoint")
        root = manifest.root
        if size < manifest.size:  # an answer about the past names the root of that time
            root = root_of([entry_leaf(self._read(index)) for index in range(size)]).hex()
        return ConsistencyProof(size, root)

    def prove(self, index: int) -> Receipt:
        self._refuse("it signs no receipts")

    def ends(self, size: int, streams: Collection[str]) -> str:
        self._refuse("it signs nothing")

    def submit(self, submission: Submission) -> list[Accepted]:
        self._refuse("nothing is appended to it")

    def put_blob(
        self, content: bytes | BinaryIO, intent: Submission, progress: Progress = lambda _done, _total: None
    ) -> str:
        self._refuse("nothing is stored in it")

    def _refuse(self, reason: str) -> NoReturn:
        raise Refused("USAGE", f"a bundle can only be read, and {reason}: use the ledger itself")


def _id_of(body: bytes) -> str:
    return event_id(commitment_in(body))
