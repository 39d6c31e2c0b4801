"""A thread of a simulated process, which may wait for the process's event loop; the world pauses while it runs.

The gate publishes within its write transaction, in a thread that waits for a coroutine of the event loop. Here the
thread and the world take turns, so that everything happens in the same order each time.
"""

from __future__ import annotations

import concurrent.futures
import threading
from _thread import allocate_lock, start_new_thread
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from tests.simulation.world import Process


class Killed(BaseException):
    """The process was killed at this point."""


class _Worker:
    """A thread of the operating system that makes calls, one after the other; locks hand turns over."""

    _idle: ClassVar[list[_Worker]] = []

    def __init__(self) -> None:
        self.go, self.back = allocate_lock(), allocate_lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] = _nothing
        start_new_thread(self._run, ())

    @classmethod
    def take(cls) -> _Worker:
        return cls._idle.pop() if cls._idle else cls()

    def turn(self) -> None:
        """Let the thread run until it waits or its call returns."""
        self.go.release()
        self.back.acquire()

    def wait(self) -> None:
        """Let the world run until the thread's next turn. Called in the thread."""
        self.back.release()
        self.go.acquire()

    def _run(self) -> None:
        self.go.acquire()
        while True:
            self.work()
            self._idle.append(self)
            self.wait()


def _nothing() -> None:
    pass


class Thread:
    """A call in a thread; ``result`` is the future of its result."""

    _own: ClassVar = threading.local()

    def __init__(self, process: Process, call: Callable[[], Any]) -> None:
        self._process, self._call = process, call
        self._worker = _Worker.take()
        self._worker.work = self._run
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._answer: asyncio.Task[Any] | None = None
        self._is_over = False
        self._outcome: Any = None
        self._error: BaseException | None = None
        self.result: asyncio.Future[Any] = process.create_future()
        process.threads.append(self)
        self._turn()

    @classmethod
    def current(cls) -> Thread:
        thread: Thread = cls._own.thread
        return thread

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the event loop, and return its result. Called in the thread."""
        self._asked = work
        self._worker.wait()
        if self._answer is None:
            work.close()
            raise Killed
        if self._answer.cancelled():
            raise concurrent.futures.CancelledError
        return self._answer.result()

    def kill(self) -> None:
        self._answer = None
        while not self._is_over:
            self._worker.turn()

    def _run(self) -> None:
        self._own.thread = self
        try:
            self._outcome = self._call()
        except BaseException as error:  # noqa: BLE001 - the awaiting coroutine gets it
            self._error = error
        self._is_over = True

    def _turn(self) -> None:
        self._worker.turn()
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
    """A double of the future that ``asyncio.run_coroutine_threadsafe`` returns."""

    def __init__(self, work: Coroutine[Any, Any, Any], _loop: object) -> None:
        self._work = work

    def result(self) -> Any:
        return Thread.current().wait_for(self._work)
