"""Each kind of note becomes the data of an event. The rest of the note is ``said``, or ``dirty`` if it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from note_repository import SESSION, checkpoint, handoff, logged, one_of_each, text_of

from deedbook.consumers.importers.empirica.importer import map_note
from deedbook.consumers.importers.empirica.notes import Note
from deedbook.consumers.importers.records import Record
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.imported import read_mapped
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import entry_size_max_bytes

REF = "blake3:" + "1" * 64


def record(tail: str, note: Any, **changes: Any) -> Record:
    """Return the record of a note at a ref."""
    made = Note(f"refs/notes/empirica/{tail}", tail, "a" * 40, REF, text_of(note))
    return map_note(made._replace(**changes)).record


def mapped(tail: str, note: Any) -> Any:
    """Return the typed data that a note is mapped to; it is valid."""
    found = read_mapped(record(tail, note).data)
    assert found is not None, record(tail, note).data.reason
    return found[0]


def claims(tail: str, note: Any) -> Any:
    """Return the claims of a note and its dirty fields."""
    found = read_mapped(record(tail, note).data)
    assert found is not None
    return found[1]


def test_notes_of_every_kind_stand_for_what_they_are() -> None:
    made = [record(tail, note) for tail, note in one_of_each()]
    assert [one.data.mapped_kind for one in made] == [
        "report.generated",
        *["assessment.recorded"] * 3,
        "finding.logged",
        "unknown.logged",
        *["dead_end.logged"] * 2,
        *["session.started"] * 2,
        None,
        None,
    ]
    assert {one.stream for one in made[:10]} == {f"session/{SESSION}"}
    assert all(one.data.claims.get("dirty", []) == [] for one in made[:10])
    reasons = [one.data.reason.partition(":")[0] for one in made[10:]]
    assert reasons == ["a session here has no tasks", "there are no messages here"]


def test_a_full_report_is_taken_whole() -> None:
    data = mapped(f"handoff/{SESSION}", handoff())
    assert (data.report_type, data.ai_id, data.task_summary) == ("complete", "claude-code", "Replaced the parser")
    assert data.epistemic_deltas.know == 0.2
    assert data.epistemic_deltas.do is None
    assert [gap.confidence_change for gap in data.knowledge_gaps_filled] == [0.2]
    assert (data.calibration_status, data.duration_seconds) == ("not_assessable", 91)
    said = claims(f"handoff/{SESSION}", handoff()).said
    assert (said["cal"], said["dur"]) == ("good", "91.7")
    assert "read as UTC" in said["ts"]
    assert record(f"handoff/{SESSION}", handoff()).data.claimed_at == "2025-06-01T12:00:00.500000Z"


def test_a_planning_report_has_no_deltas_and_recommends_nothing() -> None:
    note = {"s": SESSION[:8], "ai": "x", "task": "Plan it", "type": "planning", "findings": ["f"]}
    data = mapped(f"handoff/{SESSION}", note)
    assert data.report_type == "planning"
    assert data.recommended_next_steps == []


@pytest.mark.parametrize("word", ["well_calibrated", "overconfident", "underconfident", "not_assessable"])
def test_a_calibration_word_that_is_known_is_kept(word: str) -> None:
    assert mapped("handoff/s", handoff("s", cal=word)).calibration_status == word
    assert "cal" not in claims("handoff/s", handoff("s", cal=word)).said


def test_a_report_that_says_nothing_is_kept_aside() -> None:
    assert "neither a task nor" in record("handoff/s", {"s": "s"}).data.reason


def test_the_ref_completes_the_session_of_a_report_and_wins_over_another() -> None:
    assert record(f"handoff/{SESSION}", handoff()).stream == f"session/{SESSION}"
    other = record("handoff/other", handoff())
    assert other.stream == "session/other"
    assert other.data.claims["dirty"][0]["path"] == "s"


def test_an_assessment_keeps_clean_vectors_and_lists_the_others() -> None:
    vectors = {"know": 0.5, "do": "0.7", "context": {"score": 0.6}, "clarity": 1.4, "signal": None, "moxie": 0.9}
    note = checkpoint(vectors=vectors, round=None, overall_confidence="high")
    data = mapped(f"session/{SESSION}/CHECK/3", note | {"phase": None})
    assert (data.phase, data.round, data.overall_confidence) == ("CHECK", 3, None)
    assert (data.vectors.know, data.vectors.do, data.vectors.context, data.vectors.clarity) == (0.5, None, 0.6, None)
    found = claims(f"session/{SESSION}/CHECK/3", note)
    assert sorted(one.path for one in found.dirty) == [
        "overall_confidence",
        "round",
        "vectors.clarity",
        "vectors.context",
        "vectors.do",
        "vectors.signal",
    ]
    assert found.said["vectors.moxie"] == "0.9"
    assert found.said["meta.prompt"] == "replace the parser"


def test_vectors_in_groups_are_taken_out_of_them_and_told() -> None:
    vectors = {"foundation": {"know": 0.5, "do": 2, "spirit": 1}, "uncertainty": 0.5}
    note = checkpoint(vectors=vectors)
    data = mapped(f"session/{SESSION}/PREFLIGHT/0", note)
    assert (data.vectors.know, data.vectors.do, data.vectors.uncertainty) == (0.5, None, 0.5)
    found = claims(f"session/{SESSION}/PREFLIGHT/0", note)
    assert [one.path for one in found.dirty] == ["vectors.foundation", "vectors.foundation.do"]
    assert found.said["vectors.foundation.spirit"] == "1"


@pytest.mark.parametrize("phase", ["ACTING", "", 7, None])
def test_a_phase_that_there_is_not_is_kept_aside(phase: Any) -> None:
    assert record("session/s", checkpoint("s", phase=phase)).data.mapped_kind is None


def test_the_words_of_a_checkpoint_are_its_task_and_reasoning_once() -> None:
    meta = {"task_summary": "It is done", "reasoning": "It is done"}
    assert mapped("session/s/ACT/1", checkpoint("s", "ACT", meta=meta)).reasoning == "It is done"
    meta["reasoning"] = "All is green"
    assert mapped("session/s/ACT/1", checkpoint("s", "ACT", meta=meta)).reasoning == "It is done\n\nAll is green"


def test_a_finding_says_what_it_says_twice_once() -> None:
    note = logged("finding", finding="f", impact=0.5, finding_data={"finding": "f", "impact": 0.5, "more": "x"})
    found = claims("findings/1", note).said
    assert {name for name in found if name.startswith("finding_data")} == {"finding_data.more"}
    assert mapped("findings/1", {"session_id": "s", "finding_data": {"finding": "inner"}}).finding == "inner"


def test_a_resolved_unknown_says_so() -> None:
    said = claims("unknowns/1", logged("unknown", unknown="u", resolved=True, resolved_by="me")).said
    assert (said["resolved"], said["resolved_by"]) == ("true", "me")


def test_a_mistake_is_a_dead_end_with_its_prevention() -> None:
    note = logged("mistake", mistake="m", why_wrong="w", prevention="p", cost_estimate="1 h")
    data = mapped("mistakes/1", note)
    assert (data.approach, data.why_failed) == ("m", "w\nPrevention: p")
    assert claims("mistakes/1", note).said["read as"] == "a mistake"


@pytest.mark.parametrize(
    ("tail", "note", "said"),
    [
        ("findings/1", {"finding": "f"}, "does not name its session"),
        ("findings/1", {"session_id": "s"}, "no text in its field finding"),
        ("findings/1", {"session_id": "s\x01", "finding": "f"}, "control characters"),
        ("findings/1", {"session_id": 7, "finding": "f"}, "does not name its session"),
        ("handoff/" + "ü" * 300, handoff("x"), "too long"),
        ("goals/1", {"session_id": "s"}, "no objective"),
        ("cascades/1", {"session_id": "s"}, "does not know the kind of note"),
        ("", {"session_id": "s"}, "does not know the kind of note"),
        ("handoff-markdown/s", b"# Report", "Markdown"),
        ("handoff/s/markdown", b"# Report", "Markdown"),
        ("findings/1", b"\x00\xff", "not UTF-8"),
    ],
)
def test_what_stands_for_nothing_is_kept_aside_with_the_reason(tail: str, note: Any, said: str) -> None:
    made = record(tail, note)
    assert made.data.mapped_kind is None
    assert made.stream.startswith("record/")
    assert said in made.data.reason


def test_a_note_larger_than_a_blob_is_kept_aside() -> None:
    made = record("findings/1", b"", content=None)
    assert "not even its original is stored" in made.data.reason


@pytest.mark.parametrize("sign", ["word ", "文", "x", '"\\ '])
def test_whatever_is_too_large_for_an_event_is_shortened_and_told(sign: str) -> None:
    findings = [f"{number} " + sign * 3000 for number in range(30)]
    note = handoff(findings=findings, next=sign * 60_000, unknowns=findings, extra={"a": sign * 9000})
    made = record(f"handoff/{SESSION}", note)
    assert made.data.mapped_kind == "report.generated", made.data.reason
    read_mapped(made.data)
    assert len(encode_canonical(made.data)) < entry_size_max_bytes
    assert any("to fit an event" in one["why"] for one in made.data.claims["dirty"])
    assert len(made.data.mapped["key_findings"]) == 30


def test_too_many_texts_for_an_event_lose_the_last_of_each_list_and_that_is_told() -> None:
    lists = {
        name: [f"{name} {number} is so" for number in range(1000)] for name in ("findings", "unknowns", "recommend")
    }
    made = record(f"handoff/{SESSION}", handoff(**lists, artifacts=["a" * 1000] * 1000))
    assert made.data.mapped_kind == "report.generated"
    assert len(made.data.mapped["key_findings"]) < 1000
    assert any("only the first" in one["why"] for one in made.data.claims["dirty"])


def test_the_format_names_tool_and_kind() -> None:
    assert record("findings/1", logged("finding", finding="f")).data.format == "empirica/findings"
    with pytest.raises(Refused):
        read_mapped(
            record("findings/1", logged("finding", finding="f")).data.__class__(
                original=REF, source="s", format="f", mapped_kind="tool.used"
            )
        )


def test_names_that_come_to_the_same_are_all_said() -> None:
    long = "k" * 300
    odd = {"vectors.zeal": "outer", "noted object": "theirs", f"{long}1": "one", f"{long}2": "two"}
    note = checkpoint(vectors={"know": 0.5, "zeal": "inner"}, **odd)
    said = claims(f"session/{SESSION}/CHECK/1", note).said
    assert {"outer", "inner", "theirs", "one", "two", "a" * 40} <= set(said.values())
    assert said["noted object"] == "a" * 40
