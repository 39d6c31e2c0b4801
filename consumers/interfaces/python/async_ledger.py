"""The ledger for programs with an event loop: the methods of ``Ledger``, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

from deedbook.consumers.interfaces.python.ledger import Ledger
from deedbook.consumers.interfaces.python.nouns import AskedQuestion, Decision, Handoff, Noun, Reasoning, Session
from deedbook.consumers.interfaces.python.proxy import AsyncPart, awaited
from deedbook.consumers.interfaces.python.queries import AsyncQueries
from deedbook.consumers.sdk.batch import Batch, collected
from deedbook.consumers.sdk.clients import clients
from deedbook.consumers.sdk.declared import as_types, check_subscribed, own_types
from deedbook.consumers.sdk.kinds import kinds_of
from deedbook.consumers.sdk.ledger import LedgerBase, asking
from deedbook.consumers.sdk.reactions import Subscriber
from deedbook.consumers.sdk.reactor import Handlers, LoopHandlers, Reactor
from deedbook.ledger.client.event_stream import poll_wait_s
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from deedbook.consumers.sdk.kind_names import KindName
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData

    D = TypeVar("D", bound=EventData)

R = TypeVar("R")

threads_max: Final = 32


class AsyncLedger(Subscriber, AsyncQueries, LedgerBase):
    """A ``Ledger`` for programs with an event loop; ``async with`` opens it.

    Each call runs in a thread, at most 32 at a time. A call that is cancelled while it publishes may have published:
    pass ``idem``, so that you can repeat it safely.
    """

    _awaits = True

    def _prepare(self) -> None:
        self._ledger: Ledger | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._running = set[threading.Event]()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the ledger.

        Raises Unavailable: ``STORE_UNAVAILABLE``, ``BUS_UNAVAILABLE``. Refused: ``USAGE`` for a server without an
        agent, or if it is open already; ``KEY_FILE_MISSING``, ``BUS_DENIED``.
        """
        if self._threads is not None:
            raise Refused("USAGE", "this ledger is already open: close it first, or use it as it is")
        self._process = os.getpid()
        self._stop = threading.Event()  # a new event, because the ledger may have been closed before
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="deedbook")
        try:
            await self._in_thread(self._open)
        except BaseException:
            await self.close()
            raise

    def _open(self) -> None:
        self._ledger = Ledger(settings=self.settings, passphrase=self._passphrase)

    async def close(self) -> None:
        """Stop ``run`` and ``follow``, wait for the calls that began, and close the ledger. It can be opened again."""
        self.stop()
        threads, self._threads = self._threads, None
        if threads is None or self._process != os.getpid():
            self._ledger = None  # a fork has neither the threads nor the connection
            return
        # Shielded: a caller that is cancelled here must not leave the log open.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._leave, threads))

    def _leave(self, threads: ThreadPoolExecutor) -> None:
        # A cancelled call continues in its thread, and the log must stay open until it is over. It may be the call that
        # opens the log.
        threads.shutdown()
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def handoff(self, id: str) -> AsyncHandoff:  # noqa: A002 - the word that all use
        """Return a handoff by its id, also one that you are about to create."""
        return AsyncHandoff(self, id)

    def decision(self, id: str) -> AsyncDecision:  # noqa: A002
        """Return a decision by its id, also one that you are about to make."""
        return AsyncDecision(self, id)

    def question(self, id: str) -> AsyncAskedQuestion:  # noqa: A002
        """Return a question about no handoff by its id, also one that you are about to ask."""
        return AsyncAskedQuestion(self, id)

    def reasoning(self, id: str) -> AsyncReasoning:  # noqa: A002
        """Return a reasoning by its id; methods that read also take the ref of a version."""
        return AsyncReasoning(self, id)

    def session(self, id: str) -> AsyncSession:  # noqa: A002
        """Return a session by its id."""
        return AsyncSession(self, id)

    publish = awaited(Ledger.publish)
    publish_from = awaited(Ledger.publish_from)
    publish_drafts = awaited(Ledger.publish_drafts)
    compute = awaited(Ledger.compute)
    index_of = awaited(Ledger.index_of)
    get = awaited(Ledger.get)
    receipt = awaited(Ledger.receipt)
    put_blob = awaited(Ledger.put_blob)
    get_blob = awaited(Ledger.get_blob)
    verify = awaited(Ledger.verify)

    @contextlib.asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Collect the events published in the ``async with`` block, and append them under one signature: all or none.

        The limits and errors are those of ``Ledger.batch``. If the block raises, nothing is published.
        """
        with collected(self._opened()) as batch:
            yield batch
        if drafts := batch.close():
            batch.accepted = await self._call(lambda ledger: ledger.author().emit(*drafts))

    @overload
    def events(self, *kinds: KindName, stream: str | None = None, after: int = -1) -> AsyncIterator[Event[Any]]: ...

    @overload
    def events(
        self, kind: type[D], /, *more: type[D], stream: str | None = None, after: int = -1
    ) -> AsyncIterator[Event[D]]: ...

    async def events(self, *kinds: Any, stream: str | None = None, after: int = -1) -> AsyncIterator[Event[Any]]:
        """Yield the events of ``kinds`` (default: all) that are in the log now, after the index ``after``.

        Kinds are named as for ``Ledger.events``.
        """
        client, names, types = self._opened().client, kinds_of(kinds), own_types(kinds)
        position, size = after + 1, (await self._in_thread(client.head)).size
        while position < size:
            page = await self._in_thread(client.entries, position, kinds=names, stream=stream)
            for index, data in page.entries:
                if index < size:
                    yield as_types(read_event(index, data), types)
            position = page.next_index

    @overload
    def follow(
        self, *kinds: KindName, stream: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event[Any]]: ...

    @overload
    def follow(
        self, kind: type[D], /, *more: type[D], stream: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event[D]]: ...

    async def follow(
        self, *kinds: Any, stream: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event[Any]]:
        """Yield events after the index ``after`` (default: only new ones) as they are appended, until ``stop``.

        Kinds are named as for ``Ledger.events``.
        """
        client, names, stop, types = self._opened().client, kinds_of(kinds), self._stop, own_types(kinds)
        await self._in_thread(check_subscribed, partial(ask, client), kinds)
        position = (await self._in_thread(client.head)).size if after is None else after + 1
        while not stop.is_set():
            try:
                page = await self._in_thread(client.entries, position, kinds=names, stream=stream, wait_s=poll_wait_s)
            except (Refused, Unavailable):
                if not stop.is_set():
                    raise
                return  # another task closed the ledger during the read: that is a stop, too
            for index, data in page.entries:
                yield as_types(read_event(index, data), types)
            position = page.next_index

    async def run(
        self, name: str, *, after: int | None = None, until: int | None = None, store: Path | str | None = None
    ) -> None:
        """Call the functions of ``on``, which may be coroutines, for each event, as ``Ledger.run`` does."""
        self._opened()
        stop, handlers = threading.Event(), LoopHandlers(self._handlers or Handlers())

        def react() -> None:
            client = clients.open(asking(self.settings))
            try:
                with contextlib.closing(self._subscriptions(self.settings.home, name, store)) as subscriptions:
                    check_subscribed(partial(ask, client), self._kinds)
                    reactor = Reactor(client, subscriptions, name, handlers=handlers)
                    if after is not None:
                        reactor.start_at(after + 1)
                    reactor.run_across_outages(stop, until=until)
            finally:
                clients.close(client)

        # The reactor has a thread of its own, because the functions need the other threads for their own calls.
        thread = ThreadPoolExecutor(1, thread_name_prefix="deedbook-reactor")
        reacting = asyncio.get_running_loop().run_in_executor(thread, react)
        thread.shutdown(wait=False)
        self._running.add(stop)
        if self._stop.is_set():
            stop.set()
        try:
            await asyncio.shield(reacting)
        except asyncio.CancelledError:
            stop.set()
            handlers.cancel()
            with contextlib.suppress(DeedbookError):
                await reacting  # so nothing is half done when the caller learns that it ended
            raise
        finally:
            self._running.discard(stop)

    def stop(self) -> None:
        """End ``run`` and ``follow`` within about a second; call it in the loop's own thread."""
        for stop in (self._stop, *self._running):
            stop.set()

    def _opened(self) -> Ledger:
        self._check_process()
        if self._ledger is None or self._threads is None:
            raise Refused("USAGE", "this ledger is not open: use it inside `async with`")
        return self._ledger

    async def _call(self, method: Callable[..., R], *args: Any, **named: Any) -> R:
        return await self._in_thread(method, self._opened(), *args, **named)

    async def _in_thread(self, work: Callable[..., R], *args: Any, **named: Any) -> R:
        if self._threads is None:  # the ledger was closed after the call began
            raise Refused("USAGE", "this ledger is not open: use it inside `async with`")
        # In the caller's context, so that a batch that is open there collects what the call publishes.
        call = partial(copy_context().run, work, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class _AsyncNoun(AsyncPart):
    """The base of the awaited nouns."""

    _noun: ClassVar[type[Noun]]

    def __init__(self, ledger: AsyncLedger, id: str) -> None:  # noqa: A002 - the word that all use
        super().__init__(ledger, lambda opened: self._noun(opened, id))
        self.id = self._noun.id_in(id)
        self.stream = f"{self._noun.family}/{self.id}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


class AsyncHandoff(_AsyncNoun):
    """A ``Handoff`` whose verbs are awaited."""

    _noun = Handoff

    show = awaited(Handoff.show)
    why = awaited(Handoff.why)
    create = awaited(Handoff.create)
    amend = awaited(Handoff.amend)
    approve = awaited(Handoff.approve)
    reject = awaited(Handoff.reject)
    claim = awaited(Handoff.claim)
    check = awaited(Handoff.check)
    ask_waiver = awaited(Handoff.ask_waiver)
    ask = awaited(Handoff.ask)
    answer = awaited(Handoff.answer)
    settle = awaited(Handoff.settle)
    waive = awaited(Handoff.waive)
    log = awaited(Handoff.log)
    release = awaited(Handoff.release)
    block = awaited(Handoff.block)
    unblock = awaited(Handoff.unblock)
    complete = awaited(Handoff.complete)
    verify = awaited(Handoff.verify)
    request_changes = awaited(Handoff.request_changes)
    cancel = awaited(Handoff.cancel)
    supersede = awaited(Handoff.supersede)


class AsyncDecision(_AsyncNoun):
    """A ``Decision`` whose verbs are awaited."""

    _noun = Decision

    show = awaited(Decision.show)
    make = awaited(Decision.make)
    withdraw = awaited(Decision.withdraw)


class AsyncAskedQuestion(_AsyncNoun):
    """An ``AskedQuestion`` whose verbs are awaited."""

    _noun = AskedQuestion

    show = awaited(AskedQuestion.show)
    ask = awaited(AskedQuestion.ask)
    answer = awaited(AskedQuestion.answer)
    settle = awaited(AskedQuestion.settle)


class AsyncReasoning(_AsyncNoun):
    """A ``Reasoning`` whose verbs are awaited."""

    _noun = Reasoning

    show = awaited(Reasoning.show)
    start = awaited(Reasoning.start)
    step = awaited(Reasoning.step)
    assume = awaited(Reasoning.assume)
    settle = awaited(Reasoning.settle)
    retract = awaited(Reasoning.retract)
    conclude = awaited(Reasoning.conclude)
    brief = awaited(Reasoning.brief)
    fetch = awaited(Reasoning.fetch)
    validate = awaited(Reasoning.validate)


class AsyncSession(_AsyncNoun):
    """A ``Session`` whose verbs are awaited."""

    _noun = Session

    show = awaited(Session.show)
    start = awaited(Session.start)
    assess = awaited(Session.assess)
    finding = awaited(Session.finding)
    unknown = awaited(Session.unknown)
    dead_end = awaited(Session.dead_end)
    retract = awaited(Session.retract)
    resolve = awaited(Session.resolve)
    tool = awaited(Session.tool)
    end = awaited(Session.end)
