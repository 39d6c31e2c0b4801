"""Group commit: many callers, a few threads, one synced transaction for all submissions that wait.

Each thread checks (parses, hashes, verifies) submissions in parallel with the others, because libsodium releases the
interpreter lock. A thread that finds no writer admits all ready submissions at once. The next group gathers while one
is synced, so throughput grows with the number of callers and latency stays at about two syncs.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from deedbook.ledger.admission.candidate import CheckedSubmission
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.format.envelope import Submission, decode_submission
from deedbook.ledger.limits import group_commit_events_max, submit_queue_max
from deedbook.ledger.system import traces
from deedbook.ledger.system.metrics import Metrics
from deedbook.ledger.system.resource import Resource

Answer = Future[list[Accepted]]
LoopAnswer = asyncio.Future[list[Accepted]]

_threads = 3  # one writes, two check


class _Job(NamedTuple):
    submission: Submission | bytes
    answer: Answer | LoopAnswer
    began_s: float
    traceparent: str


class Committer(Resource):
    """Admits the submissions of many callers to one log. Close it, or use it in a ``with`` block."""

    def __init__(self, gate: Gate, metrics: Metrics | None = None) -> None:
        """Start the threads. From now on only the committer may use ``gate``. ``metrics`` counts its work."""
        self._gate = gate
        self._metrics = metrics or Metrics()
        self._arrived: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[_Job, CheckedSubmission]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting = 0
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"deedbook-commit-{number}", daemon=True)
            for number in range(_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, submission: Submission | bytes) -> Answer:
        """Return a future. It resolves after the commit, or fails with ``Refused`` or ``Unavailable``.

        Bytes are decoded later, in the thread that checks them. The future can be cancelled until a thread has taken
        the submission; a cancelled submission is never admitted.

        Raises Unavailable: ``BUSY`` when too many submissions wait; ``STORE_UNAVAILABLE`` after ``close``.
        """
        answer: Answer = Future()
        self._take(submission, answer)
        return answer

    def submit_from_loop(self, submission: Submission | bytes) -> LoopAnswer:
        """Like ``submit``, for callers in a running event loop. The callers of one group are woken together."""
        answer: LoopAnswer = asyncio.get_running_loop().create_future()
        self._take(submission, answer)
        return answer

    def close(self) -> None:
        """Finish all submissions, then stop."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for _ in self._threads:
            self._arrived.put(None)
        for thread in self._threads:
            thread.join()

    def _take(self, submission: Submission | bytes, answer: Answer | LoopAnswer) -> None:
        with self._lock:
            if self._is_closed:
                raise Unavailable("STORE_UNAVAILABLE", "the ledger is shutting down")
            is_full = self._waiting >= submit_queue_max
            if not is_full:
                self._waiting += 1
                self._arrived.put(_Job(submission, answer, time.perf_counter(), traces.current.get()))
        if is_full:
            self._metrics.count("refusals", "BUSY")
            raise Unavailable("BUSY", f"{submit_queue_max} submissions are already waiting: try again")
        self._metrics.count("submissions")

    def _work(self) -> None:
        while (job := self._arrived.get()) is not None:
            self._check(job)
            # If a thread adds a job while another one writes, the writer takes the job: it checks again when it is
            # done.
            while not self._ready.empty() and self._writing.acquire(blocking=False):
                try:
                    self._write(self._next_group())
                finally:
                    self._writing.release()

    def _check(self, job: _Job) -> None:
        submission, answer = job.submission, job.answer
        is_wanted = answer.set_running_or_notify_cancel() if isinstance(answer, Future) else not answer.cancelled()
        if not is_wanted:  # the caller gave up while it waited
            with self._lock:
                self._waiting -= 1
            return
        try:
            decoded = decode_submission(submission) if isinstance(submission, bytes) else submission
            self._ready.put((job, check(decoded)))
        except BaseException as error:  # noqa: BLE001 - every error goes to the waiting caller
            self._answer([(job, error)])

    def _next_group(self) -> list[tuple[_Job, CheckedSubmission]]:
        """Return all ready jobs, up to the limit."""
        group: list[tuple[_Job, CheckedSubmission]] = []
        count = 0
        with contextlib.suppress(queue.Empty):
            while count < group_commit_events_max:
                group.append(self._ready.get_nowait())
                count += len(group[-1][1].candidates)
        return group

    def _write(self, group: Sequence[tuple[_Job, CheckedSubmission]]) -> None:
        if not group:
            return
        began_s = time.perf_counter()
        for job, _ in group:
            traces.record("deedbook.check", job.began_s, [job.traceparent])
        try:
            answers = self._gate.admit([checked for _, checked in group])
        except BaseException as error:  # noqa: BLE001 - every error goes to the waiting callers
            self._answer([(job, _own(error)) for job, _ in group])
            return
        self._metrics.observe("commit_seconds", time.perf_counter() - began_s)
        count = sum(len(checked.candidates) for _, checked in group)
        self._metrics.observe("commit_events", count)
        traces.record("deedbook.append", began_s, [job.traceparent for job, _ in group], events=count)
        self._answer([(job, result) for (job, _), result in zip(group, answers, strict=True)])

    def _answer(self, answered: Sequence[tuple[_Job, list[Accepted] | BaseException]]) -> None:
        ended_s = time.perf_counter()
        with self._lock:
            self._waiting -= len(answered)
        self._metrics.observe("submit_seconds", *(ended_s - job.began_s for job, _ in answered))
        in_loops: dict[asyncio.AbstractEventLoop, list[tuple[LoopAnswer, Any]]] = defaultdict(list)
        accepted = 0
        for job, result in answered:
            answer = job.answer
            if not isinstance(result, BaseException):
                accepted += len(result)
                for event in result:
                    traces.remember(event.index, job.traceparent)
            else:
                self._metrics.count("refusals", result.code if isinstance(result, DeedbookError) else "UNEXPECTED")
            if isinstance(answer, Future):
                _resolve(answer, result)
            else:
                in_loops[answer.get_loop()].append((answer, result))
        self._metrics.count("events_accepted", by=accepted)
        for loop, group in in_loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there
                loop.call_soon_threadsafe(_resolve_all, group)


def _own(error: BaseException) -> BaseException:
    """Return a copy of an error for one of several callers, so that they do not share a traceback."""
    return DeedbookError.from_dict(error.to_dict()) if isinstance(error, DeedbookError) else error


def _resolve_all(answered: Sequence[tuple[LoopAnswer, list[Accepted] | BaseException]]) -> None:
    for answer, result in answered:
        if not answer.cancelled():
            _resolve(answer, result)


def _resolve(answer: Answer | LoopAnswer, result: list[Accepted] | BaseException) -> None:
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)
