"""Reads a ledger in a folder on this machine: entries, proofs and views. It signs and appends nothing."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from deedbook.ledger import limits
from deedbook.ledger.client.client import When, read_reset
from deedbook.ledger.client.reads import HeadView, LogReads, Page
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.envelope import decode_entry, head_of
from deedbook.ledger.home.config import Settings
from deedbook.ledger.log.reader import LogReader
from deedbook.ledger.system.resource import Resource
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest, TrustedHead, trust
from deedbook.ledger.trust.store import TrustStore

poll_interval_s: Final = 0.02
_EVENT_ID: Final = r"event:[0-9a-f]{64}\Z"


class Views(Protocol):
    """Answers view queries about one ledger (``projections.Reader``)."""

    def answer(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        """Return the answer of a query, as of now or of ``as_of``."""

    def close(self) -> None:
        """Close the store."""


OpenViews: TypeAlias = "Callable[[LogReads, Settings], Views]"


class LocalReader(Resource):
    """Reads a ledger in a folder. Any number of processes may open the same folder."""

    def __init__(self, settings: Settings, *, log: LogReader | None = None, views: OpenViews | None = None) -> None:
        """Open the log, or share an open ``log``, which ``close`` then leaves open.

        ``views`` opens the views at the first query. Raises Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE``.
        Corrupted: ``HISTORY_CHANGED`` (see ``ledger.trust.store``), unless the settings say ``only_looks``.
        """
        self.settings = settings
        self._owns_log = log is None
        self._log = log or LogReader(settings.home, map_size=settings.config.map_size_bytes)
        self._is_closed = False
        self._open_views = views
        self._views: Views | None = None
        self._lock = threading.Lock()
        with self._log.snapshot() as snapshot:
            head = snapshot.head
        if head is None:
            self._close()
            raise Unavailable("NO_LEDGER", f"the ledger in {settings.home} is empty: run `deed init` again")
        self.ledger: str = head.ledger
        self.trust_store = TrustStore.of_folder(self.ledger, settings.home)
        self._trusted: TrustedHead | None = None
        self.disagreement: Corrupted | None = None
        try:
            self.remember()
        except BaseException:
            self._close()
            raise

    def remember(self) -> None:
        """Compare the log with the trusted head, and store its present head as trusted.

        Raises Corrupted: ``HISTORY_CHANGED``, unless the settings say ``only_looks``; then nothing is stored, and the
        error is the ``disagreement``.
        """
        only_looks = self.settings.only_looks
        self._trusted, self.disagreement = self.trust_store.check_log(
            self.consistency, partial(read_reset, self), only_looks=only_looks
        )

    def close(self) -> None:
        """Store the log's head as trusted, and close the views, and the log if this reader opened it."""
        if not self._is_closed and self._trusted is not None and not self.settings.only_looks:
            with suppress(DeedbookError):  # the next opening reports it
                if self.head().size != self._trusted.size:
                    self.remember()
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        if self._views is not None:
            self._views.close()
            self._views = None
        if self._owns_log:
            self._log.close()

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        with self._lock:
            if self._views is None:
                if self._open_views is None:
                    raise Refused("USAGE", "this client was opened without views: pass views=projections.Reader")
                self._views = self._open_views(self, self.settings)
            views = self._views
        return views.answer(query, arguments, as_of)

    def head(self) -> HeadView:
        with self._log.snapshot() as snapshot:
            return HeadView(self.ledger, snapshot.size, snapshot.root().hex())

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        if old_size < 0:
            raise Refused("INVALID_FIELD", f"a size is never negative: {old_size}", path="$.old_size")
        with self._log.snapshot() as snapshot:
            return snapshot.consistency(old_size, new_size)

    def entry(self, index: int) -> bytes:
        with self._log.snapshot() as snapshot:
            return snapshot.entry(index)

    def index_of(self, stream: str, event_id: str) -> int | None:
        if re.match(_EVENT_ID, event_id) is None:
            raise Refused("INVALID_FIELD", "an event's id is event: and 64 hex digits", path="$.id")
        with self._log.snapshot() as snapshot:
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
        size_max_bytes = limits.range_size_max_bytes
        with self._log.snapshot() as snapshot:
            if stream is None:
                raw = snapshot.entries(start, limit=limit, size_max_bytes=size_max_bytes)
                entries, next_index = list(enumerate(raw, start)), start + len(raw)
            else:  # read only the entries of the stream, because the log may be long
                entries, next_index = snapshot.entries_of(stream, start, limit=limit, size_max_bytes=size_max_bytes)
            size = snapshot.size
            consistency_proof = None if old_size is None else snapshot.consistency(old_size)
        if kinds:
            entries = [(index, data) for index, data in entries if is_selected(data, kinds, None)]
        return Page(entries, next_index, size, consistency_proof)

    def stream(self, request: StreamRequest) -> StreamPage:
        trusted = self._trusted
        with self._log.snapshot() as snapshot:
            page = snapshot.stream_page(replace(request, old_size=trusted.size if trusted else 0))
        if request.size is None and not self.settings.only_looks:
            self._trusted, _ = trust(
                trusted, page.consistency_proof, partial(read_reset, self), self.trust_store.source
            )
        return page

    def _wait_for(self, start: int, kinds: Collection[str], stream: str | None, wait_s: float) -> int:
        """Wait for a matching entry, and return the index from which to read. Entries before it do not match.

        If entries from ``start`` on exist already, return at once, even if none matches: a caller may read up to an
        index.
        """
        deadline = time.monotonic() + min(wait_s, limits.poll_wait_max_s)
        has_waited, size_max_bytes = False, limits.range_size_max_bytes
        read_transaction: object = None
        while time.monotonic() < deadline:
            announced, last = self._log.announced, self._log.tables.last_transaction()
            if last != read_transaction:
                with self._log.snapshot() as snapshot:
                    raw = snapshot.entries(start, limit=limits.range_events_max, size_max_bytes=size_max_bytes)
                if raw and (not has_waited or any(is_selected(data, kinds, stream) for data in raw)):
                    return start
                start += len(raw)
                read_transaction = None if raw else last
            else:
                has_waited = True
                if announced is not None:  # one watcher in this process announces new entries to all readers
                    self._log.wait(announced, deadline - time.monotonic())
                # Sleep also after an announcement, so that the entries of one burst are in one page.
                time.sleep(poll_interval_s)
        return start


def is_selected(data: bytes, kinds: Collection[str], stream: str | None) -> bool:
    """Return whether an entry is of one of these kinds (empty: any) and of this stream (None: any)."""
    head = head_of(decode_entry(data).body)
    return (not kinds or head.kind in kinds) and (stream is None or head.stream == stream)
