"""Verifies signatures, each over a batch of one or more events; worker processes do it if there are many.

A signature depends only on its events, so workers verify signatures while the main process replays the rules.
They are processes because threads gained little (measured). Starting a worker costs as much as some thousand
signatures, so the main process verifies the first ones itself, and a log of large batches never starts a worker. When
all workers are busy, the main process takes a share.

A batch is whole and contiguous in the log, with one key, one signature and one time. Damage must be reported for the
damaged entry, not for the batch: if the signature is valid with the majority's key, signature or time, the member that
differs is the damaged one.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from deedbook.consumers.auditor.report import Findings
from deedbook.consumers.sdk.child import Child
from deedbook.ledger.format.envelope import Entry, bodies_size, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import batch_size_max_bytes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

in_place_signatures_max: Final = 1024
pooled_signatures_min: Final = 8_192
# Small enough that several chunks fit into the buffer of a connection: sending to a busy worker must not wait.
chunk_signatures: Final = 64
chunks_per_worker_max: Final = 4
workers_max: Final = 8

Signed = tuple[int, int, bytes, bytes, bytes]
"""The index of the first event of a batch, the number of its events, the key, the signed bytes, and the signature."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def find_bad(chunk: list[Signed]) -> list[tuple[int, int]]:
    """Return the batches of a chunk whose signature is wrong: for each, its index and its number of events."""
    return [(index, count) for index, count, key, signed, sig in chunk if not verify(key, signed, sig)]


def answer_chunks(connection: Connection) -> None:
    """Verify each chunk that the parent sends until it closes the connection; the main function of a worker."""
    while True:
        connection.send(find_bad(connection.recv()))


class Worker:
    """A worker process, and the chunks that it has not answered yet."""

    def __init__(self) -> None:
        self.child = Child(answer_chunks)
        self.pending: deque[list[Signed]] = deque()


