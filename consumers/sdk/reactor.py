"""Acting on events: durable subscriptions whose effect happens once. ``Ledger.on`` and ``Ledger.run`` are made of them.

Position, attempts and dead letters live in the subscriber's own SQLite file. What the function writes through ``db``
commits in one transaction with the position: after any crash the effect has happened once or not at all, and a gap
is impossible because the position is an index of the log. Effects outside that file (a command, a webhook) are at least
once; they get the event's id as a stable key. ``AsyncReactor`` is the same for a program with an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from weakref import WeakValueDictionary

import structlog

from consumers.sdk.subscriptions import DeadLetter, Subscriptions
from ledger.client import Client, epoch_in, follow, poll_wait_s, read_epoch, read_event
from ledger.errors import Corrupted, Refused, Unavailable, message_of
from ledger.events.body import Event
from ledger.history import Epoch, Growth, Past, Question, answered

if TYPE_CHECKING:
    from ledger.bus.remote import AsyncRemoteClient

# Called with the event and the connection to the subscriber's store; an AsyncReactor awaits what it returns.
Effect = Callable[[Event, sqlite3.Connection], Any]
EffectT = TypeVar("EffectT", bound=Effect)
Where = Callable[[Event], bool]

log = structlog.get_logger("baton.reactor")

attempts_max: Final = 5
retry_wait_first_s: Final = 0.2
retry_wait_max_s: Final = 30.0


class Handlers:
    """Which functions are called for which events; ``awaits``: they may be coroutine functions."""

    def __init__(self, *, awaits: bool = False) -> None:
        self._awaits = awaits
        self._handlers: list[tuple[frozenset[str], Effect, Where | None]] = []

    @property
    def kinds(self) -> list[str]:
        """The kinds that are asked for, sorted; none of them when a function asks for all."""
        if any(not kinds for kinds, _, _ in self._handlers):
            return []
        return sorted({kind for kinds, _, _ in self._handlers for kind in kinds})

    def on(self, *kinds: str, where: Where | None = None) -> Callable[[EffectT], EffectT]:
        """Register a function for the events of ``kinds`` (default: all) for which ``where`` is true.

        Functions of one event are called in the order of their registration, all in one transaction.
        """

        def register(effect: EffectT) -> EffectT:
            self._check(effect)
            self._handlers.append((frozenset(kinds), effect, where))
            return effect

        return register

    def reacts_to(self, kind: str) -> bool:
        """Whether a function asks for events of ``kind``."""
        return any(not kinds or kind in kinds for kinds, _, _ in self._handlers)

    def effects(self, event: Event) -> list[Effect]:
        """Return the functions to be called for ``event``."""
        return [
            effect
            for kinds, effect, where in self._handlers
            if (not kinds or event.kind in kinds) and (where is None or where(event))
        ]

    def _check(self, effect: Effect) -> None:
        """Refuse what could never be called as it should be, before events are passed over because of it."""
        name = getattr(effect, "__name__", repr(effect))
        if not self._awaits and inspect.iscoroutinefunction(effect):
            raise Refused("USAGE", f"{name} is a coroutine function, and nothing here awaits it: take AsyncLedger")
        try:
            inspect.signature(effect).bind(None, None)
        except TypeError as error:
            message = f"{name} is called with the event and the subscription's database: def {name}(event, db)"
            raise Refused("USAGE", message) from error
        except ValueError:  # a builtin that does not say what it takes
            return


def _check_open(db: sqlite3.Connection) -> None:
    """Refuse what ended its own transaction: its effect would be there without the position."""
    if not db.in_transaction:
        message = "the function ended its transaction: leave out commit(), rollback(), executescript() and `with db:`"
        raise Refused("USAGE", f"{message}; what it wrote is committed with the position")


class _Attempts:
    """How often one subscription may try each event, and what comes of one that failed each time."""

    def __init__(self, subscriptions: Subscriptions, name: str, attempts: int, retry_wait_s: float) -> None:
        self._subscriptions = subscriptions
        self._name = name
        self._attempts = attempts
        self._retry_wait_s = retry_wait_s

    def begin(self, event: Event) -> int | None:
        attempt = self._subscriptions.count_attempt(self._name, event.index)
        if attempt <= self._attempts:
            return attempt
        # The last attempt ended with the process itself: nothing could be said of it any more.
        self._bury(event, "the subscriber died while it handled this event")
        return None

    def failed(self, event: Event, attempt: int, error: BaseException) -> float | None:
        log.warning("effect failed", subscription=self._name, index=event.index, attempt=attempt, error=repr(error))
        if attempt >= self._attempts:
            self._bury(event, f"{type(error).__name__}: {message_of(error)}")
            return None
        return float(min(self._retry_wait_s * 2 ** (attempt - 1), retry_wait_max_s))

    def take_back(self, event: Event) -> None:
        """Forget an attempt: an outage, however often it is met, must never make a dead letter of an event."""
        self._subscriptions.uncount_attempt(self._name, event.index)

    def excuse(self, event: Event, error: Exception) -> None:
        """Raise an error that says that the log is not the one we read: no event's fault, and nothing to go on from."""
        if isinstance(error, Corrupted) and error.code == "HISTORY_CHANGED":
            self.take_back(event)
            raise error

    def _bury(self, event: Event, reason: str) -> None:
        self._subscriptions.bury(self._name, DeadLetter(event.index, event.id, reason))
        log.error("dead letter", subscription=self._name, index=event.index, id=event.id, error=reason)


