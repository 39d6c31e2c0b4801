"""The events of agents. They are the same in every world, so that each is signed once for ten thousand worlds.

An agent starts a session and logs findings in it, singly and in signed batches. Every ledger refuses one submission in
nine, because it is about a session that nobody started.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import structs

from deedbook.ledger.admission.candidate import CheckedSubmission
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import CHECKPOINT, ROOT
from tests.building import GIVEN_MS, Actors, Clock, key_named
from tests.simulation.memory_log import MemoryLog

if TYPE_CHECKING:
    from deedbook.ledger.format.envelope import Submission

NODES: Final = ("node", "node-b", "node-c")
AGENTS: Final = ("ada", "ben", "cleo", "dan")


@cache
def actors() -> Actors:
    """Return root, node and agents with their keys."""
    clock = Clock(GIVEN_MS)
    return Actors(clock=clock)


def _node(people: Actors, name: str) -> Draft:
    draft, checkpoint = people.registered(name, ["node"]), key_named(f"{CHECKPOINT}/{name}")
    proof = checkpoint.prove_possession(people.id, f"{CHECKPOINT}/{name}")
    data = structs.replace(draft.data, checkpoint_key=checkpoint.public.hex(), checkpoint_proof=proof)
    return structs.replace(draft, data=data)


@cache
def _first_log() -> MemoryLog:
    log, people = MemoryLog(), actors()
    gate = Gate(log, clock_ms=lambda: GIVEN_MS)  # type: ignore[arg-type]
    drafts = [people.created(), *(people.registered(name, ["agent"]) for name in AGENTS)]
    drafts += [_node(people, name) for name in NODES[1:]]
    gate.submit(people.sign(ROOT, *drafts))
    return log


def first_log() -> MemoryLog:
    """Return a log in which every agent is registered, and nothing else has happened."""
    return _first_log().copy()


@cache
def submission(author: str, number: int) -> Submission:
    """Return the ``number``-th submission of an agent."""
    session = f"session/{author}"
    if number == 0:
        drafts = [Draft(stream=session, data=SessionStarted())]
    elif is_refused(number):
        drafts = [Draft(stream=f"session/{author}-unopened", data=FindingLogged(finding=str(number)))]
    else:
        count = 3 if number % 4 == 0 else 1
        drafts = [Draft(stream=session, data=FindingLogged(finding=f"{number}.{one}")) for one in range(count)]
    return actors().sign(author, *drafts)


def is_refused(number: int) -> bool:
    """Return whether every ledger refuses this submission."""
    return number % 9 == 7


@cache
def checked(author: str, number: int) -> CheckedSubmission:
    """Return a submission after the gate's checks of its bytes and its signature."""
    return check(submission(author, number))
