"""Functions that ``run`` calls with events; what they write to the store happens once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.ledger import Ledger, LedgerBase
from deedbook.consumers.sdk.reactor import EffectT, Handlers, Reactor, Where
from deedbook.consumers.sdk.subscription_store import SubscriptionStore
from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.ledger.errors import Refused, Unavailable


class ReactingBase(LedgerBase):
    """The base of reacting ledgers: functions that ``on`` registers, and the store of positions."""

    _awaits: ClassVar = False
    _handlers: Handlers | None = None

    def on(self, *kinds: str, where: Where | None = None) -> Callable[[EffectT], EffectT]:
        """Register a function that ``run`` calls with events of ``kinds`` (default: all) for which ``where`` is true.

        The function gets the event and the connection to the subscription's store: a SQLite file, or a PostgreSQL
        database (psycopg). Its writes there commit in one transaction with the position, so they happen once, even if
        the process is killed. Its effects elsewhere happen at least once; ``event.id`` is the same each time. Raises
        Refused: ``UNKNOWN_KIND``; ``USAGE`` for a function without these two parameters, or a coroutine function that
        this ledger cannot await.
        """
        check_kinds(kinds)
        if self._handlers is None:
            self._handlers = Handlers(awaits=self._awaits)
        return self._handlers.on(*kinds, where=where)

    def _subscriptions(self, name: str, store: Path | str | None) -> SubscriptionStore:
        if self._handlers is None:
            raise Refused("USAGE", 'no function is registered: add one with @ledger.on("handoff.completed") first')
        is_text = not any("\ud800" <= sign <= "\udfff" for sign in name)
        if not is_text or (store is None and (not name or name.startswith(".") or "/" in name or "\0" in name)):
            message = f"{name!r} cannot name a subscription, because a file gets that name: use letters and digits"
            raise Refused("USAGE", message)
        return open_subscriptions(self.settings.home / "subscribers" / f"{name}.db" if store is None else store)


class ReactingLedger(ReactingBase, Ledger):
    """A ledger that also calls functions with events."""

    def run(
        self, name: str, *, after: int | None = None, until: int | None = None, store: Path | str | None = None
    ) -> None:
        """Call the functions of ``on`` for each event, until ``stop``; the position is stored under ``name``.

        The first run of a name begins after the index ``after`` (default: the log's end; -1: its beginning); each later
        run continues at the stored position. With ``until`` it ends when all events before that index were handled.
        ``store`` is the SQLite file of the subscription (default: one in the ledger's folder), or a PostgreSQL database
        as ``postgresql://USER@HOST/DATABASE``; then any machine can continue. An event whose function raises five times
        becomes a dead letter, and the next event follows. Raises Refused: ``USAGE`` if no function is registered.
        Unavailable: ``STORE_IN_USE`` if ``name`` is already running; the ledger cannot be read: run it again.
        """
        with contextlib.closing(self._subscriptions(name, store)) as subscriptions:
            reactor = Reactor(self.client, subscriptions, name, handlers=self._handlers)
            if after is not None:
                reactor.start_at(after + 1)
            try:
                reactor.run(self._stop, until=until)
            except (Refused, Unavailable):
                if self._client is not None:  # else another thread closed the ledger during the read: a stop, too
                    raise
