"""Group commit: many callers, one writer thread, one synced transaction for all that wait.

Callers' submissions are checked (parsed, hashed, verified) in worker threads, which run in parallel because libsodium
releases the interpreter lock; then the writer takes all that are ready and admits them at once. While one group is
being synced the next one gathers, so throughput grows with the number of callers and latency stays at about two syncs.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from ledger.admission.check import Checked, check
from ledger.admission.decide import Accepted
from ledger.admission.gate import Gate
from ledger.envelope import Submission, decode_submission
from ledger.errors import BatonError, Unavailable
from ledger.limits import group_commit_events_max, submit_queue_max
from ledger.resource import Resource
from ledger.tally import Tally

Answer = Future[list[Accepted]]
_Item = tuple[Checked, Answer]

_check_threads_max = 2


class Committer(Resource):
    """Admits submissions of many callers to one log. Close it, or use it in a ``with`` block."""

    def __init__(self, gate: Gate, tally: Tally | None = None) -> None:
        """Start the threads; from now on only the committer may use ``gate``. ``tally`` is where work is counted."""
        self._gate = gate
        self._tally = tally or Tally()
        self._ready: queue.Queue[_Item | None] = queue.Queue()
        self._slots = threading.BoundedSemaphore(submit_queue_max)
        self._checkers = ThreadPoolExecutor(_check_threads_max, thread_name_prefix="baton-check")
        self._writer = threading.Thread(target=self._write, name="baton-writer", daemon=True)
        self._writer.start()
        self._is_closed = False

    def submit(self, submission: Submission | bytes) -> Answer:
        """Return the future answer; it resolves after the commit, or with ``Refused`` or ``Unavailable``.

        Bytes as they arrived are decoded in the thread that checks them too: nothing of them is looked at here.

        Cancelling it works as long as nothing was done for it, and then nothing ever is. Raises Unavailable: ``BUSY``
        when too many wait already; ``STORE_UNAVAILABLE`` after ``close``.
        """
        if self._is_closed:
            raise Unavailable("STORE_UNAVAILABLE", "the ledger is shutting down")
        if not self._slots.acquire(blocking=False):
            self._tally.count("refusals", "BUSY")
            raise Unavailable("BUSY", f"{submit_queue_max} submissions wait already: try again")
        self._tally.count("submissions")
        answer: Answer = Future()
        answer.add_done_callback(partial(self._finish, time.perf_counter()))
        try:
            self._checkers.submit(self._check, submission, answer)
        except RuntimeError as error:  # the pool was closed between the look above and here
            answer.cancel()
            raise Unavailable("STORE_UNAVAILABLE", "the ledger is shutting down") from error
        return answer

    def _finish(self, began_s: float, answer: Answer) -> None:
        self._slots.release()
        self._tally.observe("submit_seconds", time.perf_counter() - began_s)
        if answer.cancelled():
            return
        if (error := answer.exception()) is not None:
            self._tally.count("refusals", error.code if isinstance(error, BatonError) else "UNEXPECTED")
        else:
            self._tally.count("events_accepted", by=len(answer.result()))

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        if self._is_closed:
            return
        self._is_closed = True
        self._checkers.shutdown(wait=True)
        self._ready.put(None)
        self._writer.join()

    def _check(self, submission: Submission | bytes, answer: Answer) -> None:
        if not answer.set_running_or_notify_cancel():
            return  # the caller gave up while it waited; from here on nobody can, so the writer's answer always fits
        try:
            decoded = decode_submission(submission) if isinstance(submission, bytes) else submission
            self._ready.put((check(decoded), answer))
        except BaseException as error:  # noqa: BLE001 - whatever happened belongs to the caller who waits
            answer.set_exception(error)

    def _write(self) -> None:
        while (group := self._next_group()) is not None:
            began_s = time.perf_counter()
            try:
                answers = self._gate.admit([checked for checked, _ in group])
            except BaseException as error:  # noqa: BLE001 - nothing was committed: every caller of the group must know
                for _, answer in group:
                    # One of its own for each: callers that raise it must not touch one another's traceback.
                    own = BatonError.from_dict(error.to_dict()) if isinstance(error, BatonError) else error
                    answer.set_exception(own)
                continue
            self._tally.observe("commit_seconds", time.perf_counter() - began_s)
            self._tally.observe("commit_events", sum(len(checked.candidates) for checked, _ in group))
            for (_, answer), given in zip(group, answers, strict=True):
                if isinstance(given, BatonError):
                    answer.set_exception(given)
                else:
                    answer.set_result(given)

    def _next_group(self) -> list[_Item] | None:
        """Wait for one submission, then take all that are ready, up to the limit; None when closed and drained."""
        first = self._ready.get()
        if first is None:
            return None
        group, count = [first], len(first[0].candidates)
        while count < group_commit_events_max:
            try:
                item = self._ready.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._ready.put(None)
                break
            group.append(item)
            count += len(item[0].candidates)
        return group
