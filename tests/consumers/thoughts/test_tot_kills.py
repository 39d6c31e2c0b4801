"""Agents are killed at random points of a search: the answer stays the same, and no message is answered twice."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import Ledger
from faults import times
from serving import make_home
from tot_playing import ANSWER, PROBLEM, check, events, play_part, read, resume

from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.thoughts.processes import Processes
from deedbook.consumers.thoughts.run import outcome, prepare, resume_task, role_keys
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Exit, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.consumers.thoughts.processes import Assignment
    from deedbook.ledger.client.client import Client

SEED = os.environ.get("DEEDBOOK_SEED")
EVENTS = 64


def wait_for(client: Client, part: Assignment, count: int, actors: Processes) -> None:
    """Wait until a task has ``count`` events, or is over."""
    position, seen = part.start, 0
    while seen < count and not actors.is_done():
        page = client.entries(position, stream=f"tot/{part.opening.task_id}", wait_s=0.5)
        position, seen = page.next_index, seen + len(page.entries)


def kill_until_given_up(actors: Processes) -> None:
    """Kill the generator whenever it runs."""
    while not actors.is_done():
        actors._children["generator"]._process.kill()
        actors._children["generator"].wait()


def begin(ledger: Ledger) -> Assignment:
    """Return a new task."""
    with ledger.client() as client:
        return prepare(ledger.settings(), client, PROBLEM, TaskOptions(thinker="game24"))


def check_solved(ledger: Ledger, part: Assignment) -> None:
    """Check that a task was solved as if no process had died."""
    task = read(ledger, part.opening.task_id)
    found = outcome(task)
    assert (found["answer"], found["stats"]["total_nodes"], found["stats"]["rounds"]) == (ANSWER, 51, 10)
    check(ledger, part.opening.task_id)
    assert len(events(ledger, f"reasoning/{part.opening.task_id}")) == 7


@pytest.mark.long_run
@pytest.mark.parametrize("number", range(times(1, 2)))
def test_killed_agent_is_started_again_and_goes_on(ledger: Ledger, number: int) -> None:
    chance = random.Random(None if SEED is None else f"{SEED}-{number}")
    part = begin(ledger)
    with ledger.client() as client, Processes(part) as actors:
        for _ in range(2):
            wait_for(client, part, chance.randint(1, EVENTS), actors)
            actors._children[chance.choice(list(AGENTS))]._process.kill()
        while not actors.is_done():
            wait_for(client, part, 1_000, actors)
    check_solved(ledger, part)


@pytest.mark.long_run
@pytest.mark.parametrize("number", range(times(1, 2)))
def test_task_whose_agents_were_all_killed_is_resumed(ledger: Ledger, number: int) -> None:
    chance = random.Random(None if SEED is None else f"{SEED}-{number}")
    part = begin(ledger)
    with ledger.client() as client, Processes(part) as actors:
        wait_for(client, part, chance.randint(1, EVENTS), actors)
        for child in actors._children.values():
            child._process.kill()
    found = resume(ledger, part.opening.task_id)
    assert found["answer"] == ANSWER
    check_solved(ledger, part)


@pytest.mark.parametrize("number", range(times(1, 1)))
def test_agents_killed_over_the_bus_lose_nothing(home: Path, number: int) -> None:
    chance = random.Random(None if SEED is None else f"{SEED}-{number}")
    settings = make_home(home)

    def search(server: str) -> dict[str, Any]:
        remote = msgspec.structs.replace(settings, server=server, agent=AGENTS["orchestrator"])
        with open_client(remote) as client:
            part = prepare(remote, client, PROBLEM, TaskOptions(thinker="game24"))
            with Processes(part) as actors:
                wait_for(client, part, chance.randint(1, EVENTS), actors)
                actors._children[chance.choice(list(AGENTS))]._process.kill()
                wait_for(client, part, chance.randint(1, EVENTS), actors)
                for child in actors._children.values():
                    child._process.kill()
            return resume_task(remote, part.opening.task_id, client=client)

    async def run() -> dict[str, Any]:
        async with Node(settings) as node:
            return await asyncio.to_thread(search, node.url)

    with LocalClient(settings) as client:
        keys = role_keys(settings, client)
    found = asyncio.run(run())
    assert (found["answer"], found["stats"]["total_nodes"], found["keys"]) == (ANSWER, 51, keys)
    with Ledger(home) as ledger:
        check(ledger, found["task_id"])


def test_agents_whose_starter_is_gone_end_by_themselves(ledger: Ledger) -> None:
    part = begin(ledger)
    with ledger.client() as client, Processes(part) as actors:
        wait_for(client, part, 10, actors)
        for child in actors._children.values():
            child.connection.close()
        assert {child._process.wait(30) for child in actors._children.values()} <= {Exit.OK, Exit.UNAVAILABLE}
    assert play_part(ledger, Game24(), part)["answer"] == ANSWER
    check_solved(ledger, part)


def test_agent_that_dies_again_and_again_ends_the_attempt(ledger: Ledger) -> None:
    part = begin(ledger)
    with ledger.client() as client, Processes(part) as actors:
        wait_for(client, part, 1, actors)
        with pytest.raises(Unavailable, match="the generator process ended 4 times"):
            kill_until_given_up(actors)
    assert play_part(ledger, Game24(), part)["answer"] == ANSWER
