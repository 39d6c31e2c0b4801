"""Every row of every table of ``proto/rules`` is broken in each of its parts: both verifiers name the same code.

The logs are validly signed, as a patched node would make them. They are made from the tables, so a new row is broken
too; a new condition fails the tests until ``BREACHES`` says how it is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from building import NO_EVENT
from forged_steps import compromised, removed
from judges import alone, ours, program
from rule_stage import ROWS, STEP, TABLES, Handoff, Play, Row, Stage, mapped, owned, play

from deedbook.ledger.lifecycle import handoff as handoff_machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: Final = {str(row): row for row in ROWS}
HANDOFF_PARTIES: Final = {"sender": "alice", "receiver": "bob", "reviewer": "rita"}
# A dependency that leads back is refused when the content is set, so the content that is handed over has none.
UNREACHABLE: Final = ("dependencies_form_no_cycle", "dependencies_are_bounded")


def judged(stage: Stage, folder: Path) -> dict[int | None, set[str]]:
    """Return the codes on which both verifiers agree, by index."""
    path = stage.export(folder / "log.tar")
    mine, other = ours(path), alone(path)
    assert (mine.word, mine.codes) == (other.word, other.codes), f"{mine.text}\n{other.text}"
    return mine.codes


def rows_with(part: str) -> list[str]:
    """Return the names of the rows that have a part."""
    return [name for name, row in NAMES.items() if row.row.get(part)]


@pytest.mark.parametrize("name", NAMES)
def test_event_that_a_row_allows_is_valid(name: str, tmp_path: Path) -> None:
    stage = Stage()
    play(stage, NAMES[name], "x").emit(stage)
    assert judged(stage, tmp_path) == {}


@pytest.mark.parametrize("name", NAMES)
def test_row_is_for_its_states_only(name: str, tmp_path: Path) -> None:
    stage, row, expected = Stage(), NAMES[name], dict[int | None, set[str]]()
    for state in TABLES[row.family]["states"].keys() - set(row.row["from"]):
        wrong = play(stage, row, f"in-{state}".replace("_", "-"), state)
        code = row.row.get("refused_as", {}).get(state, "TRANSITION_NOT_ALLOWED")
        expected[len(stage.entries)] = {"NOT_FOUND" if state == "none" else code}
        wrong.emit(stage)
    assert judged(stage, tmp_path) == expected


@pytest.mark.parametrize("name", sorted({*rows_with("by"), *rows_with("not_by")}))
def test_row_is_for_its_parties_only(name: str, tmp_path: Path) -> None:
    stage, row, expected = Stage(), NAMES[name], dict[int | None, set[str]]()
    right = play(stage, row, "x")
    parties = HANDOFF_PARTIES | {"sender": right.author} if row.when == {"reviewer": None} else HANDOFF_PARTIES
    parties = parties if row.family == "handoff" else {"owner": "alice"}
    by, not_by = row.row.get("by", []), row.row.get("not_by", [])
    wrong = {"carl": "NOT_AUTHORIZED"} if by else {}
    for party, author in parties.items():
        if party in not_by:
            wrong[author] = "SELF_APPROVAL"
        elif by and party not in by:
            wrong[author] = "NOT_AUTHORIZED"
    for author, code in wrong.items():
        expected[len(stage.entries)] = {code}
        right.emit(stage, author=author)
    right.emit(stage)
    assert expected
    assert judged(stage, tmp_path) == expected


@pytest.mark.parametrize("name", NAMES)
def test_author_of_a_row_has_its_role(name: str, tmp_path: Path) -> None:
    stage = Stage()
    right = play(stage, NAMES[name], "x")
    stage.lose_roles(right.author)
    right.emit(stage)
    assert judged(stage, tmp_path) == {len(stage.entries) - 1: {"NOT_AUTHORIZED"}}


@pytest.mark.parametrize("name", rows_with("roles"))
def test_other_roles_than_those_of_a_row_are_not_enough(name: str, tmp_path: Path) -> None:
    stage, row = Stage(), NAMES[name]
    right = play(stage, row, "x")
    others = {"agent", "reviewer", "human", "service"} - set(row.row["roles"])
    stage.lose_roles(right.author)
    for role in others:
        stage.gain_role(right.author, role)
    right.emit(stage)
    assert judged(stage, tmp_path) == {len(stage.entries) - 1: {"NOT_AUTHORIZED"}}


@pytest.mark.parametrize("name", rows_with("identity_key"))
def test_session_key_does_not_sign_what_needs_an_identity_key(name: str, tmp_path: Path) -> None:
    stage = Stage()
    right = play(stage, NAMES[name], "x")
    right.emit(stage, key=stage.delegate(right.author, stage.new_key("session")))
    assert judged(stage, tmp_path) == {len(stage.entries) - 1: {"KEY_OUT_OF_SCOPE"}}


@pytest.mark.parametrize("name", rows_with("mark"))
def test_mark_of_a_row_is_changed_from_its_marks_only(name: str, tmp_path: Path) -> None:
    stage, row, expected = Stage(), NAMES[name], dict[int | None, set[str]]()
    mark = row.row["mark"]
    marks = {"tasks": {"open", "done"}, "criteria": {"open", "claimed", "asked", "checked", "waived"}}[mark["list"]]
    right = play(stage, row, "x")
    for other in sorted(marks - set(mark["from"])):
        handoff = Handoff(stage, f"is-{other}")
        handoff.mark(mark["list"], other)
        expected[len(stage.entries)] = {mark.get("refused_as", {}).get(other, "NOTHING_CHANGED")}
        right._replace(stream=handoff.stream).emit(stage)
    expected[len(stage.entries)] = {"INVALID_FIELD"}
    right.emit(stage, data={"position": 2})
    assert judged(stage, tmp_path) == expected


# How each condition is broken: what is done before the event, and the play that the rules no longer allow.


def with_data(**changes: Any) -> Callable[[Stage, Row], Play]:
    """Break a condition by other data."""

    def breach(stage: Stage, row: Row) -> Play:
        right = play(stage, row, "x")
        return right._replace(data=right.data | changes)

    return breach


def after(step: Callable[[Stage], Any]) -> Callable[[Stage, Row], Play]:
    """Break a condition by what happens before the event."""

    def breach(stage: Stage, row: Row) -> Play:
        right = play(stage, row, "x")
        step(stage)
        return right

    return breach


def by_content(**content: Any) -> Callable[[Stage, Row], Play]:
    """Break a condition by the content of the handoff."""
    return lambda stage, row: play(stage, row, "x", **content)


def in_state(state: str) -> Callable[[Stage, Row], Play]:
    """Break a condition by the state."""
    return lambda stage, row: play(stage, row, "x", state)


def own_reviewer(stage: Stage, row: Row) -> Play:
    """Name the author as reviewer, or the receiver where the content names no reviewer."""
    right = play(stage, row, "x")
    is_named = "reviewer" in right.data
    return right._replace(data=right.data | ({"reviewer": right.author} if is_named else {"to": right.author}))


def waiting_for_itself(stage: Stage, row: Row) -> Play:
    """Depend on a handoff that depends on this one."""
    right = play(stage, row, "x")
    Handoff(stage, "back", reviewer="rick", depends_on=["there"]).pending()
    Handoff(stage, "there", reviewer="rick", depends_on=["x"]).pending()
    if row.kind == "record.imported":
        return right._replace(data=right.data | {"mapped": right.data["mapped"] | {"depends_on": ["back"]}})
    return right._replace(data=right.data | {"depends_on": ["back"]})


def kept_reviewer(stage: Stage, row: Row) -> Play:
    """Drop a reviewer who may still review."""
    right = play(stage, row, "x")
    if row.when:
        stage.gain_role("rita", "reviewer")
        return right
    return right._replace(data=right.data | {"reviewer": "rick"})


def imported_by_another(stage: Stage, row: Row) -> Play:
    """Import again what another agent imported."""
    if row.family == "handoff":
        return play(stage, row, "x", "imported")._replace(author="carl")
    right = play(stage, row, "x")
    owned(stage, row.family, "y", "imported")
    return right._replace(stream=f"{row.family}/y", author="carl")


def imported_again(stage: Stage, row: Row) -> Play:
    """Import the same file twice."""
    right = play(stage, row, "x")
    right.emit(stage)
    return right._replace(data=right.data | {"source": "another copy"})


def own_import(stage: Stage, row: Row) -> Play:
    """Confirm one's own import, without the role of a human any more."""
    state = {"handoff.approved": "imported", "handoff.rejected": "imported", "handoff.verified": "imported"}
    handoff = Handoff(stage, "x", "rick", reviewer="rick")
    handoff.imported()
    if row.kind not in state:
        handoff.in_progress()
    if row.kind == "handoff.changes_requested":
        for position in range(2):
            handoff.act("bob", "criterion_checked", position=position)
        handoff.act("bob", "completed")
    if row.when == {"granted": False}:
        handoff.act("bob", "waiver_asked", position=0, reason="it cannot run here")
    right = play(stage, row, "other")
    present = stage.state("handoff/x")
    stage.lose_roles("rick", "human")
    data = right.data | {key: getattr(present, key) for key in ("version", "completion") if key in right.data}
    return right._replace(stream="handoff/x", author="rick", data=data)


