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
    """A stretch of the log: (index, entry bytes) of what matched, and where to go on; and its consistency proof, if asked for."""

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


class StreamReads(EntryReads, Protocol):
    """What is read of a ledger to check one stream (see ``Client``)."""

    @property
    def ledger(self) -> str: ...

    @property
    def trust_store(self) -> TrustStore: ...

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof: ...

    def stream(self, asked: StreamRequest) -> StreamPage: ...