class _Subscription:
    _awaits: ClassVar = False

    def __init__(
        self,
        client: Any,
        subscriptions: Subscriptions,
        name: str,
        *,
        handlers: Handlers | None = None,
        attempts: int = attempts_max,
        retry_wait_s: float = retry_wait_first_s,
        wait_s: float = poll_wait_s,
    ) -> None:
        """Subscribe as ``name`` to what ``client`` reads; a new subscription starts at the head unless told.

        ``wait_s`` is how long one read waits for news, and so how long ``run`` may take to see that it should stop.
        """
        self._handlers = handlers or Handlers(awaits=self._awaits)
        self.on = self._handlers.on
        self._client = client
        self._subscriptions = subscriptions
        self._name = name
        self._attempts = _Attempts(subscriptions, name, attempts, retry_wait_s)
        self._wait_s = wait_s
        self._past = Past()

    def start_at(self, index: int) -> int:
        """Begin at ``index`` if this subscription is new; return the index it reads next."""
        return self._subscriptions.start_at(self._name, index)

    def _go_on_at(self, index: int) -> None:
        with self._subscriptions.transaction():
            if index != self._past.led_back_to:
                self._subscriptions.check_is_next(self._name, index)
            self._move(index)
        self._past.led_back_to = None

    def _move(self, index: int) -> None:
        self._subscriptions.move(self._name, index)
        self._subscriptions.trust(self._name, self._past)


class Reactor(_Subscription):
    """One subscription: a name, the kinds it asks for, and what it does with each event."""

    _client: Client

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """React until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: ``STORE_IN_USE`` when this subscription is running already; the ledger or the subscription's
                store cannot be used: call again to go on.
        """
        with self._subscriptions.held(self._name):
            position = self._subscriptions.start_at(self._name, self._client.head().size)
            self._past = past = self._subscriptions.past(self._name)
            if until is not None and position >= until:
                # Nothing is left to handle only if the log is still the one that was handled.
                questions = past.meet(self._client.consistency(past.size), position)
                place = answered(questions, self._client.consistency, partial(read_epoch, self._client))
                if place == position:
                    return
                self._go_on_at(position := place)
            kinds, wait_s = self._handlers.kinds, self._wait_s
            for item in follow(self._client, position, kinds=kinds, stop=stop, wait_s=wait_s, past=past):
                if isinstance(item, int):
                    self._go_on_at(item)
                    if until is not None and item >= until:
                        return
                elif not self._handle(item, stop):
                    return

    def retry(self, index: int) -> None:
        """Try the effect of a dead letter again; when it succeeds, it is forgotten in the same transaction.

        Raises:
            Refused: ``NOT_FOUND``; ``USAGE`` when this subscription does not ask for its kind.
            Exception: whatever the effect raises.
        """
        event = read_event(index, self._client.entry(index))
        with self._subscriptions.transaction() as db:
            self._subscriptions.unbury(self._name, index)
            if not self._handlers.reacts_to(event.kind):
                raise Refused("USAGE", f"{self._name} does not react to {event.kind}", kind=event.kind)
            for effect in self._handlers.effects(event):
                effect(event, db)
            _check_open(db)

    def _handle(self, event: Event, stop: threading.Event) -> bool:
        while not stop.is_set():
            attempt = self._attempts.begin(event)
            if attempt is None:
                return True
            try:
                with self._subscriptions.transaction() as db:
                    self._subscriptions.check_is_next(self._name, event.index)
                    for effect in self._handlers.effects(event):
                        effect(event, db)
                    _check_open(db)
                    # If we crash before the commit, neither effect nor position is there, and the event comes again.
                    self._move(event.index + 1)
            except (Unavailable, KeyboardInterrupt):
                self._attempts.take_back(event)  # an outage, or somebody at the keyboard: not the event's fault
                raise
            except Exception as error:  # noqa: BLE001 - an effect may fail in any way; it is counted and kept
                if stop.is_set():
                    self._attempts.take_back(event)  # cut short by whoever stops us: not the event's fault
                    return False
                self._attempts.excuse(event, error)
                wait_s = self._attempts.failed(event, attempt, error)
                if wait_s is None:
                    return True
                stop.wait(wait_s)
            else:
                return True
        return False


