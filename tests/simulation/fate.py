"""The world of a seed: its programs, the faults that hit them, and the check that all work is done afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from deedbook.consumers.interfaces.node import generations, membership, publication, replica, stream_order
from deedbook.consumers.sdk import reactor
from deedbook.ledger.admission import follower, gate
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.format import identity
from deedbook.ledger.format.identity import verify
from tests.simulation.client import Network
from tests.simulation.cluster import Cluster, entry_in
from tests.simulation.cluster_node import ClusterNode
from tests.simulation.invariants import Invariants
from tests.simulation.people import SimAgent, SimSubscriber
from tests.simulation.solo_node import Record, SoloNode
from tests.simulation.story import AGENTS, NODES, first_log
from tests.simulation.thread import Outcome as ThreadOutcome
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.memory_log import MemoryLog

faults_last_s: Final = 25.0
rest_max_s: Final = 180.0
rest_step_s: Final = 2.0
calm_s: Final = 25.0
cluster_share: Final = 0.8
tick_s: Final = 0.2


@dataclass(frozen=True)
class Outcome:
    """The outcome of one world."""

    seed: int
    entries: int
    acknowledged: int
    effects: int
    faults: int
    changes: int
    trace: list[str]
    violation: Violation | None = None


@contextlib.contextmanager
def parts(world: World) -> Iterator[None]:
    """Replace everything that uses the machine by parts of the world: clocks, files, log lines, signature checks."""

    def read(record: Record, ledger: str) -> Generation:
        return record.generation or Generation(ledger)

    def write(record: Record, generation: Generation) -> None:
        record.generation = generation

    def nowhere(*_arguments: object, **_options: object) -> contextlib.AbstractContextManager[BytesIO]:
        return contextlib.nullcontext(BytesIO())

    def now_ms() -> int:
        return world.current.monotonic_ms()

    notes = Notes(world)
    clock = SimpleNamespace(time_ns=lambda: world.current.wall_ms() * 1_000_000)
    running = SimpleNamespace(monotonic=lambda: now_ms() / 1000, time=lambda: world.current.wall_ms() / 1000)
    with contextlib.ExitStack() as stack:
        for module, name, part in (
            (publication, "read_record", read),
            (publication, "write_record", write),
            (generations, "read_record", read),
            (replica, "write_record", write),
            (replica, "near_least", 1),
            (replica, "time", running),
            (stream_order, "time", running),
            (membership, "replacing", nowhere),
            (publication, "log", notes),
            (stream_order, "log", notes),
            (generations, "log", notes),
            (membership, "log", notes),
            (reactor, "log", notes),
            (publication, "scrub_every_s", 10.0),
            (membership, "scrub_every_s", 10.0),
            (membership, "tick_s", tick_s),
            (membership, "_now_ms", now_ms),
            (gate, "time", clock),
            (asyncio, "run_coroutine_threadsafe", ThreadOutcome),
            (follower, "verify", _verify),
            (identity, "verify", _verify),
            (replica, "entry_at", entry_in),
            (stream_order, "_chance", world.random),
        ):
            stack.enter_context(mock.patch.object(module, name, part))
        yield


class Notes:
    """Writes the log messages of programs as lines of the trace."""

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, event: str, **details: Any) -> None:
        if self._world.trace is not None:
            self._world.tell(self._world.current.host, f"{event} {details or ''}")

    debug = warning = error = info

    def exception(self, event: str, **details: Any) -> None:
        self._world.violate(f"{self._world.current.host}: {event} {details}", sys.exc_info()[1])


_verify: Final = lru_cache(maxsize=100_000)(verify)


class Fate:
    """The programs in a world, and the faults that hit them."""

    def __init__(self, world: World) -> None:
        self.world, random = world, world.random
        self.is_cluster = random.random() < cluster_share
        self.cluster = Cluster(self.world, NODES if self.is_cluster else NODES[:1])
        self.network = Network(self.world, self.cluster, delay_s=random.choice([0.001, 0.005, 0.03]))
        self.network.loss, self.network.twice = random.choice([0.0, 0.01, 0.1]), random.choice([0.0, 0.02])
        self.invariants = Invariants(self.world, self.cluster, first_log().data, is_published_first=self.is_cluster)
        self.nodes: list[Any] = [self._node(host) for host in self.cluster.hosts]
        most = random.choice([14, 14, 60])  # in some worlds, agents submit for a long time
        self.agents = [SimAgent(self.network, name, random.randrange(2, most), self.invariants) for name in AGENTS]
        self.subscribers = [SimSubscriber(self.world, self.network, "watch", self._readable)]
        self.faults = 0
        self.is_over = False
        self._calm_until = 0.0
        self._pace_s = random.choice([0.5, 2.0, 6.0])
        self.world.later(random.expovariate(1 / self._pace_s), self._strike)

    def _node(self, host: str) -> SoloNode | ClusterNode:
        if not self.is_cluster:
            return SoloNode(self.network, host, self.invariants)
        return ClusterNode(self.network, host, self.invariants)

    def _readable(self) -> MemoryLog | None:
        return self.world.random.choice(self.nodes).readable  # type: ignore[no-any-return]

    def _strike(self) -> None:
        if self.is_over:
            return
        random = self.world.random
        self.world.later(random.expovariate(1 / self._pace_s), self._strike)
        if self.world.now < self._calm_until:
            self._strike_one()
            return
        name = random.choice(FAULTS)
        self.world.tell("fault", name.removeprefix("fault_").replace("_", " "))
        getattr(self, name)()
        self.faults += 1

    def fault_node_killed(self) -> None:
        node = self.world.random.choice(self.nodes)
        node.process.kill()
        self.world.later(self.world.random.uniform(0.1, 3.0), node.start)

    def fault_node_stopped(self) -> None:
        node = self.world.random.choice(self.nodes)
        node.process.stop_for(self.world.random.uniform(0.5, 20.0))

    def fault_node_stopped_before_it_appends(self) -> None:
        node = self.world.random.choice(self.nodes)
        if self.is_cluster:
            node.at_publish = lambda: node.process.stop_for(self.world.random.uniform(0.5, 10.0))

    def fault_node_killed_before_it_appends(self) -> None:
        node = self.world.random.choice(self.nodes)

        def kill() -> None:
            self.world.later(0.0, node.process.kill)
            self.world.later(self.world.random.uniform(0.1, 3.0), node.start)

        if self.is_cluster:
            node.at_publish = kill

    def fault_agent_killed(self) -> None:
        agent = self.world.random.choice(self.agents)
        agent.process.kill()
        self.world.later(self.world.random.uniform(0.1, 3.0), agent.start)

    def fault_subscriber_killed(self) -> None:
        self.subscribers[0].disk.dies_in = self.world.random.randrange(30)

    def fault_server_killed(self) -> None:
        host = self.world.random.choice(self.cluster.hosts)
        self.cluster.kill(host)
        self.world.later(self.world.random.uniform(0.1, 3.0), self.cluster.revive, host)

    def fault_store_damaged(self) -> None:
        """Damage the stream while a healthy node has all entries; spare this node until the damage is repaired."""
        if self.is_cluster:
            stream = self.cluster.log_stream()
            if not self._is_calm() or (stream and stream.last_seq > len(self.invariants.history)):
                return  # the only copy of a published entry may be in the stream, if no node has appended it yet
            self._calm_until = self.world.now + calm_s
        if any(len(node.log.data) == len(self.invariants.history) for node in self.nodes):
            self.cluster.damage()  # otherwise nothing could restore the damaged messages

    def fault_newest_entry_lost_while_a_node_starts(self) -> None:
        """Let all servers lose an entry that one node has published but not yet appended, while another node starts."""
        if self.is_cluster:
            having, starting = self.world.random.sample(self.nodes, 2)
            having.at_publish = lambda: self._lose_newest(having, starting)

    def _lose_newest(self, having: Any, starting: Any) -> None:
        stream = self.cluster.log_stream()
        if stream is None or self.world.now < self._calm_until or not self._is_calm():
            return  # otherwise no node may be left that has the entry
        self._calm_until = self.world.now + calm_s
        self.cluster.lose_from(stream, len(having.log.data) + 1)
        starting.process.kill()
        self.world.later(self.world.random.uniform(0.1, 1.5), starting.start)
        # A node waits 2.5 s for nodes that it does not hear; the node that has the entry stops for a shorter time.
        self.world.later(0.05, having.process.stop_for, self.world.random.uniform(0.1, 2.0))

    def _is_calm(self) -> bool:
        """Return whether all nodes run and reach each other, and a node that accepts submissions has all entries."""
        size, now = len(self.invariants.history), self.world.now
        bus = self.cluster
        if bus.down or bus.apart or bus.leader is None or now < bus.led_since + 1:
            return False
        if not all(one.process.is_alive and one.process.stopped_until < now - 5 for one in self.nodes):
            return False
        return any(one.subscription is not None and len(one.log.data) == size for one in self.nodes)

    def _strike_one(self) -> None:
        """Kill or stop a node while a damaged stream is repaired, if every node knows what has to be repaired."""
        size = len(self.invariants.history)
        nodes = [one for one in self.nodes if hasattr(one, "membership")] if self.is_cluster else []
        knowing = [one for one in nodes if max(len(one.log.data), one.membership.state.head) == size]
        if len(knowing) != len(self.nodes) or not all(self._is_well(one) for one in nodes):
            return
        self.faults += 1
        node = self.world.random.choice(self.nodes)
        if self.world.chance(0.5):
            self.world.tell("fault", f"{node.host} killed during a repair")
            node.process.kill()
            self.world.later(self.world.random.uniform(0.1, 1.5), node.start)
        else:
            self.world.tell("fault", f"{node.host} stopped during a repair")
            node.process.stop_for(self.world.random.uniform(0.5, 10.0))

    def _is_well(self, node: Any) -> bool:
        return bool(node.process.is_alive and node.process.stopped_until < self.world.now - 3)

    def fault_partition(self) -> None:
        if self.is_cluster and not self.cluster.apart:
            self.cluster.apart = frozenset([self.world.random.choice(self.cluster.hosts)])
            self.cluster.review()
            self.world.later(self.world.random.uniform(0.5, 15.0), self._join)

    def _join(self) -> None:
        self.cluster.apart = frozenset()
        self.cluster.review()

    def fault_clock_jumps(self) -> None:
        self.world.skew_s[self.world.random.choice(self.cluster.hosts)] = self.world.random.uniform(-30.0, 30.0)

    def fault_copy_put_back(self) -> None:
        node = self.nodes[0]
        if self.is_cluster:
            return
        if node.backup is None:
            node.backup = node.log.copy()
            return
        if node.record.generation is None or not self.cluster.holds(self.invariants.history):
            return  # no loss of the disk while it has the only copy of an entry
        node.process.kill()
        node.log, node.backup = node.backup, None
        self.world.later(self.world.random.uniform(0.1, 3.0), node.start)

    def run(self) -> Outcome:
        violation: Violation | None = None
        try:
            self.world.run(faults_last_s)
            self._heal()
            while not self._is_at_rest():
                if self.world.now > faults_last_s + rest_max_s:
                    self.world.violate(f"nothing came to rest within {rest_max_s:.0f} s: {self._unrest()}")
                    break
                self.world.run(self.world.now + rest_step_s)
            if self.world.violation is None:
                self._check_end()
            violation = self.world.violation
        except Violation as error:
            violation = error
        for node in self.nodes:
            node.process.kill()
        self.world.end()
        world, invariants = self.world, self.invariants
        effects = sum(len(one.disk.db.execute("SELECT 1 FROM effects").fetchall()) for one in self.subscribers)
        return Outcome(
            world.seed,
            len(invariants.history),
            len(invariants.acknowledged),
            effects,
            self.faults,
            len(invariants.writers),
            world.trace or [],
            violation,
        )

    def _heal(self) -> None:
        self.is_over = True
        self.network.loss = self.network.twice = 0.0
        self.cluster.apart = frozenset()
        self.cluster.revive(*self.cluster.hosts)
        for subscriber in self.subscribers:
            subscriber.death_chance = 0.0
        self.world.tell("fault", "none from now on")

    def _unrest(self) -> str:
        size = len(self.invariants.history)
        unrest = [f"{agent.name} waits for an answer" for agent in self.agents if not agent.is_done]
        unrest += [
            f"{node.host} has {len(node.log.data)} of {size}" for node in self.nodes if len(node.log.data) < size
        ]
        unrest += ["the stream is not the log"] if not self.cluster.holds(self.invariants.history) else []
        unrest += [f"{one.name} is at {one.position}" for one in self.subscribers if one.position < size]
        return ", ".join(unrest)

    def _is_at_rest(self) -> bool:
        return not self._unrest()

    def _check_end(self) -> None:
        self.invariants.check_end({node.host: node.log for node in self.nodes})
        for subscriber in self.subscribers:
            subscriber.check_end(self.invariants)


FAULTS: Final = [name for name in vars(Fate) if name.startswith("fault_")]


def run_seed(seed: int, *, is_traced: bool = False) -> Outcome:
    """Run the world of a seed."""
    world = World(seed, is_traced=is_traced)
    with parts(world):
        return Fate(world).run()
