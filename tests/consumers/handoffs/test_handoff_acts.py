"""The table of operations against the ledger: each kind of a handoff's stands in it, and it says what the gate does."""

from __future__ import annotations

from typing import get_args

import pytest
from building import NO_EVENT
from given import fact, fold

from deedbook.consumers.handoffs.operations import OPERATIONS, Verb, path_between
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.lifecycle.handoff import MACHINE, HandoffState, compute_version
from deedbook.ledger.lifecycle.handoff_status import Status

CREATED = kinds.HandoffCreated(title="verify", to="bob", reviewer="rita", tasks=["read"], criteria=["a"])
PARTIES = {"sender": "alice", "receiver": "bob", "reviewer": "rita"}
GIVEN = {
    "version": compute_version("alice", CREATED),
    "reason": "because",
    "reasons": ["because"],
    "text": "a line",
    "completion": NO_EVENT,
    "position": 0,
    "by": "y",
    "to": "bob",
    "title": "verify",
    "reviewer": "rita",
}
# One way through the life of a handoff, and each way out of it.
STEPS = [
    fact("alice", CREATED),
    fact("rita", kinds.HandoffApproved(version=GIVEN["version"])),
    fact("bob", kinds.HandoffClaimed()),
    fact("bob", kinds.HandoffCriterionChecked(position=0)),
    fact("bob", kinds.HandoffCompleted()),
    fact("rita", kinds.HandoffVerified(version=GIVEN["version"], completion=NO_EVENT)),
]
STATES = [fold(MACHINE.decide, *STEPS[: count + 1]) for count in range(len(STEPS))]
STATES.append(MACHINE.decide(STATES[2], fact("bob", kinds.HandoffBlocked(reason="no access"))))


def allowed(verb: Verb) -> set[tuple[str, Status, Status]]:
    """Return which parties may do an act, from which status to which, as the ledger's own machine decides."""
    found = set()
    for data in OPERATIONS[verb].signs:
        event = data(**{name: GIVEN[name] for name in data.__struct_fields__ if name in GIVEN})
        for party, name in PARTIES.items():
            for state in STATES:
                after = after_of(state, name, event)
                if after is not None:
                    found.add((party, state.status, after.status))
    return found


def after_of(state: HandoffState, author: str, event: kinds.EventData) -> HandoffState | None:
    try:
        return MACHINE.decide(state, fact(author, event))
    except Refused:
        return None


def test_every_verb_has_a_row_and_every_kind_an_act() -> None:
    assert set(OPERATIONS) == set(get_args(Verb))
    signed = [KIND_OF[data] for act in OPERATIONS.values() for data in act.signs]
    kinds = {name for name, kind in KINDS.items() if kind.stream == "handoff"}
    assert len(signed) == len(set(signed))
    assert set(signed) == kinds - {"handoff.ready"}  # the router's own, which only tells


def test_needed_arguments_are_the_fields_that_an_event_cannot_lack() -> None:
    for verb in ("log", "block", "cancel", "reject"):
        (data,) = OPERATIONS[verb].signs
        assert [one.name for one in OPERATIONS[verb].arguments if one.is_needed] == list(data.__struct_fields__)


def test_ways_of_a_receiver_begin_the_work_and_end_it() -> None:
    ways = {
        (now, then): path_between(now, then)
        for now in get_args(Status)
        for then in get_args(Status)
        if path_between(now, then)
    }
    assert ways == {
        ("approved", "in_progress"): ("claim",),
        ("approved", "completed"): ("claim", "complete"),
        ("approved", "blocked"): ("claim", "block"),
        ("in_progress", "approved"): ("release",),
        ("in_progress", "blocked"): ("block",),
        ("in_progress", "completed"): ("complete",),
        ("blocked", "in_progress"): ("unblock",),
        ("blocked", "completed"): ("unblock", "complete"),
    }


@pytest.mark.parametrize("verb", [verb for verb in OPERATIONS if verb != "create"])
def test_the_ledger_lets_those_do_an_act_who_stand_in_its_row(verb: Verb) -> None:
    # A sender is allowed what only a reviewer may do if they are that too; handing over a review is another row.
    assert {party for party, _, _ in allowed(verb)} | ({"reviewer"} if verb == "amend" else set()) == set(
        OPERATIONS[verb].by
    )


@pytest.mark.parametrize("verb", [verb for verb, act in OPERATIONS.items() if act.leads is not None])
def test_the_ledger_moves_a_handoff_as_the_row_says(verb: Verb) -> None:
    moves = {(now if OPERATIONS[verb].starts else None, then) for _, now, then in allowed(verb)}
    assert moves == {(OPERATIONS[verb].starts, OPERATIONS[verb].leads)}
