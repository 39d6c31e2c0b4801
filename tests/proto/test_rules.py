"""The rules in ``proto/rules`` are complete, and the code has everything that they need: conditions, waits, colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, get_args

import pytest

from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.dashboard.marks import MARKS
from deedbook.ledger.errors import CODES
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.imported import MAPPED
from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle import decision, handoff, question, reasoning, record, review, session, snapshot, subject
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status
from deedbook.ledger.lifecycle.machine import StateMachine
from deedbook.ledger.lifecycle.rules import ADMIN, FAMILIES, NONE, rules_of
from deedbook.projections.handoffs.answers import QueueOperation
from deedbook.projections.handoffs.facts import HandoffFacts
from deedbook.projections.handoffs.waits import WAITS, Wait

MACHINES: Final[dict[str, StateMachine[Any]]] = {
    module.MACHINE.family: module.MACHINE
    for module in (decision, handoff, question, reasoning, record, review, session, snapshot, subject)
}
ROOT: Final = Path(__file__).parents[2]
STATUSES: Final = [name for name, state in rules_of("handoff").states.items() if name != NONE and state.status is None]


def test_each_file_has_a_machine_and_each_machine_a_file() -> None:
    assert MACHINES.keys() == set(FAMILIES) == {path.stem for path in (ROOT / "proto/rules").glob("*.json")}


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_name_only_what_the_file_defines(family: str) -> None:
    rules = rules_of(family)
    for row in rules.rows:
        states = {*row.from_states, *row.refused_as, *([row.to] if row.to else [])}
        assert states <= rules.states.keys(), row
        assert {*row.by, *row.not_by} - {ADMIN} <= set(rules.parties), row
        assert set(row.needs) <= rules.conditions.keys(), row
        final = {name for name in row.from_states if rules.states[name].is_final}
        assert final <= {row.to} or row.to is None, row
    assert {need for row in rules.rows for need in row.needs} == rules.conditions.keys()
    codes = {*rules.conditions.values(), *(code for row in rules.rows for code in row.refused_as.values())}
    assert codes <= CODES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_condition_is_implemented_once(family: str) -> None:
    machine = MACHINES[family]
    assert machine.conditions.keys().isdisjoint(machine.ledger_conditions)
    assert machine.conditions.keys() | machine.ledger_conditions.keys() == rules_of(family).conditions.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_the_family_has_a_row(family: str) -> None:
    kinds = {name for name, kind in KINDS.items() if kind.stream == family}
    imported = {"record.imported"} if any(KINDS[name].stream == family for name in MAPPED) else set()
    assert {row.kind for row in rules_of(family).rows} == kinds | imported


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_says_in_words_what_its_author_does(family: str) -> None:
    rules = rules_of(family)
    assert rules.acts.keys() == {row.kind for row in rules.rows}
    assert not [act for act in rules.acts.values() if "." in act or not act.islower()]


def test_the_types_name_the_statuses_of_the_rules() -> None:
    assert set(get_args(Status)) == set(STATUSES)
    assert {name for name, state in rules_of("handoff").states.items() if state.is_final} == FINAL
    assert set(get_args(UnlockAt)) <= set(STATUSES)
    assert set(get_args(QueueOperation)) <= {*OPERATIONS, "show"}


def test_a_handoff_that_is_not_final_has_a_stage_and_every_status_a_meaning() -> None:
    states = {name: state for name, state in rules_of("handoff").states.items() if name != NONE}
    assert {name for name, state in states.items() if state.stage is None} == FINAL
    assert [name for name in STATUSES if not states[name].meaning or bool(states[name].next) == (name in FINAL)] == []


@pytest.mark.parametrize("wait", WAITS, ids=str)
def test_every_wait_names_an_operation_and_a_reason(wait: Wait) -> None:
    assert wait.action in MARKS
    if wait.why is not None:
        assert (wait.act or wait.action) in {*OPERATIONS, "show"}
        facts = HandoffFacts(id="h", status="blocked", sender="a", receiver="b", reviewer="c", reason="{no disk}")
        assert "{no disk}" in wait.why.format(handoff=facts)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_a_colour_and_a_mark(status: str) -> None:
    assert output.colour_of(status) is not None
    assert status in MARKS
