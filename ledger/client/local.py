"""The client of a ledger in a folder on this machine: LMDB, no server, no network. It raises what ``Client`` says."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from deedbook.ledger import limits
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.intent import check_intent
from deedbook.ledger.client.client import Progress, When, read_reset
from deedbook.ledger.client.reads import HeadView, Page
from deedbook.ledger.client.stream_reader import StreamReader, pinned_root
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import Submission, decode_entry, head_of
from deedbook.ledger.format.forms import NODE
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import WITNESSED_FILE
from deedbook.ledger.log.blobs import no_blob
from deedbook.ledger.log.expiry import read_references
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import Uploads
from deedbook.ledger.proof.checkpoint import (
    Checkpoint,
    StreamHeads,
    note_size_max_bytes,
    sign_checkpoint,
    sign_stream_heads,
    verify_checkpoint,
)
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.secrets.scanner import check_text
from deedbook.ledger.system.files import read_regular
from deedbook.ledger.system.resource import Resource
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest, Trusted, tell, trust
from deedbook.ledger.trust.store import TrustStore

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.admission.gate import Gate, Publish
    from deedbook.ledger.client.stream_reader import StreamReader
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blobs import BlobPage, BlobView, Intent
    from deedbook.ledger.log.read import Snapshot
    from deedbook.ledger.log.uploads import Uploads
    from deedbook.ledger.proof.checkpoint import CheckpointKey
    from deedbook.ledger.proof.receipt import Receipt

poll_interval_s: Final = 0.02
_EVENT_ID: Final = r"blake3:[0-9a-f]{64}\Z"


class Views(Protocol):
    """What answers view queries about one ledger (``projections.Reader``)."""

    def answer(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        """Return the answer of a query, now or as of a moment."""

    def close(self) -> None:
        """Close the store."""


OpenViews: TypeAlias = "Callable[[LocalClient, Settings], Views]"


class LocalClient(Resource):
    """A ``Client`` of a ledger in a folder; any number of processes may have one on the same folder.

    One that ``needs_witnesses``, as a node's that fails closed, hands out no proof that they have not cosigned.
    """

    def __init__(self, settings: Settings, *, log: Log | None = None, views: OpenViews | None = None) -> None:
        """Open the log (or share an open one, which then stays open when the client is closed).

        ``views`` opens what answers view queries, when the first one is asked. Raises Unavailable: ``NO_LEDGER``,
        ``STORE_UNAVAILABLE``. Corrupted: ``HISTORY_CHANGED`` (see ``ledger.trust.store``), unless the settings say that
        it only looks.
        """
        self.settings = settings
        self._owns_log = log is None
        config = settings.config
        self.log = log or Log(settings.home, map_size=config.map_size_bytes, blobs_map_size=config.blobs_map_size_bytes)
        self.needs_witnesses = False
        self.node = NODE  # The agent that the node is, in whose process this is.

        # What publishes before this client appends, where several nodes have the ledger.
        self.publish: Publish | None = None
        self._gate: Gate | None = None
        self._is_closed = False
        self._open_views = views
        self._views: Views | None = None
        self._lock = threading.Lock()
        with self.log.snapshot() as snapshot:
            head = snapshot.head
        if head is None:
            self._close()
            raise Unavailable("NO_LEDGER", f"the ledger in {settings.home} is empty: run `deed init` again")
        self.ledger: str = head.ledger
        self.trust_store = TrustStore.of_folder(self.ledger, settings.home)
        self._trusted: Trusted | None = None
        try:
            self.remember()
        except BaseException:
            self._close()
            raise

    def remember(self) -> None:
        """Compare the log with what was remembered of it, and remember where it ends now.

        Raises Corrupted: ``HISTORY_CHANGED``, unless this client only looks.
        """
        only_looks = self.settings.only_looks
        self._trusted = self.trust_store.keep(self.consistency, partial(read_reset, self), only_looks=only_looks)

    def close(self) -> None:
        """Remember where the log ends, and close the views, and the log if this client opened it."""
        if not self._is_closed and self._trusted is not None and not self.settings.only_looks:
            with suppress(DeedbookError):  # who opens it next is told
                if self.head().size != self._trusted.size:
                    self.remember()
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        if self._views is not None:
            self._views.close()
            self._views = None
        if self._owns_log:
            self.log.close()

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        with self._lock:
            if self._views is None:
                if self._open_views is None:
                    raise Refused("USAGE", "this client was opened without views: give views=projections.Reader")
                self._views = self._open_views(self, self.settings)
            views = self._views
        return views.answer(query, arguments, as_of)

    def submit(self, submission: Submission) -> list[Accepted]:
        with self._lock:
            if self._gate is None:
                for notice in self.trust_store.rivals(self.consistency):  # before it parts from them
                    tell(notice)
                self._gate = Gate(self.log, quota=self.settings.config.quota, publish=self.publish)
            return self._gate.submit(submission)

    def head(self) -> HeadView:
        with self.log.snapshot() as snapshot:
            return HeadView(self.ledger, snapshot.size, snapshot.root().hex())

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        if old_size < 0:
            raise Refused("INVALID_FIELD", f"a size is never negative: {old_size}", path="$.old_size")
        with self.log.snapshot() as snapshot:
            return snapshot.consistency(old_size, new_size)

    def signed_consistency(self, old_size: int) -> ConsistencyProof:
        """Return what ``consistency`` does, with a signed checkpoint of that head, as it goes over the bus.

        Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            note = _signed(snapshot, self._checkpoint_key(snapshot))
            return replace(snapshot.consistency(old_size), checkpoint=note)

    def entry(self, index: int) -> bytes:
        with self.log.snapshot() as snapshot:
            return snapshot.entry(index)

    def index_of(self, stream: str, event_id: str) -> int | None:
        if re.match(_EVENT_ID, event_id) is None:
            raise Refused("INVALID_FIELD", "an event's id is blake3: and 64 hex digits", path="$.id")
        with self.log.snapshot() as snapshot:
            return snapshot.index_of(stream, event_id)

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
        if wait_s > 0:
            start = self._wait_for(start, kinds, stream, wait_s)
        limit = max(1, min(limit, limits.range_events_max))
        with self.log.snapshot() as snapshot:
            raw = snapshot.entries(start, limit=limit, size_max_bytes=limits.range_size_max_bytes)
            size = snapshot.size
            consistency_proof = None if old_size is None else snapshot.consistency(old_size)
        entries = [(start + offset, data) for offset, data in enumerate(raw)]
        if kinds or stream is not None:
            entries = [(index, data) for index, data in entries if _matches(data, kinds, stream)]
        return Page(entries, start + len(raw), size, consistency_proof)

    def stream(self, asked: StreamRequest) -> StreamPage:
        trusted = self._trusted
        with self.log.snapshot() as snapshot:
            page = snapshot.stream_page(replace(asked, old_size=trusted.size if trusted else 0))
        if asked.size is None and not self.settings.only_looks:
            self._trusted, _ = trust(trusted, page.consistency_proof, partial(read_reset, self), self.trust_store.where)
        return page

    def signed_stream(self, asked: StreamRequest) -> StreamPage:
        """Return the same with what the ledger's key signs of the head and the stream's end, as it goes over the bus.

        Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            page = snapshot.stream_page(asked)
            if asked.size is not None:
                return page
            note = _signed(snapshot, self._checkpoint_key(snapshot))
            ends = self._ends(snapshot, snapshot.size, [asked.stream])
        return replace(page, consistency_proof=replace(page.consistency_proof, checkpoint=note), ends=ends)

    @cached_property
    def streams(self) -> StreamReader:
        file = None if self.settings.only_looks else self.trust_store.authority_file
        return StreamReader(self, file, is_pinned=pinned_root(self.settings.home, self.ledger) is not None)

    def agents(self) -> list[AgentRecord]:
        with self.log.snapshot() as snapshot:
            return snapshot.agents()

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry, under the last checkpoint that was witnessed, if that covers it.

        Raises Corrupted: ``NOT_WITNESSED``: it does not, and this node hands out no other.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            if index >= size:
                note, size = self._unwitnessed(snapshot), snapshot.size
            return Receipt(index, tuple(snapshot.inclusion_proof(index, size)), note)

    def checkpoint(self) -> str:
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            return note if size == snapshot.size else _signed(snapshot, self._checkpoint_key(snapshot))

    def published_checkpoint(self) -> str:
        """Return the checkpoint that outsiders may see: ``checkpoint`` or, where witnesses are demanded, their last.

        Raises Corrupted: ``NOT_WITNESSED``: there is none yet.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            return note if size == snapshot.size or (size and self.needs_witnesses) else self._unwitnessed(snapshot)

    def _unwitnessed(self, snapshot: Snapshot) -> str:
        if self.needs_witnesses:
            message = "this is not witnessed yet, and this node hands out nothing else: ask again later"
            raise Corrupted("NOT_WITNESSED", message, size=snapshot.size)
        return _signed(snapshot, self._checkpoint_key(snapshot))

    def _witnessed(self, snapshot: Snapshot) -> tuple[str, int]:
        """Return the last checkpoint that was witnessed, and its size; 0 when there is none of this log."""
        with suppress(DeedbookError, UnicodeDecodeError):
            content = read_regular(self.settings.home / WITNESSED_FILE, size_max_bytes=note_size_max_bytes)
            if content is None:
                return "", 0
            note = content.decode()
            checkpoint = verify_checkpoint(note, self._checkpoint_key(snapshot).verifier)
            if snapshot.frontier(checkpoint.size).root() == checkpoint.root:
                return note, checkpoint.size
        return "", 0  # damaged, of a key that was replaced, or of a log that is no more: it counts for nothing

    def ends(self, size: int, streams: Collection[str]) -> str:
        with self.log.snapshot() as snapshot:
            return self._ends(snapshot, size, streams)

    def _ends(self, snapshot: Snapshot, size: int, streams: Collection[str]) -> str:
        root = snapshot.frontier(size).root().hex()
        authority = decode_entry(snapshot.entry(size - 1)).authority_version
        versions = {name: sum(index < size for index, _ in snapshot.stream_indexes(name)) for name in streams}
        return sign_stream_heads(StreamHeads(size, root, authority, versions), self._checkpoint_key(snapshot))

    def checkpoint_keys(self) -> tuple[str, ...]:
        """Return the keys (hex) that may sign checkpoints now."""
        with self.log.snapshot() as snapshot:
            return snapshot.checkpoint_keys()

    @cached_property
    def uploads(self) -> Uploads:
        """What writes blobs, within the quota of each author."""
        return Uploads(self.log.blobs, self.settings.config.quota, check_text)

    def check_intent(self, intent: Submission) -> Intent:
        """Return the intent of an upload, checked as an event of its author would be now."""
        with self.log.snapshot() as snapshot:
            return check_intent(intent, snapshot, now_ms())

    def put_blob(self, content: bytes, intent: Submission, progress: Progress = lambda _done, _total: None) -> str:
        ref = self.uploads.put(content, self.check_intent(intent)).ref
        progress(len(content), len(content))
        return ref

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        record = self.log.blobs.find(ref)
        if record is None:
            raise no_blob(ref)
        if not 0 <= number < max(record.chunk_count, 1):
            raise Refused("NOT_FOUND", f"blob {ref} has no chunk {number}", size=record.size)
        return record.size, self.log.blobs.chunk(record, number) if record.size else b""

    def stat_blob(self, ref: str) -> BlobView:
        self._read_references()
        return self.log.blobs.stat(ref)

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        self._read_references()
        return self.log.blobs.page(after, limit=limit, author=author, unreferenced=unreferenced)

    def _read_references(self) -> None:
        # What cannot be written (read-only media, a full map) can still be read, as it was when it could.
        with suppress(Unavailable):
            read_references(self.log)

    def get_blob(self, ref: str) -> bytes:
        return self.log.blobs.get(ref)

    def _wait_for(self, start: int, kinds: Collection[str], stream: str | None, wait_s: float) -> int:
        """Wait for an entry that is wanted; return where to read from: what nobody wants may be passed by.

        What is there already is not waited beyond, so that who reads up to an index comes to it.
        """
        deadline = time.monotonic() + min(wait_s, limits.poll_wait_max_s)
        seen, has_waited, size_max_bytes = -1, False, limits.range_size_max_bytes
        while time.monotonic() < deadline:
            announced, last = self.log.announced, self.log.tables.last_transaction()
            if last != seen:
                with self.log.snapshot() as snapshot:
                    raw = snapshot.entries(start, limit=limits.range_events_max, size_max_bytes=size_max_bytes)
                if raw and (not has_waited or any(_matches(data, kinds, stream) for data in raw)):
                    return start
                start += len(raw)
                seen = -1 if raw else last
            else:
                has_waited = True
                if announced is not None:  # somebody watches the log for all of this process
                    self.log.wait(announced, deadline - time.monotonic())
                time.sleep(poll_interval_s)  # and what comes together is read together
        return start

    def _checkpoint_key(self, snapshot: Snapshot) -> CheckpointKey:
        created = read_event(0, snapshot.entry(0)).data
        assert isinstance(created, LedgerCreated)
        return Home(self.settings.home).checkpoint_key(created.origin, snapshot.checkpoint_keys())


def now_ms() -> int:
    """Return the system's clock (Unix ms)."""
    return time.time_ns() // 1_000_000


def _signed(snapshot: Snapshot, key: CheckpointKey) -> str:
    return sign_checkpoint(Checkpoint(key.origin, snapshot.size, snapshot.root()), key)


def _matches(data: bytes, kinds: Collection[str], stream: str | None) -> bool:
    head = head_of(decode_entry(data).body)
    return (not kinds or head.kind in kinds) and (stream is None or head.stream == stream)
