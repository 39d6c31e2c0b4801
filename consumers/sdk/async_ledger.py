"""The ledger for programs with an event loop: the names of ``Ledger``, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from deedbook.consumers.sdk.batch import Batch, collected, drafts_of, present_batch
from deedbook.consumers.sdk.clients import clients
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.ledger import asking, given, index_in, typed
from deedbook.consumers.sdk.reactions import ReactingBase
from deedbook.consumers.sdk.reactor import Handlers, LoopHandlers, Reactor
from deedbook.consumers.sdk.receipts import take
from deedbook.ledger.client.client import Client, When
from deedbook.ledger.client.event_stream import poll_wait_s
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.checked import ask
from deedbook.projections.views.registry import CHECKED

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.author import Author, Draft
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.proof.policy import Policy
    from deedbook.ledger.proof.receipt import Receipt

T = TypeVar("T")

threads_max: Final = 8


class AsyncLedger(ReactingBase):
    """A ``Ledger`` for programs with an event loop; ``async with`` opens it.

    Requests to a server run on the loop itself. A ledger in a folder is read and written in threads. A call that is
    cancelled while it publishes may have published: pass ``idem``, so that you can repeat it safely.
    """

    _awaits = True

    def _prepare(self) -> None:
        self._client: Any = None  # an AsyncRemoteClient, or a local client in threads
        self._threads: ThreadPoolExecutor | None = None
        self._beside: Client | None = None
        self._opening = threading.Lock()
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
        settings = asking(self.settings)
        if settings.server is not None and settings.agent is None:
            raise Refused("USAGE", "a server needs to know the agent: pass agent=NAME, or set DEEDBOOK_AGENT")
        self._process = os.getpid()
        self._stop = threading.Event()  # a new event, because the ledger may have been closed before
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="deedbook")
        try:
            if settings.server is None:
                self._client = _Threaded(await self._in_thread(self._client_beside), self._in_thread)
            else:
                self._client = _remote_client(settings)
                await self._client.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop ``run`` and ``follow``, wait for calls in threads, and close the ledger. It can be opened again."""
        self.stop()
        client, self._client = self._client, None
        threads, self._threads = self._threads, None
        if self._process != os.getpid():
            return  # a fork has neither the threads nor the connection
        try:
            if client is not None:
                await client.close()
        finally:
            if threads is not None:
                # Shielded: a caller that is cancelled here must not leave the log open.
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._leave, threads))

    def _leave(self, threads: ThreadPoolExecutor) -> None:
        # A cancelled call continues in its thread. The log must stay open until that call is over; the call may even be
        # the one that opens it.
        threads.shutdown()
        with self._opening:
            beside, self._beside = self._beside, None
        if beside is not None:
            clients.close(beside)

    async def publish(
        self,
        stream: str,
        *data: EventData | dict[str, Any],
        kind: str = "",
        causes: Sequence[str] = (),
        corr: str | None = None,
        expect: int | None = None,
        idem: str | None = None,
    ) -> list[Accepted]:
        """Sign and append events of one stream, all or none; return their positions once they are on disk.

        The arguments and errors are those of ``Ledger.publish``. Inside ``batch()`` the answer is empty.
        """
        client = self._open_client()
        drafts = drafts_of(stream, data, kind=kind, causes=causes, corr=corr, expect=expect, idem=idem)
        batch = present_batch(self)
        if batch is None:
            return await self._emit(client, drafts)
        batch.add(drafts)
        return []

    @contextlib.asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Collect the events published in the ``async with`` block, and append them under one signature: all or none.

        The limits and errors are those of ``Ledger.batch``. If the block raises, nothing is published.
        """
        with collected(self) as batch:
            yield batch
        if drafts := batch.close():
            batch.accepted = await self._emit(self._open_client(), drafts)

    async def ask(self, query: str, *, as_of: When | None = None, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a query, for example of ``"handoffs.show"`` with ``id="event-bus"``.

        The arguments and errors are those of ``Ledger.ask``. The answer includes everything that is in the log now.
        """
        client = self._open_client()
        if query in CHECKED:
            return await self.compute(lambda beside: ask(beside, query, given(arguments), as_of))
        answer: dict[str, Any] = await client.view(query, given(arguments), as_of)
        return answer

    async def answer(self, query: str, *, as_of: When | None = None, **arguments: Any) -> Any:
        """Return the answer of a query as its type (``QUERIES[query].returns``). Otherwise as ``ask``."""
        return typed(query, await self.ask(query, as_of=as_of, **arguments))

    async def events(self, *kinds: str, stream: str | None = None, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events of ``kinds`` (default: all) that are in the log now, after the index ``after``."""
        check_kinds(kinds)
        client = self._open_client()
        position, size = after + 1, (await client.head()).size
        while position < size:
            page = await client.entries(position, kinds=kinds, stream=stream)
            for index, data in page.entries:
                if index < size:
                    yield read_event(index, data)
            position = page.next_index

    async def follow(self, *kinds: str, stream: str | None = None, after: int | None = None) -> AsyncIterator[Event]:
        """Yield events after the index ``after`` (default: only new ones) as they are appended, until ``stop``."""
        check_kinds(kinds)
        client = self._open_client()
        position = (await client.head()).size if after is None else after + 1
        while not self._stop.is_set():
            try:
                page = await client.entries(position, kinds=kinds, stream=stream, wait_s=poll_wait_s)
            except (Refused, Unavailable):
                if self._client is client:
                    raise
                return  # another task closed the ledger during the read: that is a stop, too
            for index, data in page.entries:
                yield read_event(index, data)
            position = page.next_index

    async def run(
        self, name: str, *, after: int | None = None, until: int | None = None, store: Path | str | None = None
    ) -> None:
        """Call the functions of ``on``, which may be coroutines, for each event, as ``Ledger.run`` does."""
        self._open_client()
        stop, handlers = threading.Event(), LoopHandlers(self._handlers or Handlers())

        def react() -> None:
            client = clients.open(asking(self.settings))
            try:
                with contextlib.closing(self._subscriptions(name, store)) as subscriptions:
                    reactor = Reactor(client, subscriptions, name, handlers=handlers)
                    if after is not None:
                        reactor.start_at(after + 1)
                    reactor.run(stop, until=until)
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

    async def index_of(self, ref: int | str) -> int:
        """Return an event's index; ``ref`` is the index, the id, the body's SHA-256, or 12 first digits of one."""
        number = index_in(ref)
        return int((await self.ask("resolve", id=ref))["event_index"]) if number is None else number

    async def get(self, ref: int | str) -> Event:
        """Return one event; ``ref`` is as for ``index_of``. Raises Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``."""
        index = await self.index_of(ref)
        return read_event(index, await self._open_client().entry(index))

    async def receipt(self, ref: int | str, *, policy: Policy | None = None) -> Receipt:
        """Return the receipt of an event, which was checked first: anybody can check it offline.

        If a ``policy`` requires witnesses, the call waits for their signatures. The errors are those of
        ``Ledger.receipt``.
        """
        index = await self.index_of(ref)
        return await self.compute(lambda client: take(client, index, policy=policy))

    async def compute(self, work: Callable[[Client], T]) -> T:
        """Return the result of ``work`` on a client, in a thread; ``work`` must not touch the event loop."""
        self._open_client()
        return await self._in_thread(lambda: work(self._client_beside()))

    async def publish_from(self, stream: str, make: Callable[[Author], Sequence[EventData]]) -> list[Accepted]:
        """Publish the events that ``make`` returns for the acting agent's author. ``make`` runs in a thread."""
        return await self.publish(stream, *await self.compute(lambda client: make(self._author(client, None))))

    async def put_blob(self, content: bytes) -> str:
        """Store large content as a blob, as the acting agent, and return its ref, by which events reference it.

        The limits and errors are those of ``Ledger.put_blob``.
        """
        return await self.compute(lambda client: self._author(client, None).put_blob(content))

    async def get_blob(self, ref: str) -> bytes:
        """Return a blob. Raises Refused: ``NOT_FOUND``, ``INVALID_FIELD``. Corrupted: it does not match its ref."""
        return await self.compute(lambda client: client.get_blob(ref))

    def _open_client(self) -> Any:
        self._check_process()
        if self._client is None:
            raise Refused("USAGE", "this ledger is not open: use it inside `async with`")
        return self._client

    async def _emit(self, client: Any, drafts: list[Draft]) -> list[Accepted]:
        # In a thread: signing reads key files, and opening a sealed one takes a slow hash.
        accepted: list[Accepted] = await client.submit(await self._in_thread(self._author(client, None).sign, *drafts))
        return accepted

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None:  # the ledger was closed after the call began
            raise Refused("USAGE", "this ledger is not open: use it inside `async with`")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _client_beside(self) -> Client:
        with self._opening:
            if self._beside is None:
                self._beside = clients.open(asking(self.settings))
            return self._beside


class _Threaded:
    """A local client whose calls run in threads: each of its methods, awaited."""

    def __init__(self, client: Client, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self.ledger = client.ledger
        self._client = client
        self._in_thread = in_thread

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)
        return lambda *arguments, **named: self._in_thread(partial(method, *arguments, **named))

    async def close(self) -> None:
        """Do nothing: ``AsyncLedger`` closes the client when its threads have ended."""


def _remote_client(settings: Settings) -> Any:
    try:
        from deedbook.ledger.client.remote import AsyncRemoteClient  # noqa: PLC0415 - extra `bus`
    except ModuleNotFoundError as error:
        message = "a ledger behind a server needs nats-py: pip install 'deedbook[bus]'"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="bus") from error
    return AsyncRemoteClient(settings)
