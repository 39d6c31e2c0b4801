"""Verifying the signatures of single events: beside the replay, in other processes when there are many.

A signature depends on nothing but its event, so while the main process replays rules, spawned workers verify.
Processes, because threads gained little (measured); spawned, because a fork would copy an open LMDB. Starting them
costs about as much as some thousand signatures, so the first ones are always verified in place: a batch-signed log
(one signature for up to 256 events) never starts a worker.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Final

from ledger.identity import verify

if TYPE_CHECKING:
    from consumers.auditor.report import Findings

in_place_events_max: Final = 4096
pooled_events_min: Final = 16_384
chunk_events: Final = 512
chunks_waiting_max: Final = 8
workers_max: Final = 8

Signed = tuple[int, bytes, bytes, bytes]


def find_bad(chunk: list[Signed]) -> list[int]:
    """Return the indexes of a chunk of (index, key, signed bytes, signature) whose signature does not fit."""
    return [index for index, key, signed, sig in chunk if not verify(key, signed, sig)]


class Signatures:
    """Verifies what it is given, in place or by workers; ``close`` waits for all of it."""

    def __init__(self, findings: Findings, expected_events: int) -> None:
        """Report into ``findings``; ``expected_events`` is the size of what is audited."""
        self._findings = findings
        self._expected = expected_events
        self._seen = 0
        self._chunk: list[Signed] = []
        self._waiting: deque[tuple[list[Signed], Future[list[int]]]] = deque()
        self._workers: ProcessPoolExecutor | None = None
        self._pool_failed = False
        self.verified = 0

    def add(self, index: int, key: bytes, signed: bytes, sig: bytes) -> None:
        """Have one signature verified, now or later."""
        self._seen += 1
        self._chunk.append((index, key, signed, sig))
        if len(self._chunk) >= chunk_events:
            self._send()

    def close(self) -> None:
        """Wait until every signature is verified, and stop the workers."""
        try:
            self._settle(find_bad(self._chunk), len(self._chunk))
            self._chunk = []
            while self._waiting:
                self._collect()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the workers without waiting for what they still do."""
        if self._workers is not None:
            self._workers.shutdown(wait=True, cancel_futures=True)
            self._workers = None

    def _send(self) -> None:
        chunk, self._chunk = self._chunk, []
        pool = self._pool()
        if pool is None:
            self._settle(find_bad(chunk), len(chunk))
            return
        try:
            self._waiting.append((chunk, pool.submit(find_bad, chunk)))
        except BrokenProcessPool:
            self._pool_failed = True
            self._settle(find_bad(chunk), len(chunk))
        if len(self._waiting) > chunks_waiting_max:
            self._collect()

    def _collect(self) -> None:
        chunk, answer = self._waiting.popleft()
        try:
            bad = answer.result()
        except BrokenProcessPool:  # a worker was killed, as by a lack of memory: what it held is verified here
            self._pool_failed = True
            bad = find_bad(chunk)
        self._settle(bad, len(chunk))

    def _settle(self, bad: list[int], count: int) -> None:
        self.verified += count - len(bad)
        for index in bad:
            self._findings.problem(index, "SIGNATURE_INVALID", f"the signature of entry {index} does not fit it")

    def _pool(self) -> ProcessPoolExecutor | None:
        if self._pool_failed:
            return None
        if self._workers is None:
            count = min(len(os.sched_getaffinity(0)), workers_max)
            is_worth_it = self._seen > in_place_events_max and self._expected - self._seen > pooled_events_min
            if count > 1 and is_worth_it:
                self._workers = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        return self._workers
