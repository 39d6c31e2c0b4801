"""The loop of a subscriber: read on from the position, try the effect, commit both, go on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import structlog

from consumers.reactor.subscriptions import DeadLetter, Subscriptions
from ledger.client import follow, read_event
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from ledger.client import Client
    from ledger.events.body import Event

    Effect = Callable[[Event, sqlite3.Connection], None]

log = structlog.get_logger("baton.reactor")

attempts_max: Final = 5
poll_wait_s: Final = 5.0
retry_wait_first_s: Final = 0.2
retry_wait_max_s: Final = 30.0


class Reactor:
    """One subscription: a name, the kinds it asks for, and what it does with each event."""

    def __init__(
        self,
        client: Client,
        subscriptions: Subscriptions,
        name: str,
        *,
        attempts: int = attempts_max,
        retry_wait_s: float = retry_wait_first_s,
        wait_s: float = poll_wait_s,
    ) -> None:
        """Subscribe as ``name`` to what ``client`` reads; a new subscription starts at the head unless told.

        ``wait_s`` is how long one read waits for news, and so how long ``run`` may take to see that it should stop.
        """
        self._client = client
        self._subscriptions = subscriptions
        self._name = name
        self._attempts = attempts
        self._retry_wait_s = retry_wait_s
        self._wait_s = wait_s
        self._effects: dict[str, Effect] = {}

    def on(self, *kinds: str) -> Callable[[Effect], Effect]:
        """Register the function that is called for each event of ``kinds``, in the order of the log."""

        def register(effect: Effect) -> Effect:
            self._effects |= dict.fromkeys(kinds, effect)
            return effect

        return register

    def start_at(self, index: int) -> None:
        """Begin at ``index`` if this subscription is new."""
        if self._subscriptions.position(self._name) is None:
            with self._subscriptions.transaction():
                self._subscriptions.move(self._name, index)

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """React until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the subscription's store cannot be used; call again to go on.
        """
        self.start_at(self._client.head().size)
        position = self._subscriptions.position(self._name) or 0
        if until is not None and position >= until:
            return
        for item in follow(self._client, position, kinds=sorted(self._effects), stop=stop, wait_s=self._wait_s):
            if isinstance(item, int):
                with self._subscriptions.transaction():
                    self._subscriptions.move(self._name, item)
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
            if event.kind not in self._effects:
                raise Refused("USAGE", f"{self._name} does not react to {event.kind}", kind=event.kind)
            self._effects[event.kind](event, db)

    def _handle(self, event: Event, stop: threading.Event) -> bool:
        """Bring about the effect of one event; return whether to go on."""
        wait_s = self._retry_wait_s
        while not stop.is_set():
            attempt = self._subscriptions.count_attempt(self._name, event.index)
            if attempt > self._attempts:
                # The last attempt ended with the process itself: nothing could be said of it any more.
                self._bury(event, "the subscriber died while it handled this event")
                return True
            try:
                with self._subscriptions.transaction() as db:
                    self._effects[event.kind](event, db)
                    self._subscriptions.move(self._name, event.index + 1)
            except Unavailable:
                # Not the event's fault: an outage, however often it is met, must never make it a dead letter.
                self._subscriptions.uncount_attempt(self._name, event.index)
                raise
            except Exception as error:  # noqa: BLE001 - an effect may fail in any way; it is counted and kept
                log.warning(
                    "effect failed", subscription=self._name, index=event.index, attempt=attempt, error=repr(error)
                )
                if attempt >= self._attempts:
                    self._bury(event, f"{type(error).__name__}: {error}")
                    return True
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, retry_wait_max_s)
            else:
                return True
        return False

    def _bury(self, event: Event, reason: str) -> None:
        self._subscriptions.bury(self._name, DeadLetter(event.index, event.id, reason))
        log.error("dead letter", subscription=self._name, index=event.index, id=event.id, error=reason)
