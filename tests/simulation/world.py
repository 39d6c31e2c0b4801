"""A simulated world with one heap of callbacks. Clocks, delays, losses, pauses and crashes are drawn from a seed.

Programs run unchanged, with their coroutines: a ``Process`` is an event loop whose callbacks are in the world's heap. A
process that was stopped (SIGSTOP) runs its callbacks late, in order, when it continues. A killed process never runs
another line. Time passes only between callbacks, so a simulated minute takes milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from asyncio import events
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.building import GIVEN_MS
from tests.simulation.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

steps_max: Final = 400_000

_Step: TypeAlias = "tuple[float, int, Process, Callable[..., object], tuple[Any, ...]]"


class Violation(AssertionError):
    """An invariant was violated."""


class _Timer:
    """A callback that may be cancelled before its time; asyncio calls this a handle."""

    __slots__ = ("arguments", "call")

    def __init__(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.call, self.arguments = call, arguments

    def run(self) -> None:
        self.call(*self.arguments)

    def cancel(self) -> None:
        self.call, self.arguments = _nothing, ()

    def cancelled(self) -> bool:
        return self.call is _nothing


def _nothing() -> None:
    pass


class Process(asyncio.AbstractEventLoop):
    """A program on a host between its start and its end: its event loop and its clocks."""

    def __init__(self, world: World, host: str) -> None:
        self.world, self.host = world, host
        self.is_alive = True
        self.boot_ms = world.random.randrange(10**6)
        self.stopped_until = 0.0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.threads: list[Thread] = []

    def wall_ms(self) -> int:
        return GIVEN_MS + int((self.world.now + self.world.skew_s.get(self.host, 0.0)) * 1000)

    def monotonic_ms(self) -> int:
        """Return the monotonic time of this process; each process counts from another time."""
        return self.boot_ms + int(self.world.now * 1000)

    def kill(self) -> None:
        self.is_alive = False
        while self.threads:
            self.threads.pop().kill()
        for task in self.tasks:
            with contextlib.suppress(ValueError, RuntimeError):  # the coroutine is running, or waits while it is closed
                task.get_coro().close()  # type: ignore[union-attr]
        for task in self.world.tasks_to_wake(self):
            coroutine: Any = task.get_coro()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # otherwise Python would warn of it later, in any test

    def stop_for(self, seconds: float) -> None:
        self.stopped_until = max(self.stopped_until, self.world.now + seconds)

    def run_task(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.Task(work, loop=self)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if self.is_alive:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, Exception | asyncio.CancelledError):
                self.world.violate(f"a task of {self.host} died of {error!r}", error)
            elif error is not None:
                raise error  # not the simulated program but the test raised it, for example at its time limit

    def time(self) -> float:
        return self.world.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Run a callback after all that are due now. Futures, which pass a context, need no handle."""
        world = self.world
        if context is None:
            return self.call_at(world.now, callback, *args)
        world.count += 1
        heappush(world.heap, (world.now, world.count, self, callback, args))
        return None

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.world.now + delay, callback, *args)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = _Timer(callback, args)
        self.world.add(self, when, timer.run, ())
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self)
        task.add_done_callback(self._look_for_mistakes)
        return task

    def _look_for_mistakes(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), AttributeError | TypeError | LookupError):
            self.world.violate(f"a task of {self.host} died of {error!r}", error)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        return Thread(self, partial(func, *args)).result

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report nothing: the tasks of a killed process cannot finish."""


class World:
    """Everything that exists in the simulation of one seed."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.random = Random(f"world/{seed}")
        self.now = 0.0
        self.skew_s: dict[str, float] = {}
        self.trace: list[str] | None = [] if is_traced else None
        self.violation: Violation | None = None
        self.current = self.nature = Process(self, "nature")
        self.steps = 0
        self.heap: list[_Step] = []
        self.count = 0

    def add(self, process: Process, when: float, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Add a callback of a process to the heap; callbacks with equal times run in the order of their insertion."""
        self.count += 1
        heappush(self.heap, (max(self.now, when), self.count, process, call, arguments))

    def tasks_to_wake(self, process: Process) -> list[asyncio.Task[Any]]:
        """Return the tasks of a process whose next step is in the heap, including tasks that have not started."""
        steps = (getattr(step[3], "__self__", None) for step in self.heap if step[2] is process)
        return [task for task in steps if isinstance(task, asyncio.Task)]

    def later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        self.add(self.nature, self.now + seconds, call, arguments)

    def run(self, until: float) -> None:
        """Run callbacks until a time. Raises Violation."""
        heap, before = self.heap, events._get_running_loop()
        events._set_running_loop(self.current)
        try:
            while heap and heap[0][0] <= until:
                when, _, process, call, arguments = heappop(heap)
                if not process.is_alive:
                    continue
                if process.stopped_until > when:
                    self.add(process, process.stopped_until, call, arguments)
                    continue
                self.now = when
                if process is not self.current:
                    events._set_running_loop(process)
                    self.current = process
                call(*arguments)
                self.steps += 1
                if self.violation is not None:
                    raise self.violation
                if self.steps > steps_max:
                    raise Violation(f"nothing came to rest within {steps_max:,} steps")
            self.now = until
        finally:
            events._set_running_loop(before)

    def end(self) -> None:
        for process in {step[2] for step in self.heap}:
            process.kill()
        self.heap.clear()

    def tell(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:9.3f} s  {who:<8} {what}")

    def violate(self, what: str, cause: BaseException | None = None) -> None:
        """Record that an invariant was violated; the world ends after this step."""
        self.tell("!", what)
        if self.violation is None:
            self.violation = Violation(what)
            self.violation.__cause__ = cause

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability
