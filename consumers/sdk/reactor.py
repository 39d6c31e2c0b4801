"""Durable subscriptions, on which ``Ledger.on`` and ``Ledger.run`` are built: functions that react to events.

Position, attempts and dead letters are in the subscriber's own store: a SQLite file, or PostgreSQL. The writes of a
function through ``db`` commit in one transaction with the position. So after any crash they have happened once or not
at all, and no event is skipped, because the position is an index of the log. Effects elsewhere (a command, a webhook)
happen at least once, with the event's id as a stable key. If a program has an event loop, its functions run on that
loop and the reactor in a thread, so that no transaction makes the loop wait for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from deedbook.consumers.sdk.subscription_store import DeadLetter, SubscriptionStore
from deedbook.ledger.client.client import Client, read_reset
from deedbook.ledger.client.event_stream import follow, poll_wait_s
from deedbook.ledger.errors import Corrupted, Refused, Unavailable, message_of
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.trust.history import HeadHistory, answer_questions

# Called with the event and the connection to the subscriber's store (sqlite3 or psycopg); a loop awaits its result.
Effect = Callable[[Event, Any], Any]
EffectT = TypeVar("EffectT", bound=Effect)
Where = Callable[[Event], bool]
Read = Callable[[Event], Event]

log = structlog.get_logger("deedbook.reactor")

attempts_max: Final = 5
retry_wait_first_s: Final = 0.2
retry_wait_max_s: Final = 30.0
server_wait_s: Final = 1.0


def _reading(effect: Effect, where: Where | None, read: Read | None) -> tuple[Effect, Where | None]:
    """Return functions that get the result of ``read`` for an event; without ``read``, return them unchanged."""
    if read is None:
        return effect, where
    return lambda event, db: effect(read(event), db), None if where is None else lambda event: where(read(event))


class Handlers:
    """The functions to call for events. With ``awaits`` they may be coroutine functions."""

    def __init__(self, *, awaits: bool = False) -> None:
        self._awaits = awaits
        self._handlers: list[tuple[frozenset[str], Effect, Where | None]] = []

    @property
    def kinds(self) -> list[str]:
        """The sorted kinds to subscribe to; empty if some function takes all kinds."""
        if any(not kinds for kinds, _, _ in self._handlers):
            return []
        return sorted({kind for kinds, _, _ in self._handlers for kind in kinds})

    def on(self, *kinds: str, where: Where | None = None, read: Read | None = None) -> Callable[[EffectT], EffectT]:
        """Register a function for events of ``kinds`` (default: all) for which ``where`` is true; they run in order.

        The function and ``where`` get what ``read`` makes of the event.
        """

        def register(effect: EffectT) -> EffectT:
            self._check(effect)
            self._handlers.append((frozenset(kinds), *_reading(effect, where, read)))
            return effect

        return register

    def reacts_to(self, kind: str) -> bool:
        """Whether a function takes events of ``kind``."""
        return any(not kinds or kind in kinds for kinds, _, _ in self._handlers)

    def effects(self, event: Event) -> list[Effect]:
        """Return the functions to call with ``event``."""
        return [
            effect
            for kinds, effect, where in self._handlers
            if (not kinds or event.kind in kinds) and (where is None or where(event))
        ]

    def _check(self, effect: Effect) -> None:
        """Refuse a function that could not be called, before it makes dead letters of events."""
        name = getattr(effect, "__name__", repr(effect))
        if not self._awaits and inspect.iscoroutinefunction(effect):
            raise Refused("USAGE", f"{name} is a coroutine function, and this ledger awaits none: use AsyncLedger")
        try:
            inspect.signature(effect).bind(None, None)
        except TypeError as error:
            message = f"{name} must take the event and the subscription's database: def {name}(event, db)"
            raise Refused("USAGE", message) from error
        except ValueError:  # a builtin without a signature
            return


class LoopHandlers(Handlers):
    """Functions that run on a program's event loop, while a reactor in a thread waits for them."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers._handlers  # noqa: SLF001 - an instance of the base class
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._is_over = False

    def effects(self, event: Event) -> list[Effect]:
        """Return functions that let the event loop call the registered functions for ``event``."""
        return [self._wait]

    def cancel(self) -> None:
        """Cancel the function that is running, and call no others."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def _wait(self, event: Event, db: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._react(event, db), self._loop).result()

    async def _react(self, event: Event, db: Any) -> None:
        self._task = asyncio.current_task()
        if self._is_over:
            raise asyncio.CancelledError
        for effect in super().effects(event):
            result = effect(event, db)
            if inspect.isawaitable(result):
                await result


def log_outage(news: Unavailable | int) -> None:
    """Log that the server is gone (an error), or back (the log's size)."""
    if isinstance(news, Unavailable):
        log.warning("server is gone", error=news.message)
    else:
        log.info("server is back", entries=news)


def wait_for_server(client: Client, stop: threading.Event, tell: Callable[[Unavailable | int], None]) -> None:
    """Return when the server answers again, after ``tell`` got the log's size, or when ``stop`` is set."""
    while not stop.wait(server_wait_s):
        with contextlib.suppress(Unavailable):
            tell(client.head().size)
            return


class Reactor:
    """One subscription: a name, and the functions that it calls with events."""

    def __init__(
        self,
        client: Client,
        subscriptions: SubscriptionStore,
        name: str,
        *,
        handlers: Handlers | None = None,
        attempts: int = attempts_max,
        retry_wait_s: float = retry_wait_first_s,
        wait_s: float = poll_wait_s,
    ) -> None:
        """Subscribe as ``name`` to the log of ``client``; a new subscription starts at the log's end (``start_at``).

        ``wait_s`` limits how long one read waits for new entries, and so how long ``run`` takes to stop.
        """
        self._handlers = handlers or Handlers()
        self.on = self._handlers.on
        self._client = client
        self._subscriptions = subscriptions
        self._name = name
        self._attempts_max = attempts
        self._retry_wait_s = retry_wait_s
        self._wait_s = wait_s
        self._past = HeadHistory()
        self._moved_to = -1

    def start_at(self, index: int) -> int:
        """Start a new subscription at ``index``; return the index to read next. Raises Refused: ``WRONG_LEDGER``."""
        return self._subscriptions.start_at(self._name, index, self._client.ledger)

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """React until ``stop`` is set, or until all events before the index ``until`` were handled.

        Raises Unavailable: ``STORE_IN_USE`` if this subscription is already running; the ledger or the store cannot be
        used: call it again to continue.
        """
        with self._subscriptions.held(self._name):
            position = self.start_at(self._client.head().size)
            self._past = past = self._subscriptions.past(self._name)
            self._moved_to = -1
            if until is not None and position >= until:
                # Nothing is left to handle, unless the log was reset to another history since.
                questions = past.extend(self._client.consistency(past.size), position)
                place = answer_questions(questions, self._client.consistency, partial(read_reset, self._client))
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

    def run_across_outages(
        self, stop: threading.Event, *, until: int | None = None, tell: Callable[[Unavailable | int], None] = log_outage
    ) -> None:
        """As ``run``, but without ``until`` wait while the server is gone, because servers are restarted.

        ``tell`` gets the error with which an outage began, and at its end the log's size.
        """
        while not stop.is_set():
            try:
                self.run(stop, until=until)
            except Unavailable as error:
                if error.code != "BUS_UNAVAILABLE" or until is not None:
                    raise
                tell(error)
            else:
                return
            wait_for_server(self._client, stop, tell)

    def retry(self, index: int) -> None:
        """Call the functions with a dead letter again; if they succeed, delete it in one transaction.

        Raises Refused: ``NOT_FOUND``; ``USAGE`` if this subscription does not take its kind. Exception: that of a
        function.
        """
        event = read_event(index, self._client.entry(index))
        with self._subscriptions.transaction() as db:
            self._subscriptions.unbury(self._name, index)
            if not self._handlers.reacts_to(event.kind):
                raise Refused("USAGE", f"{self._name} does not react to {event.kind}", kind=event.kind)
            for effect in self._handlers.effects(event):
                effect(event, db)
            self._subscriptions.check_open()

    def _go_on_at(self, index: int) -> None:
        if index == self._moved_to and self._past.reset_position is None:
            return  # already committed, with the effect of the event before it
        with self._subscriptions.transaction():
            if index != self._past.reset_position:
                self._subscriptions.check_is_next(self._name, index)
            self._move(index)
        self._past.reset_position = None

    def _move(self, index: int) -> None:
        self._subscriptions.move(self._name, index)
        self._subscriptions.trust(self._name, self._past)

    def _handle(self, event: Event, stop: threading.Event) -> bool:
        while not stop.is_set():
            attempt = self._subscriptions.count_attempt(self._name, event.index)
            if attempt > self._attempts_max:
                # The process died in the last attempt, so nothing recorded the reason.
                self._bury(event, "the subscriber died while it handled this event")
                return True
            try:
                with self._subscriptions.transaction() as db:
                    self._subscriptions.check_is_next(self._name, event.index)
                    for effect in self._handlers.effects(event):
                        effect(event, db)
                    self._subscriptions.check_open()
                    # If we crash before the commit, neither effect nor position is stored: the event is handled again.
                    self._move(event.index + 1)
            except (Unavailable, KeyboardInterrupt):
                self._take_back(event)  # an outage or ^C is not the event's fault
                raise
            except Exception as error:
                if stop.is_set():
                    self._take_back(event)  # the stop interrupted it, which is not the event's fault
                    return False
                if isinstance(error, Corrupted) and error.code == "HISTORY_CHANGED":
                    self._take_back(event)  # this is another log: there is nothing to continue
                    raise
                about = {"subscription": self._name, "index": event.index, "attempt": attempt}
                log.warning("effect failed", **about, error=repr(error))
                if attempt == self._attempts_max:
                    self._bury(event, f"{type(error).__name__}: {message_of(error)}")
                    return True
                stop.wait(min(self._retry_wait_s * 2 ** (attempt - 1), retry_wait_max_s))
            else:
                self._moved_to = event.index + 1
                return True
        return False

    def _take_back(self, event: Event) -> None:
        """Uncount an attempt, because no number of outages may make an event a dead letter."""
        self._subscriptions.uncount_attempt(self._name, event.index)

    def _bury(self, event: Event, reason: str) -> None:
        self._subscriptions.bury(self._name, DeadLetter(event.index, event.id, reason))
        log.error("dead letter", subscription=self._name, index=event.index, id=event.id, error=reason)
