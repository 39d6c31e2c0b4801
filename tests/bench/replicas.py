"""What three replicas cost, measured: three servers on loopback beside one, each of which syncs every message.

A log's events are published one by one, as a leader does that waits for each, in turn to the one server and to the
three: the difference of the medians is what a majority takes without a wire. Then a follower takes them over from the
three, and its own processor time is counted. All four share this machine: three machines would not wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, open_stream
from deedbook.ledger.log.log import Log
from tests.bench.pairs import scaled
from tests.bench.servers import connected, servers
from tests.bench.workload import MAP_SIZE, open_ledger, singles

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client as NatsClient

    from tests.building import Ledger

EVENTS: Final = scaled(400, 10)
REPLICAS: Final = 3


class Replicated(NamedTuple):
    """What is paid beside one node: how much longer a publish takes, and a follower's processor, an event."""

    more_s: float
    followed_s: float


def measured(folder: Path) -> Replicated:
    """Measure both, in a folder of their own."""
    with (
        servers(folder / "one", sync="always") as one,
        servers(folder / "three", sync="always", count=REPLICAS) as three,
        open_ledger(folder / "leader") as ledger,
    ):
        return asyncio.run(_measured(folder, ledger, one[0], three[0]))


async def _measured(folder: Path, ledger: Ledger, one: str, three: str) -> Replicated:
    (folder / "follower" / "log").mkdir(parents=True)
    async with connected(one) as alone, connected(three, NodeClient) as replicated:
        with contextlib.closing(Log(folder / "follower", map_size=MAP_SIZE, create=True)) as log:
            publishers = [await _opened(alone, ledger, 1), await _opened(replicated, ledger, REPLICAS)]
            follower = Replica(
                lambda: replicated, log, ledger.id, "node-2", replicas=REPLICAS, record=folder / "generation.json"
            )
            times: list[list[float]] = [[], []]
            ready = singles(ledger, "replicated", EVENTS)
            for publisher in publishers:
                await publisher.publish_next()  # what the session began with
            await follower.follow()
            for number, submission in enumerate(ready):
                ledger.submit(submission)
                for side in (number % 2, 1 - number % 2):
                    began_s = time.perf_counter()
                    await publishers[side].publish_next()
                    times[side].append(time.perf_counter() - began_s)
            began_s = time.process_time()
            await follower.follow()
            followed_s = (time.process_time() - began_s) / EVENTS
    return Replicated(max(0.0, statistics.median(times[1]) - statistics.median(times[0])), followed_s)


async def _opened(client: NatsClient, ledger: Ledger, replicas: int) -> StreamPublisher:
    generation = await open_stream(client, Generation(ledger.id), replicas)
    publisher = StreamPublisher(client, generation, Outbox(ledger.log, ledger.id).read)
    await publisher.start()
    while await publisher.publish_next():
        pass
    return publisher
