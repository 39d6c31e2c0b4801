"""The table ``[cluster]`` of ``config.toml`` as the configuration of a node's server, and the log of a new node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from nats.aio.client import Client as NatsClient

from deedbook.consumers.interfaces.node.replica import DamagedError, ForkedError, Replica
from deedbook.ledger.errors import Refused, Unavailable, message_of
from deedbook.ledger.format.identity import read_key_file, read_private
from deedbook.ledger.home.config import Cluster, Settings
from deedbook.ledger.home.home import Home, public_bus_key
from deedbook.ledger.home.location import project_path
from deedbook.ledger.home.trust import actions_of, server_program
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers, Member, Tls

log = structlog.get_logger("deedbook.nodes")

retry_s: Final = 1.0
Connect = Callable[[EmbeddedServer], Awaitable[NatsClient]]


def member_of(cluster: Cluster, home: Home, ledger: str) -> Member:
    """Return this node's server as a member of the cluster.

    Raises Refused: ``INVALID_FIELD`` for neither password nor certificates, ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``.
    """
    password = None
    if cluster.password is not None:
        password = read_private(project_path(home.path, cluster.password)).decode("utf-8", "replace").strip()
    tls = None
    if cluster.tls is not None:
        folder = project_path(home.path, cluster.tls)
        tls = Tls(folder / f"{cluster.name}.pem", folder / f"{cluster.name}.key", folder / "ca.pem")
    server = f"{ledger[:8]}-{cluster.name}"
    return Member(f"deedbook-{ledger}", server, cluster.listen, tuple(cluster.routes), password, tls, cluster.name)


async def bring_log(settings: Settings, connect: Connect, is_stopped: Callable[[], bool]) -> None:
    """Fill the empty log of a node from the stream and replay every entry; the node's key names the ledger.

    Waits for the servers of the other nodes until ``is_stopped``. If we crash here, the next start continues where the
    log ends. Raises Refused: ``KEY_FILE_MISSING``, ``NOT_TRUSTED``; ``BUS_UNAVAILABLE``, ``STORE_IN_USE`` and others.
    """
    cluster, home = actions_of(settings).cluster, Home(settings.home)
    config = settings.config
    if cluster is None:
        message = (
            "this node has no log, and config.toml has no table [cluster] that names the nodes to copy it from: add it \
(see deploy/README.md), and run `deed serve` again"
        )
        raise Refused("USAGE", message)
    ledger = read_key_file(home.key_file(cluster.name)).ledger
    server = EmbeddedServer(
        home.bus, ledger, program=server_program(settings), host=cluster.host, member=member_of(cluster, home, ledger)
    )
    users = BusUsers(nodes=(public_bus_key(home.bus_seed(cluster.name)),))
    is_new = not home.is_local()
    (home.path / "log").mkdir(mode=0o700, exist_ok=True)
    with Log(
        home.path, map_size=config.map_size_bytes, blobs_size_max=config.blobs_size_max_bytes, create=is_new
    ) as entries:
        with entries.snapshot() as snapshot:
            if snapshot.size:
                return
        await asyncio.to_thread(server.start, users)
        try:
            nats = await connect(server)
            record = home.bus / "generation.json"
            replica = Replica(lambda: nats, entries, ledger, cluster.name, replicas=cluster.replicas, record=record)
            while not replica.own().size:
                if is_stopped():
                    raise Unavailable(
                        "BUS_UNAVAILABLE", "the node was stopped before it reached the other nodes. Start it again."
                    )
                await _try(replica)
            await nats.close()
        finally:
            await asyncio.to_thread(server.stop)


async def _try(replica: Replica) -> None:
    try:
        await replica.follow()
    except (DamagedError, ForkedError, Unavailable) as error:
        log.info("waiting for the other nodes", error=message_of(error))
        replica.forget_stream()
        await asyncio.sleep(retry_s)
