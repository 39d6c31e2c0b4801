"""A thread of a process that may wait for its event loop: it runs only while the world stands still for it.

The gate holds its write transaction while it publishes, in a thread that waits for a coroutine of the loop. Here the
thread and the world take turns, so that what happens is in the same order every time.
"""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from tests.simulation.world import Process


_pool: Final = concurrent.futures.ThreadPoolExecutor(64, thread_name_prefix="simulated")


class Killed(BaseException):
    """The process ended here."""


class Thread:
    """One call in a thread; ``result`` is its future."""

    _own: ClassVar = threading.local()

    def __init__(self, process: Process, call: Callable[[], Any]) -> None:
        self._process, self._call = process, call
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._answer: asyncio.Task[Any] | None = None
        self._is_over = False
        self._outcome: Any = None
        self._error: BaseException | None = None
        self.result: asyncio.Future[Any] = process.create_future()
        process.threads.append(self)
        _pool.submit(self._run)
        self._turn()

    @classmethod
    def current(cls) -> Thread:
        thread: Thread = cls._own.thread
        return thread

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Called in the thread: have the loop do something, and return what comes of it."""
        self._asked = work
        self._back.release()
        self._go.acquire()
        if self._answer is None:
            work.close()
            raise Killed
        if self._answer.cancelled():
            raise concurrent.futures.CancelledError
        return self._answer.result()

    def kill(self) -> None:
        self._answer = None
        while not self._is_over:
            self._go.release()
            self._back.acquire()

    def _run(self) -> None:
        self._own.thread = self
        self._go.acquire()
        try:
            self._outcome = self._call()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the result
            self._error = error
        self._is_over = True
        self._back.release()

    def _turn(self) -> None:
        self._go.release()
        self._back.acquire()
        if not self._is_over:
            assert self._asked is not None
            task = self._process.create_task(self._asked)
            task.add_done_callback(self._answered)
            return
        self._process.threads.remove(self)
        if self.result.cancelled():
            return
        if self._error is not None:
            self.result.set_exception(self._error)
        else:
            self.result.set_result(self._outcome)

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self._answer = task
        self._turn()


class Outcome:
    """What ``asyncio.run_coroutine_threadsafe`` returns to a thread."""

    def __init__(self, work: Coroutine[Any, Any, Any], _loop: object) -> None:
        self._work = work

    def result(self) -> Any:
        return Thread.current().wait_for(self._work)
