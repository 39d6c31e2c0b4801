"""The reads of a log: single entries, pages of entries, and proofs that the log only grew."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest
from deedbook.ledger.trust.store import TrustStore


class HeadView(msgspec.Struct, frozen=True):
    """The head of a log: its ledger, number of entries and root (hex)."""

    ledger: str
    size: int
    root: str


class Page(msgspec.Struct, frozen=True):
    """Matching entries (index and bytes), the index to read from next, the log's size, and a proof on request."""

    entries: list[tuple[int, bytes]]
    next_index: int
    size: int
    consistency_proof: ConsistencyProof | None = None


class EntryReads(Protocol):
    """The reads that a check of single entries needs (see ``Client``)."""

    def entry(self, index: int) -> bytes: ...

    def entries(
        self, start: int, *, limit: int = ..., kinds: Collection[str] = ..., stream: str | None = None
    ) -> Page: ...


class Reads(EntryReads, Protocol):
    """The reads that a check of a history needs (see ``Client``)."""

    def consistency(self, old_size: int) -> ConsistencyProof: ...


class LogReads(Protocol):
    """The reads that views and stream readers need (see ``Client``)."""

    @property
    def ledger(self) -> str:
        """The ledger's id."""

    @property
    def trust_store(self) -> TrustStore:
        """The trust store of readers of this ledger: the head that they trust, and its file."""

    def head(self) -> HeadView:
        """Return the ledger's id, and the size and root of its log."""

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """Return the log's head, and the proof that the log begins with its first ``old_size`` entries."""

    def entry(self, index: int) -> bytes:
        """Return the bytes of an entry."""

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""

    def entries(
        self,
        start: int,
        *,
        limit: int = ...,
        kinds: Collection[str] = ...,
        stream: str | None = None,
        wait_s: float = ...,
        old_size: int | None = None,
    ) -> Page:
        """Return a page of entries from index ``start`` on."""

    def stream(self, request: StreamRequest) -> StreamPage:
        """Return a page of entries of a stream and of authority, each with its proof."""