class Signatures:
    """Verifies signatures in this process or in workers; ``close`` waits for all of them."""

    def __init__(self, findings: Findings, expected_events: int) -> None:
        """Report into ``findings``; ``expected_events`` is the size of what is audited."""
        self._findings = findings
        self._expected = expected_events
        self._signatures_added = 0
        self._events_added = 0
        self._chunk: list[Signed] = []
        self._workers: list[Worker] | None = None
        self.verified = 0

    def add(self, index: int, count: int, key: bytes, signed: bytes, sig: bytes) -> None:
        """Verify the signature of the ``count`` events from ``index`` on, now or later."""
        self._signatures_added += 1
        self._events_added += count
        self._chunk.append((index, count, key, signed, sig))
        if len(self._chunk) >= chunk_signatures:
            self._send()

    def wait(self) -> None:
        """Wait until every added signature is verified."""
        self._verify_here(self._chunk)
        self._chunk = []
        for worker in [*(self._workers or ())]:
            while worker.pending:
                self._collect(worker)

    def close(self) -> None:
        """Wait until every signature is verified, and stop the workers."""
        try:
            self.wait()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the workers without waiting for queued work."""
        for worker in self._workers or ():
            worker.child.stop()
        self._workers = None

    def _send(self) -> None:
        chunk, self._chunk = self._chunk, []
        self._start_workers()
        for worker in [*(self._workers or ())]:
            while worker.pending and worker.child.connection.poll():
                self._collect(worker)
        worker = min(self._workers or (), key=lambda worker: len(worker.pending), default=None)
        if worker is None or len(worker.pending) >= chunks_per_worker_max:
            self._verify_here(chunk)
            return
        worker.pending.append(chunk)
        try:
            worker.child.connection.send(chunk)
        except OSError:
            self._take_over(worker)

    def _collect(self, worker: Worker) -> None:
        try:
            bad = worker.child.receive()
        except EOFError:
            self._take_over(worker)
        else:
            self._settle(bad, worker.pending.popleft())

    def _take_over(self, worker: Worker) -> None:
        """Verify the chunks of a killed worker (out of memory, for example) in this process; start no new worker."""
        if self._workers is not None:
            self._workers.remove(worker)
        worker.child.stop()
        while worker.pending:
            self._verify_here(worker.pending.popleft())

    def _verify_here(self, chunk: list[Signed]) -> None:
        self._settle(find_bad(chunk), chunk)

    def _settle(self, bad: list[tuple[int, int]], chunk: list[Signed]) -> None:
        self.verified += sum(count for _, count, *_ in chunk) - sum(count for _, count in bad)
        for index, count in bad:
            report_bad(self._findings, index, count)

    def _start_workers(self) -> None:
        """Start the workers once enough signatures were verified here and enough are still expected."""
        if self._workers is not None or self._signatures_added <= in_place_signatures_max:
            return
        batch_size = self._events_added / self._signatures_added
        if self._expected - self._events_added > pooled_signatures_min * batch_size:
            self._workers = [Worker() for _ in range(min(cores() - 1, workers_max))]


def report_bad(findings: Findings, index: int, count: int) -> None:
    """Report the wrong signature of a batch of ``count`` events."""
    if count == 1:
        findings.problem(index, "SIGNATURE_INVALID", f"the signature of entry {index} is wrong")
    else:
        message = f"the signature of the batch of entries {index} to {index + count - 1} is wrong"
        findings.problem(index, "SIGNATURE_INVALID", message, end=index + count)


class Member(NamedTuple):
    """One entry of a batch with the commitment to its body; ``entry`` is None if it could not be decoded."""

    at: int
    entry: Entry | None
    commitment: bytes = b""


class Batches:
    """Collects the members of one batch at a time, checks the batch when it is complete, and adds its signature."""

    def __init__(self, findings: Findings, signatures: Signatures) -> None:
        self._findings = findings
        self._signatures = signatures
        self._members: list[Member] = []
        self._size = 0
        self._lost: list[int] = []

    @property
    def open_at(self) -> int | None:
        """The first entry of the batch that is still open; None if there is none."""
        return self._members[0].at if self._members else None

    def add(self, index: int, entry: Entry, commitment: bytes) -> None:
        """Add the next entry of the log."""
        if self._members and not self._fits(index, entry):
            self.end()
        if not self._members:
            if entry.batch_size == 1:
                self._signatures.add(index, 1, entry.key, signed_bytes([commitment]), entry.sig)
                return
            self._begin(index, entry)
        self._members.append(Member(index, entry, commitment))
        self._check_whole()

    def lose(self, index: int) -> None:
        """Count an entry that could not be read or decoded as a member."""
        if self._members:
            self._members.append(Member(index, None))
            self._check_whole()
        else:
            self._lost = [*[lost for lost in self._lost if lost > index - 256], index]

    def end(self) -> None:
        """Report an open batch as incomplete: another batch or the end of the log follows."""
        if not self._members:
            return
        first = self._members[0].at
        message = f"the batch that begins at entry {first} has {len(self._members)} of its {self._size} events"
        self._findings.problem(first, "VERIFICATION_FAILED", message, end=first + len(self._members))
        self._members = []

    def _begin(self, index: int, entry: Entry) -> None:
        self._size = entry.batch_size
        start = index - entry.batch_index
        self._members = [Member(missing, None) for missing in range(start, index)]
        if any(missing not in self._lost for missing in range(start, index)):
            message = f"it is number {entry.batch_index} of a batch whose earlier entries are missing"
            self._findings.problem(index, "VERIFICATION_FAILED", message)

    def _fits(self, index: int, entry: Entry) -> bool:
        if entry.batch_size == self._size and entry.batch_index == len(self._members):
            return True
        known = next((member.entry for member in self._members if member.entry is not None), None)
        if known is None or (entry.key, entry.sig) != (known.key, known.sig):
            return False
        # The entry has this batch's signature, which no other batch has. So only its batch numbers are wrong.
        message = f"it has wrong batch numbers: it is number {len(self._members)} of a batch of {self._size}"
        self._findings.problem(index, "VERIFICATION_FAILED", message)
        return True

    def _check_whole(self) -> None:
        if len(self._members) < self._size:
            return
        members, self._members = self._members, []
        first, end = members[0].at, members[-1].at + 1
        known = [(member.at, member.entry) for member in members if member.entry is not None]
        if len(known) < len(members):
            message = f"the signature of entries {first} to {end - 1} cannot be checked"
            self._findings.note(first, "VERIFICATION_FAILED", message)
            return
        if bodies_size(entry for _, entry in known) > batch_size_max_bytes:
            self._findings.problem(first, "TOO_LARGE", f"the batch exceeds {batch_size_max_bytes} bytes", end=end)
        self._check_times(known)
        self._check_signature(known, signed_bytes([member.commitment for member in members]))

    def _check_times(self, known: list[tuple[int, Entry]]) -> None:
        usual, _ = Counter(entry.accepted_ms for _, entry in known).most_common(1)[0]
        for index, entry in known:
            if entry.accepted_ms != usual:
                message = "it has another time than its batch"
                self._findings.problem(index, "VERIFICATION_FAILED", message)

    def _check_signature(self, known: list[tuple[int, Entry]], signed: bytes) -> None:
        first, count = known[0][0], len(known)
        pairs = Counter((entry.key, entry.sig) for _, entry in known)
        if len(pairs) == 1:
            ((key, sig),) = pairs
            self._signatures.add(first, count, key, signed, sig)
            return
        for key, sig in pairs:
            if not verify(key, signed, sig):
                continue
            self._signatures.verified += pairs[key, sig]
            for index, entry in known:
                if (entry.key, entry.sig) != (key, sig):
                    message = "it has another key or signature than its batch"
                    self._findings.problem(index, "SIGNATURE_INVALID", message)
            return
        report_bad(self._findings, first, count)
