"""What a reader may ask of a log: single entries, pages of them, and proofs that it only grew."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest
from deedbook.ledger.trust.store import TrustStore


class HeadView(msgspec.Struct, frozen=True):
    """Where the log ends: its ledger, number of entries and root (hex)."""

    ledger: str
    size: int
    root: str


class Page(msgspec.Struct, frozen=True):
    """Matching entries of the log (index and bytes), where to go on, and a consistency proof if asked for."""

    entries: list[tuple[int, bytes]]
    next_index: int
    size: int
    consistency_proof: ConsistencyProof | None = None


class EntryReads(Protocol):
    """What whoever checks single entries asks (see ``Client``)."""

    def entry(self, index: int) -> bytes: ...

    def entries(
        self, start: int, *, limit: int = ..., kinds: Collection[str] = ..., stream: str | None = None
    ) -> Page: ...


class Reads(EntryReads, Protocol):
    """What whoever checks a history asks of it (see ``Client``)."""

    def consistency(self, old_size: int) -> ConsistencyProof: ...


class LogReads(Protocol):
    """What is read of a ledger to answer questions about it (see ``Client``)."""

    @property
    def ledger(self) -> str:
        """The ledger's id."""

    @property
    def trust_store(self) -> TrustStore:
        """What readers on this machine remember of the ledger."""

    def head(self) -> HeadView:
        """Return where the log ends."""

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """Return where the log ends, and the proof that it begins with its first ``old_size`` entries."""

    def entry(self, index: int) -> bytes:
        """Return the bytes of an entry."""

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream."""

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
        """Return entries from an index on."""

    def stream(self, asked: StreamRequest) -> StreamPage:
        """Return entries of a stream and of authority, each proven."""
