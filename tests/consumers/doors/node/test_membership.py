"""Nodes whose log stream another one retires, wherever that one ends: they go on in the next, and lose nothing.

The world is the simulator's, without its faults: only the one that a test names befalls it.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.bus.stream import Incarnation, log_stream_config
from ledger.bus.subjects import retired_subject
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
    gc.collect()  # else what a world left behind ends in another test, which expects no warnings


def leader(fate: Fate) -> Any:
    return next(node for node in fate.nodes if node.door is not None)


def retired(fate: Fate) -> None:
    stream = fate.cluster.streams[Incarnation(actors().id).name]
    fate.cluster.update_stream(stream.config.evolve(subjects=[retired_subject(actors().id, 1)], republish=None))


def retired_and_the_next_left_empty(fate: Fate) -> None:
    retired(fate)
    fate.cluster.add_stream(log_stream_config(Incarnation(actors().id, 2)))


def retired_by_its_leader_that_dies_then(fate: Fate) -> None:
    node = leader(fate)
    retired(fate)
    node.process.kill()
    fate.world.later(1.0, node.start)


def rebuilt_by_a_node_that_leads_no_more(fate: Fate) -> None:
    node = next(node for node in fate.nodes if node is not leader(fate))
    node.process.run_task(node.replica.rebuild())


@pytest.mark.parametrize(
    "happens",
    [
        retired, retired_and_the_next_left_empty, retired_by_its_leader_that_dies_then,
        rebuilt_by_a_node_that_leads_no_more,
    ],
)  # fmt: skip
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
