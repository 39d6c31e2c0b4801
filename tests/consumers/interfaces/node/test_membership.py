"""A node retires the log stream and may end at any point: the other nodes continue in the next, and lose nothing.

The world is the simulator's, without its faults except the one that a test names.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from deedbook.consumers.interfaces.node import generations, membership, replica
from deedbook.consumers.interfaces.node.generations import Generations
from deedbook.consumers.interfaces.node.stream_order import StreamOrder
from deedbook.ledger.admission.order import OvertakenError
from deedbook.ledger.bus.stream import Generation, log_stream_config, retire
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication.state import Beat, NodeState, Timing
from tests.simulation.fate import Fate, parts
from tests.simulation.story import actors
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
SEED_OF_A_CLUSTER: Final = 3
is_in_contact = NodeState.is_in_contact


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()  # otherwise the remains of a world would raise warnings in another test


def writer(fate: Fate) -> Any:
    """Return a node that takes submissions."""
    return next(node for node in fate.nodes if node.subscription is not None)


@pytest.fixture
def fate(world: World) -> Iterator[Fate]:
    """A world of three nodes without faults, after six seconds."""
    with parts(world):
        fate = Fate(world)
        fate.is_over, fate.network.loss, fate.network.twice = True, 0.0, 0.0
        world.run(6.0)
        yield fate


@pytest.fixture
def world() -> World:
    """The world of a seed that has several nodes."""
    return World(SEED_OF_A_CLUSTER)


def hear(listener: Any, subject: str, **fields: Any) -> None:
    """Deliver a heartbeat to a node on a subject."""
    beat = Beat(**{"node": "node-b", "size": 1} | fields)
    message = SimpleNamespace(subject=f"deedbook.{actors().id}.node.{subject}", data=msgspec.json.encode(beat))
    with pytest.raises(StopIteration):
        listener.membership._hear(message).send(None)


def test_a_heartbeat_counts_for_the_node_on_whose_subject_it_comes_and_of_nodes_alone(fate: Fate) -> None:
    node = writer(fate)
    others, before = {other.host for other in fate.nodes} - {node.host}, node.membership.state
    other = min(others)
    hear(node, min(others - {other}), node=other)
    for number in range(50):
        hear(node, f"stranger-{number}", node=f"stranger-{number}")
    assert set(node.membership.state.peers) == others
    assert node.membership.state is before
    hear(node, other, node=other)
    assert node.membership.state.peers[other].beat.size == 1


def test_every_node_takes_submissions_and_one_alone_runs_the_workers(fate: Fate) -> None:
    assert all(node.subscription is not None for node in fate.nodes)
    assert [node.host for node in fate.nodes if node.membership.works] == ["node"]


def test_a_node_that_leaves_is_not_waited_for_and_takes_nothing_more(fate: Fate, world: World) -> None:
    leaving, *others = fate.nodes
    leaving.process.run_task(leaving.membership.leave())
    world.run(world.now + 1)
    assert leaving.subscription is None
    assert not leaving.membership.works
    assert all(other.membership.state.peers[leaving.host].beat.leaves for other in others)


def retired(fate: Fate) -> None:
    stream = fate.cluster.streams[Generation(actors().id).name]
    fate.cluster.update_stream(stream.config.evolve(subjects=[retired_subject(actors().id, 1)], republish=None))


def retired_and_the_next_left_empty(fate: Fate) -> None:
    node = writer(fate)
    while len(node.log.data) < fate.cluster.streams[Generation(actors().id).name].last_seq:
        fate.world.run(fate.world.now + 0.01)
    retired(fate)
    with node.log.snapshot() as snapshot:
        head = Generation(actors().id, 2, size=snapshot.size, root=snapshot.root().hex())
    fate.cluster.add_stream(log_stream_config(head))


def retired_by_a_node_that_dies_then(fate: Fate) -> None:
    node = writer(fate)
    retired(fate)
    node.process.kill()
    fate.world.later(1.0, node.start)


async def unsent() -> None:
    """Send no heartbeat."""


def retired_while_a_node_that_nobody_hears_writes_and_dies(fate: Fate) -> None:
    retiring, writing, stopped = fate.nodes
    writing.membership._send_beat = unsent
    stopped.process.stop_for(6.0)

    async def retire_late(*arguments: Any) -> None:
        before = len(retiring.log.data)
        await asyncio.sleep(1.0)
        assert len(writing.log.data) > before == len(retiring.log.data)
        writing.process.kill()
        fate.world.later(30.0, writing.start)
        await retire(*arguments)

    async def begin() -> None:
        with mock.patch.object(generations, "retire", retire_late):
            await retiring.generations.rebuild(1)

    retiring.process.run_task(begin())


def found_damaged_by_two_nodes_at_once(fate: Fate) -> None:
    for node in fate.nodes[:2]:
        node.process.run_task(node.membership._attempt(node.generations.rebuild(1)))


def stated_by_a_node_that_dies_before_it_fills(fate: Fate) -> None:
    node, *others = fate.nodes
    for other in others:
        other.process.stop_for(10.0)

    async def begin() -> None:
        await node.generations.rebuild(1)
        node.process.kill()
        fate.world.later(20.0, node.start)

    node.process.run_task(begin())


@pytest.mark.parametrize(
    "happens",
    [
        retired,
        retired_and_the_next_left_empty,
        retired_by_a_node_that_dies_then,
        retired_while_a_node_that_nobody_hears_writes_and_dies,
        found_damaged_by_two_nodes_at_once,
        stated_by_a_node_that_dies_before_it_fills,
    ],
)
def test_a_stream_that_is_retired_is_followed_by_the_next(fate: Fate, happens: Callable[[Fate], None]) -> None:
    happens(fate)
    before = len(fate.invariants.acknowledged)
    outcome = fate.run()
    assert outcome.violation is None
    assert outcome.acknowledged > before
    assert len(fate.cluster.streams) > 1


async def look_only(self: Generations, number: int) -> bool:
    """Return whether there is a retired stream, as ``Generations._take_over`` does, without reading from it."""
    try:
        await replica.stream_info(self._replica.nats(), Generation(self._replica.ledger, number))
    except Unavailable as error:
        if error.code != "BUS_DEGRADED":
            raise
        return False
    return True


def test_a_fault_that_leaves_what_a_retired_stream_was_given_last_is_seen(fate: Fate) -> None:
    with mock.patch.object(Generations, "_take_over", look_only):
        retired_while_a_node_that_nobody_hears_writes_and_dies(fate)
        outcome = fate.run()
    assert outcome.violation is not None


def until(fate: Fate, is_true: Callable[[], bool], stopped: Any = None) -> None:
    """Let time pass until a condition holds; ``stopped`` is a node that does not run meanwhile."""
    for _ in range(3000):
        if is_true():
            return
        if stopped is not None:
            stopped.process.stop_for(0.03)
        fate.world.run(fate.world.now + 0.02)
    pytest.fail("it did not become true")


def lost_at_all_servers_while_a_node_starts(fate: Fate) -> None:
    """Lose entries that only one node has, and another knows of; start a third node before it hears from the first."""
    having, knowing, starting = fate.nodes
    cluster, lost = fate.cluster, list[int]()

    def lose() -> None:
        stream = cluster.log_stream()
        assert stream is not None
        lost.append(stream.last_seq)
        cluster.lose_from(stream, len(having.log.data) + 1)
        starting.process.kill()

    having.membership._send_beat = unsent
    having.at_publish = lose
    until(fate, lambda: bool(lost) and len(having.log.data) == lost[0])
    hear(knowing, having.host, node=having.host, size=lost[0])
    until(fate, lambda: cluster.leader is not None and not cluster.down, having)
    starting.start()
    having.process.stop_for(2.2)
    del having.membership._send_beat


def filled_as_far_as_the_shortest_log(fate: Fate) -> None:
    """Leave a node with a shorter log alone with a new stream that is filled only to the end of that log."""
    shorter, *others = fate.nodes
    stream = fate.cluster.streams[Generation(actors().id).name]
    for other in others:
        other.membership._send_beat = unsent
    size = len(shorter.log.data)
    until(fate, lambda: all(size < len(other.log.data) == stream.last_seq for other in others), shorter)
    for other in others:
        other.process.kill()
        fate.world.later(20.0, other.start)
    retired(fate)
    with others[0].log.snapshot() as snapshot:
        head = Generation(actors().id, 2, size=snapshot.size, root=snapshot.root().hex())
    fate.cluster.add_stream(log_stream_config(head))
    following = fate.cluster.streams[head.name]
    following.messages = {seq: stream.messages[seq] for seq in range(1, size + 1)}
    following.last_seq = size


def publish_before_the_fill(self: StreamOrder, _start: int) -> Generation:
    if self._replica.generation is None or not self._replica.permits():
        raise OvertakenError
    return self._replica.generation


def in_contact_with_those_it_met(self: NodeState, now_ms: int, timing: Timing) -> bool:
    return is_in_contact(replace(self, awaited=frozenset(self.peers)), now_ms, timing)


@pytest.mark.parametrize(
    ("happens", "part", "name", "fault"),
    [
        (lost_at_all_servers_while_a_node_starts, NodeState, "is_in_contact", in_contact_with_those_it_met),
        (filled_as_far_as_the_shortest_log, StreamOrder, "_check_order", publish_before_the_fill),
    ],
)
@pytest.mark.parametrize("is_planted", [False, True])
def test_a_rule_that_keeps_entries_is_needed(
    fate: Fate, happens: Callable[[Fate], None], part: type, name: str, fault: Callable[..., Any], *, is_planted: bool
) -> None:
    with mock.patch.object(part, name, fault) if is_planted else nullcontext():
        happens(fate)
        outcome = fate.run()
    assert (outcome.violation is not None) == is_planted, outcome.violation


def test_a_stream_that_no_server_leads_for_long_is_a_fault_that_names_the_runbook_until_one_does(
    fate: Fate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: Any) -> None:
        raise Unavailable("BUS_UNAVAILABLE", "nats: timeout")

    node = writer(fate)
    world.current = node.process  # each process has its own clock
    assert node.membership._beat().fault == ""
    with monkeypatch.context() as patch:
        patch.setattr(replica, "stream_info", nobody)
        world.run(world.now + 3)
        world.current = node.process
        assert node.membership._beat().fault == ""
        patch.setattr(membership, "stream_silent_max_s", 1.0)
        assert "Rebuild a stream" in node.membership.view().nodes[0].fault
    world.run(world.now + 20)
    world.current = node.process
    assert node.membership._beat().fault == ""
