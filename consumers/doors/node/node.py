"""A node: starts the log, the embedded server, the service, the publisher, the views and the service agents.

Order matters, so every part that starts says at once how it stops, and parts stop in the opposite order, also when a
later one could not start. Starting: the log and the views → the server (which locks the bus folder: a second
``serve`` ends here) → the stream → background tasks and the compressor → the service. Stopping: no new requests, and
those that run are finished → the compressor → the tasks → publish what is left → the server → the views and the log.
After a kill at any point the next start needs nothing but to be started: the log is the truth and everything else is
compared with it.

Whatever runs in the background is started again when it fails, and the failure logged: nothing here dies silently.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import nkeys
import structlog

from consumers.doors.node.publication import Publishing
from consumers.doors.node.witnesses import Witnessing, configured_witnesses
from consumers.handoffs.notifier.settings import configured_channels
from consumers.handoffs.notifier.store import STORE_FILE
from consumers.handoffs.notifier.worker import NotifierWorker
from consumers.handoffs.router.chains_file import ChainsFile
from consumers.handoffs.router.worker import NAME as ROUTER
from consumers.handoffs.router.worker import RouterWorker
from consumers.reasoning.grounds import Grounds
from consumers.reasoning.validator.judge import ModelJudge
from consumers.reasoning.workers import CompressorWorker, ProseWorker, ValidatorWorker
from consumers.sdk.llm.model import configured_client
from consumers.sdk.service import service_author
from ledger.admission.committer import Committer
from ledger.admission.gate import Gate
from ledger.bus import subjects
from ledger.bus.connection import NodeClient, bus_errors
from ledger.bus.publisher import Outbox
from ledger.bus.server import EmbeddedServer
from ledger.bus.server_config import BusUsers
from ledger.bus.service import News, Service
from ledger.config import CHAINS_FILE, Settings, beside, read_file
from ledger.errors import BatonError, Unavailable, message_of
from ledger.files import as_unavailable
from ledger.home import Home, public_bus_key
from ledger.lifecycle.authority import NODE, ROOT
from ledger.local import LocalClient
from ledger.log.expiry import drop_unreferenced
from ledger.log.log import Log
from ledger.resource import AsyncResource
from ledger.trust import actions_of, check_chains, server_program
from projections.reader import Reader

Work = Callable[[threading.Event], None]
"""What runs in a thread of its own until the event is set; what it raises is logged, and it is started again."""

FATAL: Final = frozenset({"HISTORY_CHANGED", "STORE_STOPPED"})
"""What ends a node: the log is another one, or can no more be used by this process; a new start looks again."""

log = structlog.get_logger("baton.node")

_CHECKSUM_BYTES: Final = 2

checkpoint_interval_s: Final = 1.0
watch_interval_s: Final = 1.0
news_wait_max_s: Final = 60.0
connect_wait_max_s: Final = 10.0
close_wait_max_s: Final = 2.0
cancel_again_s: Final = 0.1
publish_left_max_s: Final = 30.0
blobs_interval_s: Final = 600.0


class Node(AsyncResource):
    """One running node; use it in an ``async with`` block, which starts everything.

    Inside it ``url`` is where agents connect, ``client`` the local client, ``published`` how much the stream holds.
    Raises Corrupted: ``HISTORY_CHANGED``: the stream holds acknowledged entries that the log lacks. Unavailable:
    ``NO_LEDGER``, ``SERVER_MISSING``; ``STORE_IN_USE`` when another node serves this ledger; ``BUS_UNAVAILABLE``.
    """

    client: LocalClient

    def __init__(self, settings: Settings, *, port: int | None = None, preferred: int | None = None) -> None:
        """Prepare a node of the ledger in ``settings.home``; nothing is opened or started yet."""
        super().__init__()
        self._settings = settings
        self._home = Home(settings.home)
        self._port, self._preferred = port, preferred
        # One thread, so that a start, a reload and a stop of the server never overlap, whatever is cancelled.
        self._server_thread = ThreadPoolExecutor(1, thread_name_prefix="baton-server")

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self._server.url

    @property
    def is_elsewhere(self) -> bool:
        """Whether the server listens neither where it was told to nor where it was to if possible."""
        return self._server.port not in {self._port, self._preferred}

    @property
    def published(self) -> int:
        """The number of entries that the stream holds."""
        return self._publishing.published

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; raises what of ``FATAL`` ended it before."""
        self._fatal.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if self._fatal.done():
            raise self._fatal.result()

    def _failed(self, who: str, error: BatonError) -> None:
        """Log why a task failed, which is started again; what no new start of a task can mend ends the node, once."""
        if error.code in FATAL:
            if self._fatal.done():
                return
            self._fatal.set_result(error)
        log.warning("task failed", task=who, code=error.code, error=error.message)

    async def _start(self) -> None:
        self._fatal: asyncio.Future[BatonError] = asyncio.get_running_loop().create_future()
        self._parts.callback(self._server_thread.shutdown)
        self.client = self._parts.enter_context(LocalClient(self._settings))
        reader = self._parts.enter_context(Reader(self.client, self._settings))
        program = server_program(self._settings, self.client)
        check_chains(self._home.path, read_file(self._home.path, CHAINS_FILE))  # later changes are asked about, too
        self._server = EmbeddedServer(self._home.bus, self.client.ledger, program=program)
        self._users = current_users(self.client, self._home)
        self._parts.push_async_callback(self._on_server, self._server.stop)
        await self._on_server(partial(self._server.start, self._users, self._port, preferred=self._preferred))
        self._nats = await self._connect()
        self._parts.push_async_callback(self._disconnect)
        self._news = News(self.client.log)
        outbox = Outbox(self.client.log, self.client.ledger)
        self._publishing = Publishing(self.client.ledger, outbox, self._news, self._home.bus / "incarnation.json")
        await self._publishing.start(self._nats)
        self._parts.push_async_callback(self._publish_left)
        # Not before the stream was compared: these register themselves, and a log that lacks entries takes no others.
        workers = workers_of(self.client, reader)
        await self._let_in()
        publishing = self._publishing
        self._start_tasks({
            "news": self._news.run, "publish": publishing.run, "scrub": publishing.scrub,
            "checkpoints": self._publish_checkpoints,
        })  # fmt: skip
        self._start_threads(workers)
        committer = Committer(Gate(self.client.log, quota=self._settings.config.quota))
        self._parts.push_async_callback(asyncio.to_thread, committer.close)
        self._service = Service(self.client, committer, self._news, reader.answer)
        self._parts.push_async_callback(self._service.stop)
        await self._service.start(self._nats, self._users.agents)
        self._start_tasks({"users": self._follow_users, "bus": self._watch_bus})  # They tell the service.
        self._announce_url()

    async def _let_in(self) -> None:
        """Let those in who were registered since the server was started, before anybody is told where it listens."""
        users = current_users(self.client, self._home)
        if users != self._users:
            await self._on_server(self._server.reload, users)
            self._users = users

    def _start_tasks(self, works: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        tasks = [asyncio.create_task(self._keep_running(name, work), name=name) for name, work in works.items()]
        self._parts.push_async_callback(_end, tasks)

    def _start_threads(self, works: Mapping[str, Work]) -> None:
        # One event for all: they end side by side, each within its own wait for news.
        stop, threads = threading.Event(), ThreadPoolExecutor(len(works), thread_name_prefix="baton-worker")

        async def end() -> None:
            stop.set()
            await asyncio.to_thread(threads.shutdown)

        self._parts.push_async_callback(end)
        run = partial(asyncio.get_running_loop().run_in_executor, threads)
        self._start_tasks({name: partial(run, work, stop) for name, work in works.items()})

    async def _keep_running(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task for ever: log what it raises, pause, and start it again; only cancelling ends it."""
        while True:
            try:
                await work()
            except BatonError as error:
                self._failed(name, error)
            except Exception:
                log.exception("task failed", task=name)
            await asyncio.sleep(watch_interval_s)

    def _announce_url(self) -> None:
        # Only now, and so taken away only by the node that wrote it: a second `serve` never came so far.
        file = self._home.bus / "url"
        self._parts.callback(file.unlink, missing_ok=True)
        with as_unavailable(file):
            file.write_text(self.url + "\n", "ascii")

    async def _on_server(self, call: Callable[..., object], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._server_thread, call, *arguments)

    async def _connect(self) -> NodeClient:
        client = NodeClient()
        connecting = client.connect(
            self._server.url, nkeys_seed_str=self._home.bus_seed(NODE), inbox_prefix=subjects.INBOX_OF_NODES.encode(),
            error_cb=_log_error, max_reconnect_attempts=-1, reconnect_time_wait=1,
        )  # fmt: skip
        with bus_errors("connecting to the embedded server"):
            try:
                await asyncio.wait_for(connecting, connect_wait_max_s)
            except BaseException:
                await client.close()
                raise
        return client

    async def _disconnect(self) -> None:
        try:
            with bus_errors("closing the connection"):
                await asyncio.wait_for(self._nats.close(), close_wait_max_s)
        except Unavailable as error:
            log.warning("bus", error=error.message)  # The server is ended next, and the connection with it.

    async def _publish_left(self) -> None:
        if not self._nats.is_connected:
            log.warning("the bus is away: the next start publishes what is left")
            return
        try:
            async with asyncio.timeout(publish_left_max_s):
                await self._publishing.finish()
        except (Unavailable, TimeoutError) as error:
            log.warning("not all of the log was published: the next start goes on", error=message_of(error))

    async def _follow_users(self) -> None:
        seen = -1
        while True:
            size = self._news.size
            with self.client.log.snapshot() as snapshot:
                changed = snapshot.head.authority_version if snapshot.head else 0
            if changed != seen:
                users = current_users(self.client, self._home)
                if users != self._users:
                    # Served before it is let in, and let out before others hear of it: nobody is asked in vain.
                    await self._service.follow(users.agents)
                    await self._on_server(self._server.reload, users)
                    self._users = users
                    log.info("users reloaded", agents=len(users.agents))
                seen = changed
            await self._news.wait_beyond(size, news_wait_max_s)

    async def _publish_checkpoints(self) -> None:
        size = 0
        subject = subjects.checkpoint_subject(self.client.ledger)
        while True:
            size = await self._news.wait_beyond(size, news_wait_max_s)
            # Remembered before it is published: this head is what everybody else is going to trust.
            await asyncio.to_thread(self.client.remember)
            note = await asyncio.to_thread(self.client.checkpoint)
            with bus_errors("publishing a checkpoint"):
                await self._nats.publish(subject, json.dumps({"checkpoint": note}).encode())
            await asyncio.sleep(checkpoint_interval_s)

    async def _watch_bus(self) -> None:
        """Start the server again when it died, and connect again when the connection was closed for good.

        Clients reconnect by themselves, and the publisher compares. nats-py gives up after some of the server's errors.
        """
        while True:
            await asyncio.sleep(watch_interval_s)
            if not self._server.is_running:
                log.error("nats-server ended: starting it again")
                await self._on_server(self._server.start, self._users)
            if self._nats.is_closed:
                log.error("the connection to the bus was closed: connecting again")
                self._nats = await self._connect()
                await self._publishing.start(self._nats)
                await self._service.start(self._nats, self._users.agents)


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks that would run for ever, until each has ended.

    Once may not be enough: before Python 3.12 ``asyncio.wait_for``, with which nats-py waits, drops a cancellation that
    comes together with its answer (seen: a node that did not stop for twenty minutes).
    """
    going_on = set(tasks)
    while going_on:
        for task in going_on:
            task.cancel()
        _, going_on = await asyncio.wait(going_on, timeout=cancel_again_s)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _log_error(error: Exception) -> None:
    log.warning("bus", error=str(error) or type(error).__name__)


def _drop_blobs(entries: Log, stop: threading.Event) -> None:
    """Drop what no entry has referred to for a day, now and then; in short transactions, so that others may write."""
    while not stop.is_set():
        dropped = drop_unreferenced(entries)
        if dropped.blobs:
            log.info("blobs dropped that no entry refers to", blobs=dropped.blobs, size_bytes=dropped.size)
        stop.wait(blobs_interval_s)


def workers_of(client: LocalClient, reader: Reader) -> dict[str, Work]:
    """Return what the node runs, by name: the compressor and the router, and what is configured.

    Raises Refused: ``NOT_TRUSTED``; ``INVALID_FIELD`` for a table of ``config.toml`` that is wrong.
    """
    settings, path = client.settings, client.settings.home
    actions = actions_of(settings, client)
    llm = configured_client(actions)
    author = service_author(client, "compressor")
    chains = ChainsFile(path / CHAINS_FILE, settings.config.default_reviewer, permit=partial(check_chains, path))
    router = service_author(client, ROUTER)
    workers: dict[str, Work] = {
        "compressor": CompressorWorker(author, reader, path / "compressor.db", wants_prose=llm is not None).run,
        "blobs": partial(_drop_blobs, client.log),
        "router": RouterWorker(router, reader.answer, path / "router.db", chains).run,
    }
    if llm is not None:
        workers["prose"] = ProseWorker(author, reader, path / "compressor.db", llm).run
    if (witnesses := configured_witnesses(actions.witness)) is not None:
        policy, fail_closed = witnesses
        workers["witness"] = Witnessing(client, policy, fail_closed=fail_closed).run
    if actions.validator_tree is not None:
        judge = None if llm is None else ModelJudge(llm)
        author = service_author(client, "validator")
        tree = beside(path, actions.validator_tree)
        workers["validator"] = ValidatorWorker(author, reader, path / "validator.db", tree, judge).run
    if channels := configured_channels(settings, client=client):
        workers["notifier"] = NotifierWorker(
            client, reader.answer, path / STORE_FILE, channels, behind=lambda refs: Grounds(reader.answer, 0).of(refs)
        ).run
    return workers


def current_users(client: LocalClient, home: Home) -> BusUsers:
    """Return the users that the log and the ledger's folder name now: agents with a valid identity key and a bus key.

    Not: whose identity key was revoked or called compromised and not yet replaced, and who was removed; nor whose bus
    key is no key or somebody else's: a nats-server refuses its whole configuration for one that it cannot use. Raises
    Refused: ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE`` for the node's own key.
    """
    node = public_bus_key(home.bus_seed(NODE))
    taken, agents = {node}, dict[str, str]()
    if home.nkey_file(ROOT).exists():
        # Who owns the ledger's folder may also ask its server; the key lies nowhere else.
        agents[ROOT] = public_bus_key(home.bus_seed(ROOT))
        taken.add(agents[ROOT])
    with client.log.snapshot() as snapshot:
        valid = [agent for agent in snapshot.agents() if (key := snapshot.key(agent.key)) is not None and key.is_valid]
    for agent in valid:
        if agent.nkey is None:
            continue
        if agent.nkey in taken or not is_bus_key(agent.nkey):
            log.warning("agent cannot connect: its bus key is no key, or the node's", agent=agent.name, nkey=agent.nkey)
            continue
        taken.add(agent.nkey)
        agents[agent.name] = agent.nkey
    return BusUsers(nodes=(node,), agents=agents)


def is_bus_key(nkey: str) -> bool:
    """Whether this is the public key of a NATS user: prefix, 32 bytes, checksum (NATS ADR-14)."""
    try:
        raw = base64.b32decode(nkey)
    except ValueError:
        return False
    payload, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    return payload[:1] == bytes([nkeys.PREFIX_BYTE_USER]) and bytes(nkeys.crc16_checksum(payload)) == checksum
