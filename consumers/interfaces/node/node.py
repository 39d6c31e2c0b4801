"""A node: starts the log, the embedded server, the service, the publisher, the views and the service agents.

Order matters: every part registers its stop when it starts, and parts stop in the opposite order, also if a later one
could not start. Starting: the log and the views → the server (which locks the bus folder: a second ``serve`` ends here)
→ the stream → background tasks and the compressor → the service. Stopping: no new requests, and the running ones finish
→ the compressor → the tasks → publish the rest → the server → the views and the log. After a kill at any point a normal
start is enough: everything else is compared with the log. A background task that fails is logged and started again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import structlog

from deedbook.consumers.interfaces.node.cluster import bring_log, member_of
from deedbook.consumers.interfaces.node.generations import Generations
from deedbook.consumers.interfaces.node.membership import Membership
from deedbook.consumers.interfaces.node.peers import NodeView, silent_max_s
from deedbook.consumers.interfaces.node.publication import Publishing
from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.consumers.interfaces.node.stream_order import StreamOrder
from deedbook.consumers.interfaces.node.users import current_users
from deedbook.consumers.interfaces.node.workers import Work, drop_blobs, erase_bodies, workers_of
from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import NodeClient, bus_errors
from deedbook.ledger.bus.error_log import BusErrorLog
from deedbook.ledger.bus.publisher import Outbox
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Unavailable, message_of
from deedbook.ledger.home.config import Cluster, Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import CHAINS_FILE, read_file
from deedbook.ledger.home.trust import actions_of, check_chains, server_program
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.log.records import ClusterRecord
from deedbook.ledger.replication.state import Timing
from deedbook.ledger.service.discovery import Discovery
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.service import LogWatcher, Service
from deedbook.ledger.system.files import as_unavailable
from deedbook.ledger.system.metrics import Metrics
from deedbook.ledger.system.resource import AsyncResource
from deedbook.projections.answers.reader import Reader

FATAL: Final = frozenset({"HISTORY_CHANGED", "STORE_STOPPED"})
"""Errors that end a node: the log was exchanged, or this process can no longer use it; a new start checks again."""

log = structlog.get_logger("deedbook.node")

PORT_FILE: Final = "port"
"""The file with the port of the last run. It stays, so that the next run takes the port again."""

checkpoint_interval_s: Final = 1.0
watch_interval_s: Final = 1.0
copy_wait_max_s: Final = 10.0
news_wait_max_s: Final = 60.0
connect_wait_max_s: Final = 10.0
close_wait_max_s: Final = 2.0
cancel_again_s: Final = 0.1
publish_left_max_s: Final = 30.0


class Node(AsyncResource):
    """One running node; use it in an ``async with`` block, which starts everything.

    Inside it ``url`` is the address for agents, ``client`` the local client, ``published`` the size of the stream.
    Raises Corrupted: ``HISTORY_CHANGED``: the stream holds acknowledged entries that the log lacks. Unavailable:
    ``NO_LEDGER``, ``SERVER_MISSING``; ``STORE_IN_USE`` when another node serves this ledger; ``BUS_UNAVAILABLE``.
    """

    client: LocalClient

    def __init__(
        self,
        settings: Settings,
        *,
        port: int | None = None,
        preferred: Sequence[int] = (),
        timing: Timing | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Prepare a node of the ledger in ``settings.home``; nothing is opened or started yet.

        Without a ``port`` it listens on the first of ``preferred`` that is free.

        ``timing`` sets the timeouts of one of several nodes, and whether it only follows.
        """
        super().__init__()
        self._cluster: Cluster | None = None
        self._name = NODE
        self._timing = timing or Timing()
        self._membership: Membership | None = None
        self.is_stopped: Callable[[], bool] = lambda: False
        """Whether to stop waiting for the other nodes."""

        self._settings = settings
        self._home = Home(settings.home)
        self._port, self._preferred = port, preferred
        self.metrics = metrics or Metrics()
        # One thread, so that a start, a reload and a stop of the server never overlap, even after a cancellation.
        self._server_thread = ThreadPoolExecutor(1, thread_name_prefix="deedbook-server")

    @property
    def url(self) -> str:
        """The address for clients."""
        return self._server.url

    @property
    def published(self) -> int:
        """The number of entries that the stream holds."""
        return self.client.head().size if self._cluster else self._publishing.published

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return functions that read the gauges, by their names in `/metrics`."""
        entries, metrics, nodes = self.client.log, self.metrics, self._nodes
        return {
            "bus_behind_entries": lambda: self.client.head().size - self.published,
            "submissions_waiting": lambda: (
                metrics.values("submissions")[""] - sum(metrics.bucket_counts("submit_seconds"))
            ),
            "reads_waiting": lambda: self._service.reads_waiting,
            "log_map_used_ratio": entries.tables.used_ratio,
            "blobs_used_ratio": lambda: entries.blobs.used_bytes() / entries.blobs.size_max,
            "blobs_bytes": entries.blobs.used_bytes,
            "disk_free_bytes": lambda: shutil.disk_usage(self._home.path).free,
            "node_admits": lambda: nodes()[0].role == "ready",
            "node_behind_entries": lambda: max(node.size for node in nodes()) - nodes()[0].size,
            "node_has_fault": lambda: nodes()[0].fault != "",
            "nodes_heard": lambda: sum(node.heard_s < silent_max_s for node in nodes()),
        }

    def _nodes(self) -> list[NodeView]:
        if self._membership is not None:
            return self._membership.view().nodes
        return [NodeView(self._name, "ready", self.client.head().size, self.url, "", 0.0)]

    async def submit(self, agent: str, payload: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Serve a submission of ``agent``, whom the caller authenticated. Raises: as ``Service.submit``."""
        return await self._service.submit(agent, payload, headers)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. If an error of ``FATAL`` ended the node before, raise it."""
        self._fatal.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if self._fatal.done():
            raise self._fatal.result()

    def _failed(self, task: str, error: DeedbookError) -> None:
        """Log why a task failed, so that it can be started again; the first error of ``FATAL`` ends the node."""
        if error.code in FATAL:
            if self._fatal.done():
                return
            self._fatal.set_result(error)
        self.metrics.count("task_failures", task)
        log.warning("task failed", task=task, code=error.code, error=error.message)

    async def _start(self) -> None:
        self._fatal: asyncio.Future[DeedbookError] = asyncio.get_running_loop().create_future()
        self._parts.callback(self._server_thread.shutdown)
        self._cluster = actions_of(self._settings).cluster
        if self._cluster is not None:
            self._name = self._cluster.name
            await bring_log(self._settings, self._connect, self.is_stopped)
        self.client = self._parts.enter_context(LocalClient(self._settings))
        reader = self._parts.enter_context(Reader(self.client, self._settings))
        program = server_program(self._settings, self.client)
        check_chains(self._home.path, read_file(self._home.path, CHAINS_FILE))  # later changes are checked, too
        cluster, folder, ledger = self._cluster, self._home.bus, self.client.ledger
        member = None if cluster is None else member_of(cluster, self._home, ledger)
        host = "127.0.0.1" if cluster is None else cluster.host
        self._server = EmbeddedServer(folder, ledger, program=program, host=host, member=member)
        self._users = current_users(self.client, self._home, self._name)
        self._parts.push_async_callback(self._on_server, self._server.stop)
        await self._on_server(partial(self._server.start, self._users, self._port, preferred=self._preferred))
        self._nats = await self._connect(self._server)
        self._parts.push_async_callback(self._disconnect)
        self._watcher = LogWatcher(self.client.log)
        work_on_files: dict[str, Work] = {
            "erased bodies": partial(erase_bodies, self.client, reader),
            "blobs": partial(drop_blobs, self.client.log),
        }
        self._start_threads(work_on_files, self._parts)
        await (self._start_alone(reader) if cluster is None else self._start_among_others(cluster, reader))
        # A single node is reached through a tunnel or a proxy, so only its operator knows its address.
        address = (lambda: "") if cluster is None else partial(self.client.sign_address, self.url)
        discovery = Discovery(ledger, lambda: self._service.role, self.metrics, address)
        self._start_tasks(
            {  # the first two update the service
                "users": self._follow_users,
                "bus": self._watch_bus,
                "discovery": lambda: discovery.run(self._nats),
            }
        )
        self._announce_url()

    async def _start_alone(self, reader: Reader) -> None:
        self.client.log.set_shared(None)
        outbox = Outbox(self.client.log, self.client.ledger)
        self._publishing = Publishing(
            self.client.ledger, outbox, self._watcher, self._home.bus / "generation.json", self.metrics
        )
        await self._publishing.start(self._nats)
        self._parts.push_async_callback(self._publish_left)
        # Do this only after the stream was compared: workers register themselves, and a log that lacks entries accepts
        # no new ones.
        workers = workers_of(self.client, reader, self.metrics)
        await self._let_in()
        publishing = self._publishing
        self._start_tasks(
            {
                "news": self._watcher.run,
                "publish": publishing.run,
                "scrub": publishing.scrub,
                "checkpoints": self._publish_checkpoints,
            }
        )
        self._start_threads(workers, self._parts)
        await self._start_service(reader)

    async def _start_among_others(self, cluster: Cluster, reader: Reader) -> None:
        """Run as one node of several: publish entries before they are appended, and run the workers on one node.

        Each node does the work on its own files: it expires blobs, erases bodies, updates views and signs checkpoints.
        One node runs the workers and publishes the checkpoints (``NodeState.has_duties``). If two nodes do it, each
        recognises the work of the other.
        """
        name, entries, ledger = cluster.name, self.client.log, self.client.ledger
        # Do this before the stream is read: from now on, every append to this log goes through the stream.
        entries.set_shared(ClusterRecord(name, self.url))
        replica = Replica(
            lambda: self._nats,
            entries,
            ledger,
            name,
            replicas=cluster.replicas,
            record=self._home.bus / "generation.json",
        )
        self.client.node, self.client.order = name, StreamOrder(replica)
        replica.metrics = self.metrics
        working = AsyncExitStack()
        self._parts.push_async_callback(working.aclose)

        async def work(does: bool) -> None:  # noqa: FBT001 - what becomes of this node
            await working.aclose()
            if does:
                # In a thread: the workers register themselves, and this event loop publishes their registration.
                self._start_threads(await asyncio.to_thread(workers_of, self.client, reader, self.metrics), working)

        self._membership = membership = Membership(
            lambda: self._nats,
            replica,
            Generations(replica),
            self._watcher,
            folder=self._home.bus,
            url=self.url,
            answer=self._answer,
            work=work,
            timing=self._timing,
        )
        await self._start_service(reader)
        await membership.start()
        self._start_tasks(
            {
                "news": self._watcher.run,
                "nodes": membership.run,
                "heart": membership.beat,
                "follow": membership.follow,
                "duties": membership.do_duties,
                "scrub": membership.scrub,
                "erasures": membership.erase,
                "checkpoints": self._publish_checkpoints,
            }
        )
        self._parts.push_async_callback(membership.leave)

    async def _answer(self, admits: bool, reads: bool) -> None:  # noqa: FBT001 - what becomes of this node
        await self._service.take(admits=admits, reads=reads)

    async def _start_service(self, reader: Reader) -> None:
        committer = Committer(
            Gate(self.client.log, quota=self._settings.config.quota, order=self.client.order), self.metrics
        )
        self._parts.push_async_callback(asyncio.to_thread, committer.close)
        self._service = Service(
            self.client,
            committer,
            self._watcher,
            reader.answer,
            self.metrics,
            has_all=None if self._membership is None else self._membership.has_all,
        )
        self._parts.push_async_callback(self._service.stop)
        if self._cluster is not None:
            await self._answer(False, False)  # noqa: FBT003 - before the log is known to be up to date
        await self._service.start(self._nats, self._users.names)

    async def _let_in(self) -> None:
        """Admit agents that were registered since the server started, before its address is announced."""
        users = current_users(self.client, self._home, self._name)
        if users != self._users:
            await self._on_server(self._server.reload, users)
            self._users = users

    def _start_tasks(
        self, works: Mapping[str, Callable[[], Awaitable[None]]], parts: AsyncExitStack | None = None
    ) -> None:
        tasks = [asyncio.create_task(self._keep_running(name, work), name=name) for name, work in works.items()]
        (parts or self._parts).push_async_callback(_end, tasks)

    def _start_threads(self, works: Mapping[str, Work], parts: AsyncExitStack) -> None:
        # All share one event: they end in parallel, each when its wait for new entries is over.
        stop, threads = threading.Event(), ThreadPoolExecutor(len(works), thread_name_prefix="deedbook-worker")

        async def end() -> None:
            stop.set()
            await asyncio.to_thread(threads.shutdown)

        parts.push_async_callback(end)
        run = partial(asyncio.get_running_loop().run_in_executor, threads)
        self._start_tasks({name: partial(run, work, stop) for name, work in works.items()}, parts)

    async def _keep_running(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task for ever: log its error, pause, and start it again. Only a cancellation ends it."""
        while True:
            try:
                await work()
            except DeedbookError as error:
                self._failed(name, error)
            except Exception:
                self.metrics.count("task_failures", name)
                log.exception("task failed", task=name)
            await asyncio.sleep(watch_interval_s)

    def _announce_url(self) -> None:
        # Only now, so that only the node that wrote the file removes it: a second `serve` fails before this line.
        file = self._home.bus / "url"
        self._parts.callback(file.unlink, missing_ok=True)
        with as_unavailable(file):
            file.write_text(self.url + "\n", "ascii")
            (self._home.bus / PORT_FILE).write_text(f"{self._server.port}\n", "ascii")

    async def _on_server(self, call: Callable[..., object], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._server_thread, call, *arguments)

    async def _connect(self, server: EmbeddedServer) -> NodeClient:
        client = NodeClient()
        connecting = client.connect(
            server.url,
            nkeys_seed_str=self._home.bus_seed(self._name),
            inbox_prefix=subjects.INBOX_OF_NODES.encode(),
            error_cb=BusErrorLog().report,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
        )
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
            log.warning("bus", error=error.message)  # the server ends next, and closes the connection

    async def _publish_left(self) -> None:
        if not self._nats.is_connected:
            log.warning("the bus is unavailable: the next start publishes the rest")
            return
        try:
            async with asyncio.timeout(publish_left_max_s):
                await self._publishing.finish()
        except (Unavailable, TimeoutError) as error:
            log.warning("part of the log is unpublished: the next start continues", error=message_of(error))

    async def _follow_users(self) -> None:
        loaded_version = -1
        while True:
            size = self._watcher.size
            with self.client.log.snapshot() as snapshot:
                version = snapshot.head.authority_version if snapshot.head else 0
            if version != loaded_version or self._users.invited:  # an invitation expires without an entry
                users = current_users(self.client, self._home, self._name)
                if users != self._users:
                    # The service knows an agent before the server admits it, so no request is lost.
                    await self._service.follow(users.names)
                    await self._on_server(self._server.reload, users)
                    self._users = users
                    log.info("users reloaded", agents=len(users.agents))
                loaded_version = version
            await self._watcher.wait_beyond(size, news_wait_max_s)

    async def _publish_checkpoints(self) -> None:
        size = 0
        subject = subjects.checkpoint_subject(self.client.ledger)
        while True:
            size = await self._watcher.wait_beyond(size, news_wait_max_s)
            if self._membership is not None and not self._membership.works:
                continue
            # Stored before it is published, because readers will trust this head.
            await asyncio.to_thread(self.client.remember)
            note = await asyncio.to_thread(self.client.checkpoint)
            with bus_errors("publishing a checkpoint"):
                await self._nats.publish(subject, json.dumps({"checkpoint": note}).encode())
            self.metrics.put("checkpoint_timestamp_seconds", time.time())
            await asyncio.sleep(checkpoint_interval_s)

    async def _watch_bus(self) -> None:
        """Restart a server that died, and reconnect after the connection was closed for good.

        Clients reconnect by themselves, and the publisher compares the stream again. nats-py gives up after some errors
        of the server.
        """
        copies = _Copies()
        while True:
            await asyncio.sleep(watch_interval_s)
            if not self._server.is_running:
                log.error("nats-server ended: restarting it")
                await self._on_server(self._server.start, self._users)
            stream = None if self._membership is None else self._membership.stream
            if stream is not None and copies.is_lost(stream, has_copy=self._server.has_stream(stream)):
                log.error("nats-server has no copy of the log stream: restarting it", stream=stream)
                await self._on_server(self._server.restart, self._users)
            if self._nats.is_closed:
                log.error("the connection to the bus was closed: reconnecting")
                self._nats = await self._connect(self._server)
                await (self._publishing.start(self._nats) if self._membership is None else self._membership.start())
                await self._service.start(self._nats, self._users.names)


