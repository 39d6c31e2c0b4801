"""The state machines decide each case of ``proto/cases``, on a ledger in memory.

The cases must show each row of ``proto/rules`` with all of its states, parties, roles, marks and conditions. To check
this, the test records for each event which check refused it, or that its row accepted it.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from machine_runner import MachineRunner
from rule_cases import REDACTION, all_cases, cases_of, families, id_of, play

from deedbook.ledger.admission.rules import MACHINES
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle import machine
from deedbook.ledger.lifecycle.machine import StateMachine
from deedbook.ledger.lifecycle.rules import ADMIN, FAMILIES, NONE, Row, Rules, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rule_cases import Written

    from deedbook.ledger.events.body import Event

MARKS = {
    "tasks": {"open", "done"},
    "criteria": {"open", "claimed", "asked", "checked", "waived"},
    "questions": {"open", "answered", "settled"},
}
# Aspects that no case shows, in this order: a case would need 100,000 handoffs; it would need 1,000 questions; a
# reviewer who hands over the review cannot change dependencies; a handoff with an undecided waiver cannot be completed.
UNREACHABLE = (
    "dependencies_are_bounded",
    "questions_are_bounded",
    "{'hands_over': True}: needs dependencies_form_no_cycle",
    "{'granted': False}: accepted in completed",
)


def label(row: Row, aspect: str) -> str:
    """Return the name of a row's aspect, such as a state in which it accepts events."""
    return f"{row.kind} {row.when or ''}: {aspect}"


def wanted(rules: Rules) -> Iterator[str]:
    """Yield the aspects that the cases of a family must show."""
    for row in rules.rows:
        aspects = [f"accepted in {state}" for state in row.from_states]
        aspects += [f"refused in {state}" for state in rules.states if state not in row.from_states]
        aspects += [f"by the {party}" for party in row.by]
        aspects += [f"not by the {party}" for party in rules.parties if row.by and party not in row.by]
        aspects += [f"not by the {party}" for party in row.not_by]
        aspects += ["not by a stranger"] if row.by else []
        aspects += ["not without a role"]
        aspects += ["not by a session key"] if row.identity_key else []
        if row.mark is not None:
            aspects += ["not of an item that is not there", *(f"at the mark {mark}" for mark in row.mark.from_marks)]
            aspects += [f"not at the mark {mark}" for mark in MARKS[row.mark.list] - row.mark.from_marks]
        aspects += [f"needs {need}" for need in row.needs]
        yield from {label(row, aspect) for aspect in aspects}


class Noting(MachineRunner):
    """The state machines. They record in ``notes`` which aspects the last event showed."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def emit(self, written: Written) -> str:
        """Decide an event."""
        self.notes.clear()
        event, family = self.event(written), written.stream.partition("/")[0]
        row = rules_of(family).row(event.kind, event.data) if family in FAMILIES else None
        if row is None:
            return super().emit(written)
        record = self.layer.stream(event.stream)
        state = None if record is None else record.state
        name = NONE if state is None else MACHINES[family].state_name(state, event)
        try:
            event_id = super().emit(written)
        except Refused as refused:
            if refused.code == "KEY_OUT_OF_SCOPE":
                self.notes.append(label(row, "not by a session key"))
            elif not self.notes and name not in row.from_states:
                self.notes.append(label(row, f"refused in {name}"))
            raise
        aspects = accepted(MACHINES[family], row, state, event)
        self.notes += [label(row, f"accepted in {name}"), *(label(row, aspect) for aspect in aspects)]
        return event_id


def accepted(of_family: StateMachine[Any], row: Row, state: Any, event: Event) -> Iterator[str]:
    """Yield the aspects of an accepted event: the parties that its author is, and the mark of its item."""
    for party in row.by if state is not None else ():
        if party == ADMIN or event.author in of_family.party(state, party, None):
            yield f"by the {party}"
    if row.mark is not None:
        yield f"at the mark {of_family.marks(state, row.mark.list)[event.data.position]}"


def note_refusals(patch: pytest.MonkeyPatch, notes: list[str]) -> None:
    """Let each check of the state machine record in ``notes`` which aspects its refusal shows."""

    def noting(owner: Any, name: str, aspects: Callable[..., list[str]]) -> None:
        check = getattr(owner, name)

        def checked(*arguments: Any) -> Any:
            try:
                return check(*arguments)
            except Refused:
                notes.extend(aspects(*arguments))
                raise

        patch.setattr(owner, name, checked)

    def author(of_family: Any, rules: Rules, row: Row, state: Any, event: Event, _ledger: Any) -> list[str]:
        parties = [party for party in rules.parties if event.author in of_family.party(state, party, None)]
        return [label(row, f"not by the {party}") for party in parties] or [label(row, "not by a stranger")]

    def condition(_family: Any, need: str, rules: Rules, question: Any, _ledger: Any) -> list[str]:
        row = rules.row(question.event.kind, question.event.data)
        return [] if row is None else [label(row, f"needs {need}")]

    def role(_roles: Any, event: Event, _ledger: Any) -> list[str]:
        row = rules_of(event.stream.partition("/")[0]).row(event.kind, event.data)
        return [] if row is None else [label(row, "not without a role")]

    def mark(_mark: Any, marks: tuple[str, ...], question: Any) -> list[str]:
        row, position = rules_of("handoff").row(question.event.kind, question.data), question.data.position
        aspect = f"at the mark {marks[position]}" if position < len(marks) else "of an item that is not there"
        return [] if row is None else [label(row, f"not {aspect}")]

    noting(StateMachine, "_check_author", author)
    noting(StateMachine, "_check_condition", condition)
    noting(machine, "check_roles", role)
    noting(machine, "_check_mark", mark)


@cache
def played(family: str) -> tuple[dict[str, Any], set[str]]:
    """Return the outcomes of a family's cases that differ from the expected ones, and the aspects that cases show."""
    labels: set[str] = set()
    notes: list[str] = []
    wrong = {}
    with pytest.MonkeyPatch.context() as patch:
        note_refusals(patch, notes)
        for case in cases_of(family):
            outcome = play(case, Noting(notes))
            labels |= set(notes)
            if not case.is_met_by(outcome):
                wrong[case.name] = (case.then, outcome)
    return wrong, labels


CASES_OF = [family for family in families() if family != REDACTION]


@pytest.mark.parametrize("family", CASES_OF)
def test_machine_reaches_the_outcome_of_each_case(family: str) -> None:
    assert played(family)[0] == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_show_every_aspect_of_every_row(family: str) -> None:
    aspects = {aspect for aspect in wanted(rules_of(family)) if not aspect.endswith(UNREACHABLE)}
    assert sorted(aspects.difference(*(played(each)[1] for each in CASES_OF))) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_only_a_reviewer_or_a_human_may_do_needs_the_identity_key(family: str) -> None:
    for row in rules_of(family).rows:
        if row.by == ("reviewer",) or row.roles == {"human"} or "author_is_human" in row.needs:
            assert row.identity_key, row.kind


def test_each_family_of_the_rules_has_cases() -> None:
    assert set(families()) >= set(FAMILIES)


def test_each_case_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(map(id_of, all_cases())).items() if count > 1] == []
