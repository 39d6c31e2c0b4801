"""The table of operations has each kind of a handoff; who may use an operation, and when, is from the rules."""

from __future__ import annotations

from typing import get_args

from deedbook.consumers.handoffs.operations import OPERATIONS, Verb, path_between
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.lifecycle.handoff_status import Status
from deedbook.projections.handoffs.answers import Action


def test_every_verb_has_a_row_and_every_kind_an_act() -> None:
    assert set(OPERATIONS) == set(get_args(Verb))
    signed = [KIND_OF[data] for act in OPERATIONS.values() for data in act.signs]
    kinds = {name for name, kind in KINDS.items() if kind.stream == "handoff"}
    assert len(signed) == len(set(signed))
    assert set(signed) == kinds - {"handoff.ready"}  # only the router signs it, as an announcement


def test_an_operation_that_sets_a_status_ends_a_wait_and_each_wait_has_such_an_operation() -> None:
    ending = [operation for operation in OPERATIONS.values() if operation.leads and operation.from_statuses]
    assert all(operation.ends for operation in ending)
    # `cancel` and `supersede` end every wait; a wait ends by an operation of its own, too.
    own = [operation.ends for operation in OPERATIONS.values() if operation.ends != set(get_args(Action))]
    assert set().union(*own) == set(get_args(Action))


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
