"""A log in memory that replaces LMDB: a transaction commits as a whole or not at all, and survives a simulated crash.

It has the methods of ``ledger.log.log.Log`` that the gate, the follower, the outbox and readers call. Heads, frontiers
and records are made and read by the real functions. ``observe`` is called with every commit, before any other program
can see it.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.merkle import EMPTY_ROOT, Frontier, consistency_proof, subtrees_of
from deedbook.ledger.lifecycle.authority import AgentRecord, KeyRecord
from deedbook.ledger.log import keys
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.trust.history import ConsistencyProof
from tests.simulation.thread import Killed, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deedbook.ledger.format.merkle import SubtreeReader
    from deedbook.ledger.lifecycle.redaction import RedactionRecord
    from deedbook.ledger.log.log import PendingEntries
    from deedbook.ledger.log.records import ClusterRecord
    from deedbook.ledger.log.tables import Head
    from tests.simulation.world import Process

lock_wait_s = 0.005


class MemoryLog:
    """The log of a node: the content of its disk."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.data: list[bytes] = []
        self.leaves: list[bytes] = []
        self.state: dict[bytes, bytes] = {}
        self.ids: dict[bytes, int] = {}
        self.streams: dict[bytes, list[tuple[int, bytes]]] = {}
        self.commits = 0
        self.observe: Callable[[int, list[bytes]], None] = _unobserved
        self.process: Process | None = None
        self._staged: list[tuple[Head, PendingEntries]] = []
        self._subtrees: tuple[int, SubtreeReader] | None = None
        self._seen: MemorySnapshot | None = None
        self._is_writing = False

    def announce(self) -> None:
        """Do nothing: no program waits for commits of a log in memory."""

    def copy(self) -> Self:
        other = type(self)()
        other.head, other.data, other.leaves = self.head, self.data[:], self.leaves[:]
        other.state, other.ids = self.state.copy(), self.ids.copy()
        other.streams = {name: indexes[:] for name, indexes in self.streams.items()}
        return other

    def begin(self, process: Process, observe: Callable[[int, list[bytes]], None]) -> None:
        """Let the restarted node use the log; it still has all commits."""
        self.process, self.observe = process, observe
        self._is_writing = False

    def set_shared(self, shared: ClusterRecord) -> None:
        self.state[keys.SHARED_KEY] = msgspec.msgpack.encode(shared)

    # In ``Log``, blobs, tables and appender are parts; here, this object is all of them.

    @property
    def blobs(self) -> Self:
        return self

    @property
    def tables(self) -> Self:
        return self

    @property
    def appender(self) -> Self:
        return self

    def last_transaction(self) -> int:
        return self.commits

    def find(self, _ref: str) -> None:
        """Find no blob: a world has none."""

    def snapshot(self) -> MemorySnapshot:
        if self._seen is None or self._seen.head is not self.head:
            self._seen = MemorySnapshot(self)
        return self._seen

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[None, MemorySnapshot]]:
        while self._is_writing:
            Thread.current().wait_for(asyncio.sleep(lock_wait_s))
        self._is_writing = True
        try:
            yield None, MemorySnapshot(self)
            if self.process is not None and not self.process.is_alive:
                raise Killed
            for head, pending in self._staged:
                self._commit(head, pending)
        finally:
            self._staged.clear()
            self._is_writing = False

    def append(self, _txn: None, head: Head, pending: PendingEntries) -> Head:
        frontier = Frontier.from_bytes(head.size, head.frontier).extend(pending.leaves)
        new_head = msgspec.structs.replace(
            head,
            size=frontier.size,
            frontier=frontier.to_bytes(),
            accepted_ms=pending.accepted_ms,
            authority_version=pending.authority_version,
        )
        self._staged.append((new_head, pending))
        return new_head

    def _commit(self, head: Head, pending: PendingEntries) -> None:
        start = len(self.data)
        assert head.size == start + len(pending.entries), "appended at another place than the log's end"
        self.observe(start, pending.entries)
        self.data += pending.entries
        self.leaves += pending.leaves
        for index, key in enumerate(pending.id_keys, start):
            self.ids[key] = index
            self.streams.setdefault(key[:16], []).append((index, key[16:]))
        self.state |= pending.state
        self.head = head
        self.commits += 1

    def subtrees(self) -> SubtreeReader:
        if self._subtrees is None or self._subtrees[0] != len(self.leaves):
            self._subtrees = len(self.leaves), subtrees_of(self.leaves)
        return self._subtrees[1]


_decoded: Final = lru_cache(maxsize=10_000)(decode_record)


def _unobserved(_start: int, _entries: Sequence[bytes]) -> None:
    pass


class MemorySnapshot:
    """The current log: nobody writes during a read, and a writer sees the state at the start of its transaction."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.head = log.head
        self.size = 0 if log.head is None else log.head.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing: a snapshot holds no resources."""

    def entry(self, index: int) -> bytes:
        if not 0 <= index < self.size:
            raise Refused("NOT_FOUND", f"there is no entry {index}: the log has {self.size}", index=index)
        return self._log.data[index]

    def entries(self, start: int, *, limit: int, size_max_bytes: int) -> list[bytes]:
        return self._log.data[start : start + limit]

    def index_of(self, stream: str, event_id: str) -> int | None:
        return self._log.ids.get(keys.id_key(stream, event_id))

    def stream_indexes(self, stream: str) -> list[tuple[int, bytes]]:
        return self._log.streams.get(keys.stream_digest(stream), [])

    def is_skipped(self, index: int) -> bool:
        return False

    def needs_rewriting(self) -> bool:
        return False  # a log in memory has no file

    def rewrite_mark(self) -> None:
        """Return None: nothing has to be rewritten."""

    def redactions(self) -> dict[int, RedactionRecord]:
        return {}  # no agent of the simulation redacts anything

    def record(self, key: bytes) -> Any:
        stored = self._log.state.get(key)
        return None if stored is None else _decoded(key, stored)

    def agent(self, name: str) -> AgentRecord | None:
        record: AgentRecord | None = self.record(keys.agent_key(name))
        return record

    def key(self, public_key: str) -> KeyRecord | None:
        record: KeyRecord | None = self.record(keys.key_key(public_key))
        return record

    def root(self) -> bytes:
        return EMPTY_ROOT if self.head is None else Frontier.from_bytes(self.size, self.head.frontier).root()

    def resets(self) -> list[tuple[str, int]]:
        return []

    def frontier(self, size: int) -> Frontier:
        return Frontier.empty().extend(self._log.leaves[:size])

    def consistency(self, old_size: int) -> ConsistencyProof:
        path = consistency_proof(old_size, self.size, self._log.subtrees()) if 0 <= old_size <= self.size else []
        return ConsistencyProof(self.size, self.root().hex(), path)
