"""The view of reasoning has the reasonings of imported records, marked with their source."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from folding import facts, rows_of
from view_ledger import ViewLedger

from deedbook.ledger.events import reasoning
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.answers.instants import to_ms
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.gates import should_fetch_full_reasoning
from deedbook.projections.reasoning.fold import VIEW as REASONING_VIEW

REF = "sha256:" + "1" * 64
STEP: dict[str, Any] = {"step_number": 1, "type": "observation", "content": "It leaks."}
STARTED: dict[str, Any] = {"task": "Why?", "ai_id": "model-x", "session": "s"}
OWN = (
    reasoning.ReasoningStarted(**STARTED),
    reasoning.ReasoningExtended(steps=[reasoning.Step(**STEP)]),
    reasoning.ReasoningConcluded(conclusion="It leaks."),
)


def imported(kind: str, mapped: dict[str, Any], **fields: Any) -> RecordImported:
    """Return the data of one imported event."""
    return RecordImported(
        original=REF,
        source="s.jsonl:2",
        format="claude-code-session",
        mapped_kind=kind,
        mapped=mapped,
        claimed_author="model-x",
        claimed_at="2026-01-02T03:04:05Z",
        **fields,
    )


def all_imported() -> list[RecordImported]:
    """Return the events of OWN as imported records."""
    claims = {"said": {"inferred_type": "1"}}
    return [
        imported("reasoning.started", STARTED, claims=claims),
        imported("reasoning.extended", {"steps": [STEP]}),
        imported("reasoning.concluded", {"conclusion": "It leaks."}),
    ]


def test_imported_records_fold_like_the_events_they_stand_for() -> None:
    own = rows_of(REASONING_VIEW, "r", facts("reasoning/r", *(("bob", data) for data in OWN)))
    other = rows_of(REASONING_VIEW, "r", facts("reasoning/r", *(("bob", data) for data in all_imported())))
    assert own["reasoning_versions"] == other["reasoning_versions"]
    (row,), (marked,) = own["reasonings"], other["reasonings"]
    differs = {name for name in row if row[name] != marked[name]}
    times = {"happened_ms", "changed_ms"}
    assert differs == times | {"source", "format", "original", "claimed_author", "claimed_at", "claims"}
    assert all(row[name] is None for name in differs - times)
    assert {marked[name] for name in times} == {to_ms(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))}


def test_records_of_other_things_are_no_reasoning() -> None:
    handoff = imported("handoff.created", {"title": "t"})
    (event,) = facts("handoff/h", ("bob", handoff))
    assert REASONING_VIEW.keys(event) == ()


@pytest.fixture
def made(tmp_path: Any) -> Any:
    with ViewLedger(tmp_path / ".deedbook") as ledger, Reader(ledger.reads, ledger.settings()) as reader:
        yield ledger, reader


def test_answers_mark_imported_reasoning_and_no_other(made: tuple[ViewLedger, Reader]) -> None:
    ledger, reader = made
    ledger.emit_all("alice", "reasoning/theirs", *all_imported())
    ledger.reason("own")
    mark = {
        "importer": "alice",
        "source": "s.jsonl:2",
        "format": "claude-code-session",
        "original": REF,
        "claimed_author": "model-x",
        "claimed_at": "2026-01-02T03:04:05Z",
        "claims": {"said": {"inferred_type": "1"}},
    }
    for query in ("reasoning.show", "reasoning.full"):
        assert reader.answer(query, {"id": "theirs"})["imported"] == mark
        assert reader.answer(query, {"id": "own"})["imported"] is None
    listed = {one["id"]: one["imported"] for one in reader.answer("reasoning.list")["items"]}
    assert listed == {"theirs": mark, "own": None}
    found = reader.answer("reasoning.existing", {"ids": ["theirs", "own", "none"]})["reasonings"]
    assert {name: row["imported"] for name, row in found.items()} == listed
    resolved = reader.answer("resolve", {"id": f"{found['theirs']['ref']}#1"})
    assert (resolved["type"], resolved["step"]) == ("step", 1)


def test_origins_tell_what_was_only_imported(made: tuple[ViewLedger, Reader]) -> None:
    ledger, reader = made
    ledger.emit_all("alice", "reasoning/theirs", *all_imported())
    ref = reader.answer("reasoning.show", {"id": "theirs"})["ref"]
    assert reader.answer("reasoning.origins", {"id": ref}) == {"own": 0, "imported": 1, "ids": ["theirs"]}
    ledger.emit_all("bob", "reasoning/own", *OWN)
    assert reader.answer("reasoning.show", {"id": "own"})["ref"] == ref
    assert reader.answer("reasoning.origins", {"id": ref}) == {"own": 1, "imported": 1, "ids": ["own", "theirs"]}
    assert reader.answer("reasoning.origins", {"id": REF}) == {"own": 0, "imported": 0, "ids": []}


def test_importers_validation_is_never_independent(made: tuple[ViewLedger, Reader]) -> None:
    ledger, reader = made
    ledger.register("vera", "service")
    ledger.emit_all("vera", "reasoning/theirs", *all_imported())
    ref = reader.answer("reasoning.show", {"id": "theirs"})["ref"]
    ledger.reason("own")
    ledger.validate("own", ref, by="vera")  # vera imported an equal reasoning, so her validation is not independent
    assert reader.answer("validations.latest", {"id": ref})["latest"] is None
    ledger.validate("theirs", ref, by="scribe")
    assert reader.answer("validations.latest", {"id": ref})["latest"]["by"] == "scribe"


def test_imported_reasoning_asks_for_more_than_its_prompt_last_of_all_rules() -> None:
    assert should_fetch_full_reasoning(fidelity=1.0, is_imported=False).fetch is False
    answer = should_fetch_full_reasoning(fidelity=1.0, is_imported=True)
    assert answer.rule is not None
    assert answer.rule.name == "imported"
    both = should_fetch_full_reasoning(fidelity=0.1, is_imported=True)
    assert [rule.name for rule in both.all_rules] == ["low_fidelity", "imported"]