class AsyncReactor(_Subscription):
    """A ``Reactor`` on an event loop: functions may be coroutines, and cancelling ``run`` ends it.

    The store's transactions run on the loop itself: each takes a few milliseconds, and one that ran in a thread could
    begin after its task was cancelled, and stay open.
    """

    _client: AsyncRemoteClient  # or a local client in threads, which has the same calls
    _awaits = True

    async def run(self, stop: asyncio.Event, *, start: int | None = None, until: int | None = None) -> None:
        """React until ``stop`` is set, or until everything before index ``until`` was handled.

        A subscription that is new begins at ``start`` (default: where it was told, else at the head).

        Raises:
            Unavailable: as from ``Reactor.run``.
        """
        turn = _turn_at(self._subscriptions.path)
        with self._subscriptions.held(self._name):
            if start is None:
                start = (await self._client.head()).size
            async with turn:
                position = self._subscriptions.start_at(self._name, start)
            self._past = past = self._subscriptions.past(self._name)
            if until is not None and position >= until:
                # Nothing is left to handle only if the log is still the one that was handled.
                growth = await self._client.consistency(past.size)
                place = await self._answered(past.meet(growth, position))
                if place != position:
                    position = place
                    async with turn:
                        self._go_on_at(position)
            while not stop.is_set() and (until is None or position < until):
                page = await self._client.entries(
                    position, kinds=self._handlers.kinds, wait_s=self._wait_s, old_size=past.size
                )
                place = await self._answered(past.meet(page.growth, position))
                if place != position:
                    position = place
                    async with turn:
                        self._go_on_at(position)
                    continue
                for index, data in page.entries:
                    if not await self._handle(read_event(index, data), turn, stop):
                        return
                if page.next_index != position:
                    position = page.next_index
                    async with turn:
                        self._go_on_at(position)

    async def _answered(self, questions: Generator[Question, Any, int]) -> int:
        """Return what comes of the questions that a past asks of the log, as ``history.answered`` does."""
        answer: Growth | Epoch | None = None
        while True:
            try:
                question = questions.send(answer)
            except StopIteration as end:
                return int(end.value)
            if isinstance(question, int):
                answer = await self._client.consistency(question)
            else:
                index = await self._client.index_of("ledger", question)
                answer = epoch_in(index, b"" if index is None else await self._client.entry(index), question)

    async def _handle(self, event: Event, turn: asyncio.Lock, stop: asyncio.Event) -> bool:
        while not stop.is_set():
            async with turn:
                wait_s = await self._attempt(event)
            if wait_s is None:
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_s)
        return False

    async def _attempt(self, event: Event) -> float | None:
        """Try the effect once; return None when the event is done with, else the seconds until it is tried again."""
        attempt = self._attempts.begin(event)
        if attempt is None:
            return None
        try:
            with self._subscriptions.transaction() as db:
                self._subscriptions.check_is_next(self._name, event.index)
                for effect in self._handlers.effects(event):
                    result = effect(event, db)
                    if inspect.isawaitable(result):
                        await result
                _check_open(db)
                self._move(event.index + 1)
        except Unavailable:
            self._attempts.take_back(event)
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._attempts.take_back(event)  # whoever ends the program does not count against the event
                raise
            # Something that the effect waited for was cancelled, not we: to end here would be to stop unseen.
            return self._attempts.failed(event, attempt, error)
        except Exception as error:  # noqa: BLE001 - an effect may fail in any way; it is counted and kept
            self._attempts.excuse(event, error)
            return self._attempts.failed(event, attempt, error)
        return None


_turns: Final[WeakValueDictionary[tuple[int, Path], asyncio.Lock]] = WeakValueDictionary()


def _turn_at(path: Path) -> asyncio.Lock:
    """Return what the subscriptions of one file and one event loop take turns by.

    While a coroutine is awaited in a transaction, another transaction of the file would block the loop, and so wait for
    what only the loop can end.
    """
    return _turns.setdefault((id(asyncio.get_running_loop()), path), asyncio.Lock())
