"""The rules as data: whole, implemented condition by condition, and followed wherever a status is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, get_args

import pytest

from deedbook.consumers.handoffs.operations import OPERATIONS, spelled
from deedbook.consumers.interfaces.cli import output
from deedbook.ledger.errors import CODES
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.handoff import UnlockAt
from deedbook.ledger.events.imported import MAPPED
from deedbook.ledger.lifecycle import handoff, reasoning, record, review, session, snapshot
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status
from deedbook.ledger.lifecycle.machine import StateMachine
from deedbook.ledger.lifecycle.rules import ADMIN, FAMILIES, NONE, rules_of
from deedbook.projections.handoffs.waits import Action

MACHINES: Final[dict[str, StateMachine[Any]]] = {
    module.MACHINE.family: module.MACHINE for module in (handoff, reasoning, record, review, session, snapshot)
}
ROOT: Final = Path(__file__).parents[2]
TEMPLATES: Final = ROOT / "consumers/interfaces/dashboard/templates"
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
        assert not any(rules.states[name].is_final for name in row.from_states) or row.to is None, row
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


def test_the_types_name_the_statuses_of_the_rules() -> None:
    assert set(get_args(Status)) == set(STATUSES)
    assert {name for name, state in rules_of("handoff").states.items() if state.is_final} == FINAL
    assert set(get_args(UnlockAt)) <= set(STATUSES)


@pytest.mark.parametrize("action", get_args(Action))
def test_every_wait_has_its_glyph(action: str) -> None:
    assert f'"{action}": [' in (TEMPLATES / "macros.html").read_text("utf-8")


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_its_colour_its_glyph_and_its_line_on_the_page(status: str) -> None:
    assert status in output.COLOURS
    assert f'"{status}": [' in (TEMPLATES / "macros.html").read_text("utf-8")
    page = (ROOT / "consumers/handoffs/README.md").read_text("utf-8")
    table = page.partition("| status | meaning | next |\n")[2].partition("\n\n")[0]
    assert any(f"`{status}`" in line.split("|")[1] for line in table.splitlines())


def test_the_page_of_handoffs_has_the_table_of_operations() -> None:
    lines = ["| operation | by | while the handoff is | then it is |", "|---|---|---|---|"]
    for verb, operation in OPERATIONS.items():
        statuses = ", ".join(f"`{name}`" for name in operation.from_statuses)
        is_always = set(operation.from_statuses) == set(STATUSES)
        then = dict.fromkeys(f"`{after}`" for row in operation.rows if (after := rules_of("handoff").status_after(row)))
        cells = (", ".join(operation.by), "in any status" if is_always else statuses or "–", " or ".join(then) or "–")
        lines.append(f"| `{spelled(verb)}` | {' | '.join(cells)} |")
    table = "\n".join(lines)
    assert table in (ROOT / "consumers/handoffs/README.md").read_text("utf-8"), f"the page needs this table:\n{table}"
