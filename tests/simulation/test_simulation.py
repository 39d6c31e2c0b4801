"""Worlds of nodes, servers, agents and subscribers keep every invariant, whatever faults hit them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

import pytest
from faults import is_long_run, metrics, note, times

from tests.simulation.fate import Outcome, run_seed
from tests.simulation.planted import PLANTED, WORLDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

# A killed program may leave coroutines that never started, of which Python would warn.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

SHARES: Final = 8
SEEN_FROM: Final = {
    "an unknown outcome counts as published": 241,
    "publishing does not compare": 1,
    "whatever fills the next stream counts as ours": 34,
    "a node publishes at once after it was interrupted": 24,
    "a node publishes although another log is longer": 176,
    "a node refuses by a log that may lack the latest entries": 304,
    "a server that was cut off is believed": 117,
}
"""For each fault, the first seed that showed it at the time of writing: ``make test`` starts there."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.freeze()  # worlds have many reference cycles; they are found faster if older objects are not examined
    yield
    gc.collect()  # otherwise objects of a world would cause warnings in another test


def broken(outcome: Outcome) -> str:
    """Return the violation and the command that repeats it."""
    return f"{outcome.violation}: python -m tests.simulation --seed {outcome.seed} --trace"


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(1800)
def test_no_world_breaks_a_promise(share: int) -> None:
    count = times(40, 400) // SHARES
    outcomes = [run_seed(seed) for seed in range(share * count, (share + 1) * count)]
    assert [broken(outcome) for outcome in outcomes if outcome.violation] == []
    assert len({outcome.entries for outcome in outcomes}) > 1  # the worlds differ
    for name in ("entries", "acknowledged", "effects", "changes", "faults"):
        metrics(f"{name} in simulated worlds", sum(getattr(outcome, name) for outcome in outcomes))


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.timeout(600)
def test_a_planted_fault_is_seen(name: str) -> None:
    first = 0 if is_long_run else SEEN_FROM.get(name, 0)
    for seed in range(first, first + WORLDS_MAX):
        with PLANTED[name]():
            outcome = run_seed(seed)
        if outcome.violation is not None:
            note(f"planted: {name}: seed {seed}: {outcome.violation}")
            return
    pytest.fail(f"{WORLDS_MAX} worlds did not show it")


def test_a_seed_is_the_same_world_every_time() -> None:
    first, second = (run_seed(seed, is_traced=True) for seed in (1, 1))
    assert first == second
    assert first.trace
    assert first.changes