def announced_twice(stage: Stage, row: Row) -> Play:
    """Announce the same handoff twice."""
    right = play(stage, row, "x")
    right.emit(stage)
    return right


def without_steps(stage: Stage, row: Row) -> Play:
    """Conclude, brief or validate a reasoning without steps."""
    right = play(stage, row, "x")
    is_import = row.kind == "record.imported"
    data = mapped("reasoning.started", {"task": "x"}) if is_import else {"task": "x"}
    stage.draft("alice", "reasoning/empty", row.kind if is_import else "reasoning.started", data)
    return right._replace(stream="reasoning/empty")


def extended(**extension: Any) -> Callable[[Stage, Row], Play]:
    """Break a condition by the data of an extension."""

    def breach(stage: Stage, row: Row) -> Play:
        right = play(stage, row, "x")
        is_import = row.kind == "record.imported"
        return right._replace(data=mapped("reasoning.extended", extension) if is_import else extension)

    return breach


def steps(*numbers: int) -> list[dict[str, Any]]:
    """Return steps of these numbers."""
    return [STEP | {"step_number": number} for number in numbers]


BREACHES: Final[dict[str, list[Callable[[Stage, Row], Play]]]] = {
    "author_is_human": [after(lambda stage: stage.lose_roles("hugo", "human"))],
    "reviewer_is_independent": [own_reviewer],
    "reviewer_is_another": [with_data(reviewer=name) for name in ("alice", "bob", "rita")],
    "only_reviewer_changes": [with_data(title="other work"), with_data(created="2026-01-31", tasks=[])],
    "receiver_is_registered": [after(lambda stage: removed(stage, "bob"))],
    "reviewer_is_registered": [with_data(reviewer="nobody")],
    "reviewer_may_review": [with_data(reviewer="dora")],
    "reviewer_is_kept": [kept_reviewer],
    "dependencies_form_no_cycle": [waiting_for_itself],
    "import_is_own": [imported_by_another],
    "import_changes_something": [imported_again],
    "claims_name_items": [with_data(claims={"tasks": [2]}), with_data(claims={"criteria": [0, 2]})],
    "version_is_current": [with_data(version="sha256:" + "0" * 64)],
    "completion_is_latest": [with_data(completion=NO_EVENT)],
    "approval_is_missing": [in_state("approved"), in_state("lapsed")],
    "approval_counts": [after(lambda stage: compromised(stage, "ada", "rita", 1))],
    "confirms_no_own_import": [own_import],
    "dependencies_exist": [by_content(depends_on=["open", "nothing"])],
    "dependencies_are_done": [by_content(depends_on=["open"])],
    "criteria_are_met": [in_state("in_progress")],
    "replacement_is_another": [with_data(by="x")],
    "replacement_exists": [with_data(by="nothing")],
    "is_not_announced": [announced_twice],
    "receiver_is_named": [with_data(to="carl")],
    "target_exists": [with_data(target=NO_EVENT)],
    "has_steps": [without_steps],
    "extension_is_not_empty": [extended(), extended(dependencies={})],
    "steps_are_new": [extended(steps=steps(1)), extended(steps=steps(2, 3, 2))],
    "assumptions_exist": [extended(assumptions_updated={"3": "no"}, steps=steps(2))],
    "dependencies_are_of_new_steps": [
        extended(steps=steps(2), dependencies={"1": []}),
        extended(steps=steps(2), dependencies={"2": [3]}),
    ],
    "steps_form_no_cycle": [
        extended(steps=steps(2), dependencies={"2": [2]}),
        extended(steps=steps(2, 3, 4), dependencies={"2": [1, 3], "3": [4], "4": [2]}),
    ],
    "fields_agree": [
        with_data(context_summary=""),
        with_data(level=None),
        with_data(reasoning_ref=None),
        with_data(reasoning_ref="sha256:" + "0" * 64),
        with_data(conclusion="otherwise"),
        with_data(reasoning_brief="otherwise"),
        with_data(reasoning_fidelity=0.01),
        with_data(reasoning_tags=["otherwise"]),
        with_data(top_assumptions=["otherwise"]),
        with_data(top_evidence_refs=["otherwise"]),
    ],
}
BROKEN: Final = [
    pytest.param(row, need, breach, id=f"{row}-{need}-{number}")
    for row in ROWS
    for need in row.row.get("needs", [])
    for number, breach in enumerate(BREACHES.get(need, []))
    if not (need in UNREACHABLE and "hands_over" in row.when)
]


