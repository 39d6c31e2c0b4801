"""Group commit: many callers, a few threads, one synced transaction for all that wait.

Each thread checks (parses, hashes, verifies) what arrived, side by side with the others because libsodium releases the
interpreter lock; who finds that nobody is writing admits all that is ready at once. While one group is being synced the
next one gathers, so throughput grows with the number of callers and latency stays at about two syncs.
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

from deedbook.ledger.admission.check import Checked, check
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.format.envelope import Submission, decode_submission
from deedbook.ledger.limits import group_commit_events_max, submit_queue_max
from deedbook.ledger.system.metrics import Metrics
from deedbook.ledger.system.resource import Resource

Answer = Future[list[Accepted]]
LoopAnswer = asyncio.Future[list[Accepted]]

_threads = 3  # one writes, two check


class _Asked(NamedTuple):
    submission: Submission | bytes
    answer: Answer | LoopAnswer
    began_s: float


class Committer(Resource):
    """Admits submissions of many callers to one log. Close it, or use it in a ``with`` block."""

    def __init__(self, gate: Gate, metrics: Metrics | None = None) -> None:
        """Start the threads; from now on only the committer may use ``gate``. ``metrics`` is where work is counted."""
        self._gate = gate
        self._tally = metrics or Metrics()
        self._arrived: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[_Asked, Checked]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._door = threading.Lock()
        self._waiting = 0
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"deedbook-commit-{number}", daemon=True)
            for number in range(_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, submission: Submission | bytes) -> Answer:
        """Return the future answer; it resolves after the commit, or with ``Refused`` or ``Unavailable``.

        Bytes as they arrived are decoded in the thread that checks them too: nothing of them is looked at here.

        Cancelling it works as long as nothing was done for it, and then nothing ever is. Raises Unavailable: ``BUSY``
        when too many wait already; ``STORE_UNAVAILABLE`` after ``close``.
        """
        answer: Answer = Future()
        self._take(submission, answer)
        return answer

    def submit_from_loop(self, submission: Submission | bytes) -> LoopAnswer:
        """As ``submit``, for callers in a running event loop: those of one group are woken together."""
        answer: LoopAnswer = asyncio.get_running_loop().create_future()
        self._take(submission, answer)
        return answer

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._door:
            if self._is_closed:
                return
            self._is_closed = True
        for _ in self._threads:
            self._arrived.put(None)
        for thread in self._threads:
            thread.join()

    def _take(self, submission: Submission | bytes, answer: Answer | LoopAnswer) -> None:
        with self._door:
            if self._is_closed:
                raise Unavailable("STORE_UNAVAILABLE", "the ledger is shutting down")
            is_full = self._waiting >= submit_queue_max
            if not is_full:
                self._waiting += 1
                self._arrived.put(_Asked(submission, answer, time.perf_counter()))
        if is_full:
            self._tally.count("refusals", "BUSY")
            raise Unavailable("BUSY", f"{submit_queue_max} submissions wait already: try again")
        self._tally.count("submissions")

    def _work(self) -> None:
        while (asked := self._arrived.get()) is not None:
            self._check(asked)
            # Who put something there while another wrote leaves it to that one, who looks again when it is done.
            while not self._ready.empty() and self._writing.acquire(blocking=False):
                try:
                    self._write(self._next_group())
                finally:
                    self._writing.release()

    def _check(self, asked: _Asked) -> None:
        submission, answer, _ = asked
        is_wanted = answer.set_running_or_notify_cancel() if isinstance(answer, Future) else not answer.cancelled()
        if not is_wanted:  # the caller gave up while it waited
            with self._door:
                self._waiting -= 1
            return
        try:
            decoded = decode_submission(submission) if isinstance(submission, bytes) else submission
            self._ready.put((asked, check(decoded)))
        except BaseException as error:  # noqa: BLE001 - whatever happened belongs to the caller who waits
            self._answer([(asked, error)])

    def _next_group(self) -> list[tuple[_Asked, Checked]]:
        """Return all that are ready, up to the limit."""
        group: list[tuple[_Asked, Checked]] = []
        count = 0
        with contextlib.suppress(queue.Empty):
            while count < group_commit_events_max:
                group.append(self._ready.get_nowait())
                count += len(group[-1][1].candidates)
        return group

    def _write(self, group: Sequence[tuple[_Asked, Checked]]) -> None:
        if not group:
            return
        began_s = time.perf_counter()
        try:
            answers = self._gate.admit([checked for _, checked in group])
        except BaseException as error:  # noqa: BLE001 - whatever happened belongs to the caller who waits
            self._answer([(asked, _own(error)) for asked, _ in group])
            return
        self._tally.observe("commit_seconds", time.perf_counter() - began_s)
        self._tally.observe("commit_events", sum(len(checked.candidates) for _, checked in group))
        self._answer([(asked, given) for (asked, _), given in zip(group, answers, strict=True)])

    def _answer(self, answered: Sequence[tuple[_Asked, list[Accepted] | BaseException]]) -> None:
        ended_s = time.perf_counter()
        with self._door:
            self._waiting -= len(answered)
        self._tally.observe("submit_seconds", *(ended_s - asked.began_s for asked, _ in answered))
        in_loops: dict[asyncio.AbstractEventLoop, list[tuple[LoopAnswer, Any]]] = defaultdict(list)
        accepted = 0
        for (_, answer, _), given in answered:
            if not isinstance(given, BaseException):
                accepted += len(given)
            else:
                self._tally.count("refusals", given.code if isinstance(given, DeedbookError) else "UNEXPECTED")
            if isinstance(answer, Future):
                _resolve(answer, given)
            else:
                in_loops[answer.get_loop()].append((answer, given))
        self._tally.count("events_accepted", by=accepted)
        for loop, theirs in in_loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there
                loop.call_soon_threadsafe(_resolve_all, theirs)


def _own(error: BaseException) -> BaseException:
    """Return an error for one of several callers: who raises it must not touch the traceback of another's."""
    return DeedbookError.from_dict(error.to_dict()) if isinstance(error, DeedbookError) else error


def _resolve_all(answered: Sequence[tuple[LoopAnswer, list[Accepted] | BaseException]]) -> None:
    for answer, given in answered:
        if not answer.cancelled():
            _resolve(answer, given)


def _resolve(answer: Answer | LoopAnswer, given: list[Accepted] | BaseException) -> None:
    if isinstance(given, BaseException):
        answer.set_exception(given)
    else:
        answer.set_result(given)
