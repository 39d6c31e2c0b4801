"""A node retires the log stream and may end at any point: the other nodes continue in the next, and lose nothing.

The world is the simulator's, without its faults except the one that a test names.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from deedbook.consumers.interfaces.node import replica
from deedbook.ledger.bus.stream import Generation, log_stream_config
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication.signals import Beat, LeasePut, LeaseRefused, PutLease
from deedbook.ledger.service.nodes import LeaseBucket
from tests.simulation.fate import Fate, parts
from tests.simulation.story import actors
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
SEED_OF_A_CLUSTER: Final = 4


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()  # otherwise the remains of a world end in another test, which expects no warnings


def leader(fate: Fate) -> Any:
    return next(node for node in fate.nodes if node.subscription is not None)


def hear(listener: Any, subject: str, **fields: Any) -> None:
    """Deliver a heartbeat to a node on a subject."""
    beat = Beat(**{"node": "node-b", "term": 99, "size": 1, "leads": True} | fields)
    message = SimpleNamespace(subject=f"deedbook.{actors().id}.node.{subject}", data=msgspec.json.encode(beat))
    with pytest.raises(StopIteration):
        listener.membership._hear(message).send(None)


def test_a_heartbeat_counts_for_the_node_on_whose_subject_it_comes_and_of_nodes_alone() -> None:
    world = World(SEED_OF_A_CLUSTER)
    with parts(world):
        fate = Fate(world)
        fate.is_over, fate.network.loss, fate.network.twice = True, 0.0, 0.0
        world.run(3.0)
        node = leader(fate)
        others, before = {other.host for other in fate.nodes} - {node.host}, node.membership.state
        other = min(others)
        hear(node, min(others - {other}), node=other)
        for number in range(50):
            hear(node, f"stranger-{number}", node=f"stranger-{number}")
        assert set(node.membership.peers) == others
        assert node.membership._observations.empty()
        assert node.membership.state is before
        hear(node, other, node=other)
        assert node.membership.peers[other][0].term == 99


def retired(fate: Fate) -> None:
    stream = fate.cluster.streams[Generation(actors().id).name]
    fate.cluster.update_stream(stream.config.evolve(subjects=[retired_subject(actors().id, 1)], republish=None))


def retired_and_the_next_left_empty(fate: Fate) -> None:
    retired(fate)
    fate.cluster.add_stream(log_stream_config(Generation(actors().id, 2)))


def retired_by_its_leader_that_dies_then(fate: Fate) -> None:
    node = leader(fate)
    retired(fate)
    node.process.kill()
    fate.world.later(1.0, node.start)


def rebuilt_by_a_node_that_leads_no_more(fate: Fate) -> None:
    node = next(node for node in fate.nodes if node is not leader(fate))
    node.process.run_task(node.replica.rebuild())


@pytest.mark.parametrize("others_leave", [False, True])
def test_a_leader_that_is_ended_hands_over_also_when_the_first_answer_is_lost_and_waits_for_nobody_who_leaves(
    monkeypatch: pytest.MonkeyPatch, *, others_leave: bool
) -> None:
    world, lost = World(SEED_OF_A_CLUSTER), list[str]()
    put, ended = LeaseBucket.put, list[float]()

    async def put_later(self: LeaseBucket, change: PutLease) -> LeasePut | LeaseRefused:
        if change.lease.node != node.host and not lost:
            lost.append(change.lease.node)
            raise Unavailable("BUS_UNAVAILABLE", "the answer was lost")
        return await put(self, change)

    async def end(leaving: Any) -> None:
        await leaving.membership.leave()
        ended.append(world.now)

    with parts(world):
        fate = Fate(world)
        fate.is_over, fate.network.loss, fate.network.twice = True, 0.0, 0.0
        world.run(3.0)
        node, begun = leader(fate), world.now
        monkeypatch.setattr(LeaseBucket, "put", put_later)
        for leaving in fate.nodes if others_leave else [node]:
            leaving.process.run_task(end(leaving))
        world.run(world.now + 12)
    assert lost or others_leave
    assert max(ended) - begun < 5


@pytest.mark.parametrize(
    "happens",
    [
        retired,
        retired_and_the_next_left_empty,
        retired_by_its_leader_that_dies_then,
        rebuilt_by_a_node_that_leads_no_more,
    ],
)
def test_a_stream_that_is_retired_under_its_leader_is_followed_by_the_next(happens: Callable[[Fate], None]) -> None:
    world = World(SEED_OF_A_CLUSTER)
    with parts(world):
        fate = Fate(world)
        fate.is_over, fate.network.loss, fate.network.twice = True, 0.0, 0.0
        world.run(3.0)
        happens(fate)
        before = len(fate.invariants.acknowledged)
        outcome = fate.run()
    assert outcome.violation is None
    assert outcome.acknowledged > before
    assert len(fate.cluster.streams) > 1


def test_a_stream_that_no_server_leads_for_long_is_a_fault_that_names_the_runbook_until_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(SEED_OF_A_CLUSTER)

    async def nobody(*_: Any) -> None:
        raise Unavailable("BUS_UNAVAILABLE", "nats: timeout")

    with parts(world):
        fate = Fate(world)
        fate.is_over, fate.network.loss, fate.network.twice = True, 0.0, 0.0
        world.run(3.0)
        node = next(node for node in fate.nodes if node is not leader(fate))
        assert node.membership._beat().fault == ""
        with monkeypatch.context() as patch:
            patch.setattr(replica, "stream_info", nobody)
            world.run(6.0)
            assert node.membership._beat().fault == ""
            patch.setattr(replica, "stream_silent_max_s", -1.0)
            assert "Rebuild a stream" in node.membership.view().nodes[0].fault
        world.run(30.0)
        assert node.membership._beat().fault == ""