def test_each_condition_of_the_tables_is_broken() -> None:
    conditions = {condition for table in TABLES.values() for condition in table["conditions"]}
    assert conditions - BREACHES.keys() == {"dependencies_are_bounded"}  # which has a test of its own
    assert len(BROKEN) >= 60


@pytest.mark.parametrize(("row", "need", "breach"), BROKEN)
def test_condition_of_a_row_holds(row: Row, need: str, breach: Callable[[Stage, Row], Play], tmp_path: Path) -> None:
    stage = Stage()
    wrong = breach(stage, row)
    wrong.emit(stage)
    assert judged(stage, tmp_path) == {len(stage.entries) - 1: {TABLES[row.family]["conditions"][need]}}


BOUNDED: Final = [
    row for row in ROWS if "dependencies_are_bounded" in row.row.get("needs", []) and "hands_over" not in row.when
]


@pytest.mark.parametrize("row", BOUNDED, ids=str)
def test_dependencies_are_followed_up_to_a_limit(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    for number in range(4):
        Handoff(stage, f"d{number}", depends_on=[f"d{number + 1}"]).pending()
    Handoff(stage, "enough", depends_on=["d1"]).pending()
    right, too_many = play(stage, row, "x"), {"depends_on": ["d0"]}
    is_import = row.kind == "record.imported"
    right.emit(stage, data={"mapped": right.data["mapped"] | too_many} if is_import else too_many)
    monkeypatch.setattr(handoff_machine, "dependencies_walked_max", 4)
    monkeypatch.setattr(program(), "DEPENDENCIES_MAX", 4)
    assert judged(stage, tmp_path) == {len(stage.entries) - 1: {"TOO_LARGE"}}
