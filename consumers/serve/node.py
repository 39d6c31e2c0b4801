"""A node: starts the log, the embedded server, the service, the publisher, the views and the service agents.

Order matters. Starting: lock the bus folder (a second ``serve`` ends here) → server → stream → service. Stopping:
no new requests → finish what was submitted → publish it → close the server. After a kill at any point the next
start needs nothing but to be started: the log is the truth and everything else is compared with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import structlog
from nats.aio.client import Client as NatsClient

from consumers.compressor.worker import CompressorWorker
from consumers.serve.agents import service_author
from consumers.serve.publishing import Publishing
from ledger.admission.committer import Committer
from ledger.admission.gate import Gate
from ledger.bus import subjects
from ledger.bus.faults import bus_errors
from ledger.bus.news import News
from ledger.bus.outbox import Outbox
from ledger.bus.server import BusUsers, EmbeddedServer
from ledger.bus.service import Service
from ledger.errors import BatonError
from ledger.home import Home, public_bus_key
from ledger.lifecycle.authority import NODE
from ledger.local import LocalClient
from projections.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ledger.config import Settings

log = structlog.get_logger("baton.node")

checkpoint_interval_s: Final = 1.0
watch_interval_s: Final = 1.0


class Node:
    """One running node; use it in an ``async with`` block. ``url`` is where agents connect."""

    def __init__(self, settings: Settings, *, port: int | None = None) -> None:
        """Prepare a node of the ledger in ``settings.home``; nothing is started yet.

        Raises:
            Unavailable: ``NO_LEDGER``, ``SERVER_MISSING``.
        """
        self._settings = settings
        self._home = Home(settings.home)
        self._port = port
        self.client = LocalClient(settings)
        program = settings.config.nats_server
        self._server = EmbeddedServer(self._home.bus, self.client.ledger, program=Path(program) if program else None)
        self._committer = Committer(Gate(self.client.log))
        self._news = News(self.client.log)
        self._reader = Reader(self.client, settings)
        self._service = Service(self.client, self._committer, self._news, self._reader.answer)
        self._nats = NatsClient()
        self._publishing = Publishing(
            self._nats,
            self.client.ledger,
            Outbox(self.client.log, self.client.ledger),
            self._news,
            self._home.bus / "incarnation.json",
        )
        self._users = BusUsers(nodes=())
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_threads = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self._server.url

    @property
    def published(self) -> int:
        """The number of entries that the stream holds."""
        return self._publishing.published

    async def __aenter__(self) -> Self:
        """Start everything.

        Raises:
            Unavailable: ``STORE_IN_USE`` when another node serves this ledger; ``BUS_UNAVAILABLE``.
        """
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything, in order."""
        await self._stop()

    async def _start(self) -> None:
        compressor = CompressorWorker(
            service_author(self.client, "compressor"), self._reader, self._home.path / "compressor.db"
        )
        self._users = self._current_users()
        await asyncio.to_thread(self._server.start, self._users, self._port)
        await self._connect()
        await self._publishing.start()
        await self._service.start(self._nats)
        for work in (
            self._news.run,
            self._publishing.run,
            self._publishing.scrub,
            self._publish_checkpoints,
            self._follow_users,
            self._watch_server,
        ):
            self._tasks.append(asyncio.create_task(_guarded(work), name=work.__qualname__))
        thread = threading.Thread(target=compressor.run, args=(self._stop_threads,), name="baton-compressor")
        thread.start()
        self._threads.append(thread)
        self._announce_url()

    async def _stop(self) -> None:
        self._url_file.unlink(missing_ok=True)
        self._stop_threads.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await self._service.stop()
        await asyncio.to_thread(self._committer.close)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._nats.is_connected:
            with contextlib.suppress(BatonError):
                await self._publishing.finish()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._nats.close(), timeout=2.0)
        await asyncio.to_thread(self._server.stop)
        self._reader.close()
        self.client.close()

    @property
    def _url_file(self) -> Path:
        return self._home.bus / "url"

    def _announce_url(self) -> None:
        self._home.bus.joinpath("url").write_text(self.url + "\n", "ascii")

    async def _connect(self) -> None:
        with bus_errors("connecting to the embedded server"):
            await self._nats.connect(
                self._server.url,
                nkeys_seed_str=self._home.bus_seed(NODE),
                inbox_prefix=subjects.INBOX_OF_NODES.encode(),
                error_cb=_log_error,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
            )

    def _current_users(self) -> BusUsers:
        agents = {agent.name: agent.nkey for agent in self.client.agents() if agent.nkey is not None}
        return BusUsers(nodes=(public_bus_key(self._home.bus_seed(NODE)),), agents=agents)

    async def _follow_users(self) -> None:
        """Let newly registered agents in: look whenever the log has grown."""
        size = self._news.size
        while True:
            size = await self._news.wait_beyond(size, checkpoint_interval_s * 60)
            users = self._current_users()
            if users != self._users:
                await asyncio.to_thread(self._server.reload, users)
                self._users = users
                log.info("users reloaded", agents=len(users.agents))

    async def _publish_checkpoints(self) -> None:
        size = 0
        subject = subjects.checkpoint_subject(self.client.ledger)
        while True:
            size = await self._news.wait_beyond(size, checkpoint_interval_s * 60)
            note = await asyncio.to_thread(self.client.checkpoint)
            await self._nats.publish(subject, json.dumps({"checkpoint": note}).encode())
            await asyncio.sleep(checkpoint_interval_s)

    async def _watch_server(self) -> None:
        """Start the server again when it died; clients reconnect by themselves, the publisher compares."""
        while True:
            await asyncio.sleep(watch_interval_s)
            if not self._server.is_running:
                log.error("nats-server ended: starting it again")
                await asyncio.to_thread(self._server.start, self._users)


async def _guarded(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a task for ever: log what it raises, pause, and start it again; only cancelling ends it."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("task failed", task=work.__qualname__)
        await asyncio.sleep(watch_interval_s)


async def _log_error(error: Exception) -> None:
    log.warning("bus", error=str(error) or type(error).__name__)
