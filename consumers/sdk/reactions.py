"""Functions that ``run`` calls with events; what they write to the store happens once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, overload

from deedbook.consumers.sdk.declared import as_types, check_subscribed, own_types
from deedbook.consumers.sdk.kinds import kinds_of
from deedbook.consumers.sdk.ledger import OpenLedger
from deedbook.consumers.sdk.reactor import Handlers, Reactor
from deedbook.consumers.sdk.subscription_store import SubscriptionStore
from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from deedbook.consumers.sdk.kind_names import KindName
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData

    D = TypeVar("D", bound=EventData)
    Database = TypeVar("Database")
    Result = TypeVar("Result")

    class Register(Protocol[D]):
        """Registers a function that takes events whose data are of the type ``D``."""

        def __call__(
            self, function: Callable[[Event[D], Database], Result], /
        ) -> Callable[[Event[D], Database], Result]:
            """Register the function, and return it."""


class Subscriber:
    """The base of ledgers that call functions with events: the functions that ``on`` registers."""

    _awaits: ClassVar = False
    _handlers: Handlers | None = None
    _kinds: tuple[Any, ...] = ()

    @overload
    def on(self, *kinds: KindName, where: Callable[[Event[Any]], bool] | None = None) -> Register[Any]: ...

    @overload
    def on(self, kind: type[D], /, *more: type[D], where: Callable[[Event[D]], bool] | None = None) -> Register[D]: ...

    def on(self, *kinds: Any, where: Callable[[Event[Any]], bool] | None = None) -> Any:
        """Register a function that ``run`` calls with events of ``kinds`` (default: all) for which ``where`` is true.

        A kind is named by its name (``"handoff.completed"``) or by the class of its data (``HandoffCompleted``). With
        the class, the function gets an ``Event[HandoffCompleted]``, and a type checker knows the fields of its data.

        The function gets the event and the connection to the subscription's store: a SQLite file, or a PostgreSQL
        database (psycopg). The function's writes there commit in one transaction with the position, so they happen
        once, even if the process is killed. Effects elsewhere happen at least once; ``event.id`` is the same each time.
        Raises Refused: ``UNKNOWN_KIND``; ``USAGE`` for a function without these two parameters, or a coroutine function
        that this ledger cannot await.
        """
        names = kinds_of(kinds)
        if self._handlers is None:
            self._handlers = Handlers(awaits=self._awaits)
        self._kinds += kinds
        types = own_types(kinds)
        return self._handlers.on(*names, where=where, read=partial(as_types, types=types) if types else None)

    def _subscriptions(self, folder: Path, name: str, store: Path | str | None) -> SubscriptionStore:
        """Return the store of a subscription; by default it is a file in ``folder``, the ledger's folder."""
        if self._handlers is None:
            raise Refused("USAGE", 'no function is registered: add one with @ledger.on("handoff.completed") first')
        is_text = not any("\ud800" <= sign <= "\udfff" for sign in name)
        if not is_text or (store is None and (not name or name.startswith(".") or "/" in name or "\0" in name)):
            message = f"{name!r} cannot name a subscription, because a file gets that name: use letters and digits"
            raise Refused("USAGE", message)
        return open_subscriptions(folder / "subscribers" / f"{name}.db" if store is None else store)


class ReactingLedger(Subscriber, OpenLedger):
    """A ledger that also calls functions with events."""

    def run(
        self, name: str, *, after: int | None = None, until: int | None = None, store: Path | str | None = None
    ) -> None:
        """Call the functions of ``on`` for each event, until ``stop``; the position is stored under ``name``.

        The first run of a name begins after the index ``after`` (default: at the log's end; -1: at its beginning). Each
        later run continues at the stored position. With ``until``, the run ends when all events before that index were
        handled. ``store`` is the SQLite file of the subscription (default: a file in the ledger's folder), or a
        PostgreSQL database as ``postgresql://USER@HOST/DATABASE``, so that any machine can continue. If a function
        raises five times for an event, the event becomes a dead letter, and the next event follows. While the server is
        gone, the run waits; with ``until``, it raises ``BUS_UNAVAILABLE``. A kind that nobody has declared yet is
        logged as a warning. Raises Refused: ``USAGE`` if no function is registered; ``INVALID_FIELD`` for an
        ``OwnEvent`` that has other fields than its schema. Unavailable: ``STORE_IN_USE`` if ``name`` is already
        running; the ledger or the store cannot be read: run it again.
        """
        with contextlib.closing(self._subscriptions(self.settings.home, name, store)) as subscriptions:
            check_subscribed(partial(ask, self.client), self._kinds)
            reactor = Reactor(self.client, subscriptions, name, handlers=self._handlers)
            if after is not None:
                reactor.start_at(after + 1)
            try:
                reactor.run_across_outages(self._stop, until=until)
            except (Refused, Unavailable):
                # No client: another thread closed the ledger during the read. Then the run ends without an error.
                if self._client is not None:
                    raise