class _Copies:
    """Reports, once for each stream, that this node's server makes no copy of the stream.

    The cause: a server may be away while a stream is retired and the next stream is made. It may then create the next
    stream before it learns that the first is retired. Their subjects overlap, and it never tries again (measured with
    2.15.1). After a restart it makes the copy.
    """

    def __init__(self) -> None:
        self._stream, self._missing_since, self._is_told = "", 0.0, False

    def is_lost(self, stream: str, *, has_copy: bool) -> bool:
        """Return whether the copy is missing for so long that the server must be restarted."""
        now_s = time.monotonic()
        if has_copy or stream != self._stream:
            self._stream, self._missing_since, self._is_told = stream, now_s, False
        if self._is_told or now_s - self._missing_since < copy_wait_max_s:
            return False
        self._is_told = True
        return True


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel endless tasks until each has ended.

    One cancellation may not be enough. nats-py uses ``asyncio.wait_for``, which before Python 3.12 loses a cancellation
    that arrives together with its answer (observed: a node that did not stop for twenty minutes).
    """
    going_on = set(tasks)
    while going_on:
        for task in going_on:
            task.cancel()
        _, going_on = await asyncio.wait(going_on, timeout=cancel_again_s)
    await asyncio.gather(*tasks, return_exceptions=True)
