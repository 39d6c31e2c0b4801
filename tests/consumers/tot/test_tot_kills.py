"""Agents are killed at random points of a search: the answer stays the same, and no message is answered twice."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tot_playing import ANSWER, PROBLEM, check, events, read, resume

from consumers.tot.orchestrating import TaskOptions
from consumers.tot.processes import Cast
from consumers.tot.running import outcome, prepare
from consumers.tot.task import AGENTS
from ledger.errors import Exit, Unavailable

if TYPE_CHECKING:
    from building import Ledger

    from consumers.tot.processes import Part

FAULTS = int(os.environ.get("BATON_FAULTS", "1"))
SEED = os.environ.get("BATON_SEED")
EVENTS = 64


def wait_for(ledger: Ledger, part: Part, count: int, actors: Cast) -> None:
    """Wait until a task has so many events, or is over."""
    position, seen = part.start, 0
    with ledger.client() as client:
        while seen < count and not actors.is_done():
            page = client.entries(position, stream=f"tot/{part.task_id}", wait_s=0.5)
            position, seen = page.next_index, seen + len(page.entries)


def kill_until_given_up(actors: Cast) -> None:
    """Kill the generator whenever it is there."""
    while not actors.is_done():
        actors._children["generator"].kill()


def begin(ledger: Ledger) -> Part:
    """Return a new task."""
    with ledger.client() as client:
        return prepare(ledger.settings(), client, PROBLEM, TaskOptions(), thinker="game24")


def check_solved(ledger: Ledger, part: Part) -> None:
    """Check that a task was solved as if nobody had died."""
    task = read(ledger, part.task_id)
    found = outcome(task)
    assert (found["answer"], found["stats"]["total_nodes"], found["stats"]["rounds"]) == (ANSWER, 36, 7)
    check(ledger, part.task_id)
    assert len(events(ledger, f"reasoning/{part.task_id}")) == 7


@pytest.mark.parametrize("number", range(2 * FAULTS))
def test_killed_agent_is_started_again_and_goes_on(ledger: Ledger, number: int) -> None:
    chance = random.Random(None if SEED is None else f"{SEED}-{number}")
    part = begin(ledger)
    with Cast(part) as actors:
        for _ in range(2):
            wait_for(ledger, part, chance.randint(1, EVENTS), actors)
            actors._children[chance.choice(list(AGENTS))].kill()
        while not actors.is_done():
            wait_for(ledger, part, 1_000, actors)
    check_solved(ledger, part)


@pytest.mark.parametrize("number", range(2 * FAULTS))
def test_task_whose_agents_were_all_killed_is_resumed(ledger: Ledger, number: int) -> None:
    chance = random.Random(None if SEED is None else f"{SEED}-{number}")
    part = begin(ledger)
    with Cast(part) as actors:
        wait_for(ledger, part, chance.randint(1, EVENTS), actors)
        for child in actors._children.values():
            child.kill()
    found = resume(ledger, part.task_id)
    assert found["answer"] == ANSWER
    check_solved(ledger, part)


def test_agents_whose_starter_is_gone_end_by_themselves(ledger: Ledger) -> None:
    part = begin(ledger)
    with Cast(part) as actors:
        wait_for(ledger, part, 10, actors)
        for child in actors._children.values():
            child.stdin.close()
        assert {child.wait(30) for child in actors._children.values()} <= {Exit.OK, Exit.UNAVAILABLE}
    assert resume(ledger, part.task_id)["answer"] == ANSWER
    check_solved(ledger, part)


def test_agent_that_dies_again_and_again_ends_the_attempt(ledger: Ledger) -> None:
    part = begin(ledger)
    with Cast(part) as actors:
        wait_for(ledger, part, 1, actors)
        with pytest.raises(Unavailable, match="the generator ended 4 times"):
            kill_until_given_up(actors)
    assert resume(ledger, part.task_id)["answer"] == ANSWER
