"""The generator by example, and by its rules at their thresholds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from given_session import given_session

from deedbook.consumers.sessions.api import EpistemicHandoffReportGenerator
from deedbook.consumers.sessions.generator import ReportInputs, generate, identify_filled_gaps, recommend
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

READY = "Ready for execution - strong epistemic foundation"
VALIDATE = "Validate assumptions - showing overconfidence pattern"
GENERATOR = EpistemicHandoffReportGenerator()


def answering(shown: dict[str, Any]) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """Return a view that knows one session."""
    answers = {"sessions.show": shown, "reports.accomplished": {"items": []}}
    return lambda query, _arguments: answers[query]


def test_generate_handoff_report() -> None:
    report = EpistemicHandoffReportGenerator(answering(given_session("test-session"))).generate_handoff_report(
        session_id="test-session",
        task_summary="Test task",
        key_findings=["Finding 1", "Finding 2"],
        remaining_unknowns=["Unknown 1"],
        next_session_context="Continue testing",
    )
    assert report["session_id"] == "test-session"
    assert report["epistemic_deltas"]["know"] == 0.25
    assert "Finding 1" in report["markdown"]
    assert json.loads(report["compressed_json"])["outcome"] == "Test task"
    assert len(report["key_findings"]) == 2


def test_identify_filled_gaps() -> None:
    gaps = GENERATOR._identify_filled_gaps(
        {"know": 0.70, "uncertainty": 0.65}, {"know": 0.95, "uncertainty": 0.20}, ["Learned API patterns"]
    )
    assert [tuple(gap.values()) for gap in gaps] == [
        ("Domain knowledge", "KNOW: 0.70", "KNOW: 0.95", 0.25),
        ("Task uncertainty", "UNCERTAINTY: 0.65", "UNCERTAINTY: 0.20", 0.45),
        ("Investigation finding", "Unknown", "Learned API patterns", None),
    ]
    assert list(gaps[0]) == ["gap", "before", "after", "confidence_change"]


def test_generate_recommendations() -> None:
    calibrated = {"status": "well_calibrated"}
    uncertain = GENERATOR._generate_recommendations({"uncertainty": 0.60, "know": 0.70}, ["One", "Two"], calibrated)
    assert uncertain == ["Continue investigation - uncertainty still elevated", "Find out: One", "Find out: Two"]
    ready = GENERATOR._generate_recommendations({"uncertainty": 0.20, "know": 0.90}, [], calibrated)
    assert ready == ["Ready for execution - strong epistemic foundation"]


def test_compress_report() -> None:
    full_report = {
        "session_id": "a" * 36,
        "task_summary": "x" * 500,
        "epistemic_deltas": {"know": 0.25, "do": 0.05, "context": 0.02},
        "key_findings": ["f" * 200] * 10,
    }
    compressed = json.loads(GENERATOR._compress_report(full_report))
    assert len(compressed["s"]) == 8
    assert len(compressed["task"]) <= 200
    assert compressed["deltas"] == {"know": 0.25}
    assert len(compressed["findings"]) <= 5


@pytest.mark.parametrize(
    ("before", "after", "is_gap"),
    [(0.70, 0.85, True), (0.70, 0.8499, False), (0.1, 0.25, True), (0.85, 0.70, False), (None, 0.9, False)],
)
def test_knowledge_gained_by_fifteen_hundredths_is_a_gap_filled(
    before: float | None, after: float, is_gap: bool
) -> None:
    gaps = identify_filled_gaps({} if before is None else {"know": before}, {"know": after}, [])
    assert [gap.gap for gap in gaps] == (["Domain knowledge"] if is_gap else [])


@pytest.mark.parametrize(
    ("before", "after", "is_gap"), [(0.5, 0.3, True), (0.5, 0.3001, False), (0.9, 0.7, True), (None, 0.0, False)]
)
def test_uncertainty_reduced_by_a_fifth_is_a_gap_filled(before: float | None, after: float, is_gap: bool) -> None:
    gaps = identify_filled_gaps({} if before is None else {"uncertainty": before}, {"uncertainty": after}, [])
    assert [gap.gap for gap in gaps] == (["Task uncertainty"] if is_gap else [])


@pytest.mark.parametrize(
    ("vectors", "unknowns", "status", "steps"),
    [
        ({"uncertainty": 0.40}, [], "well_calibrated", []),
        ({"uncertainty": 0.41}, [], "well_calibrated", ["Continue investigation - uncertainty still elevated"]),
        ({}, [], "not_assessable", []),
        ({}, ["x"], "overconfident", ["Find out: x", VALIDATE]),
        ({}, [], "underconfident", ["Consider execution - showing underconfidence pattern"]),
        ({"uncertainty": 0.30, "know": 0.9}, [], "well_calibrated", []),
        ({"uncertainty": 0.29, "know": 0.80}, [], "well_calibrated", []),
        ({"uncertainty": 0.29, "know": 0.81}, [], "well_calibrated", [READY]),
        ({"know": 0.95}, [], "well_calibrated", []),
    ],
)
def test_recommendations_follow_their_thresholds_and_are_never_filler(
    vectors: dict[str, float], unknowns: list[str], status: str, steps: list[str]
) -> None:
    assert recommend(vectors, unknowns, status) == steps


@pytest.mark.parametrize(
    ("phases", "type_"),
    [
        (("PREFLIGHT", "CHECK", "POSTFLIGHT"), "complete"),
        (("PREFLIGHT", "CHECK"), "investigation"),
        (("PREFLIGHT",), "preflight_only"),
        (("POSTFLIGHT",), "planning"),
        (("CHECK",), "planning"),
        ((), "planning"),
    ],
)
def test_the_type_of_a_report_follows_from_the_phases_assessed(phases: tuple[str, ...], type_: str) -> None:
    data = generate(given_session("s", phases), ReportInputs(key_findings=["One"]), [])
    assert data.report_type == type_
    assert (data.calibration_status == "not_assessable") == (type_ != "complete")


def test_recommendations_of_an_investigation_rest_on_its_check() -> None:
    data = generate(given_session("s", ("PREFLIGHT", "CHECK")), ReportInputs(key_findings=["One"]), [])
    assert "Continue investigation - uncertainty still elevated" in data.recommended_next_steps


def test_what_nobody_gave_is_derived_from_the_session_and_says_so() -> None:
    data = generate(given_session("s"), ReportInputs(), ["task done: fix it (handoff h)"])
    assert (data.task, data.task_summary) == ("Find the leak", "Found the leak")
    assert data.key_findings == ["Learned that the pool is never closed", "The limit is 512"]
    assert data.remaining_unknowns == ["Who opens it"]
    assert data.investigation_tools == ["grep", "strace"]
    assert data.accomplished == ["task done: fix it (handoff h)"]
    assert data.next_session_context == (
        "(Derived from the session's events.) Last CHECK: Enough to begin."
        " Dead end: Restarting (it comes back). Open: Who opens it."
    )


def test_what_was_given_wins_over_what_could_be_derived() -> None:
    given = ReportInputs(
        task_summary=" Did it ",
        key_findings=["One", " "],
        remaining_unknowns=[],
        next_session_context="Go on",
        artifacts_created=["a.py"],
    )
    data = generate(given_session("s"), given, [])
    assert (data.task_summary, data.key_findings, data.remaining_unknowns) == ("Did it", ["One"], [])
    assert data.next_session_context == "Go on"
    assert data.accomplished == ["Created a.py"]


def test_without_anything_finished_the_task_summary_is_what_was_accomplished() -> None:
    assert generate(given_session("s"), ReportInputs(), []).accomplished == ["Found the leak"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (ReportInputs(task_summary="  "), "task_summary"),
        (ReportInputs(key_findings=[]), "key_findings"),
        (ReportInputs(key_findings=["", " \n"]), "key_findings"),
    ],
)
def test_an_empty_task_or_no_finding_is_refused_with_what_to_do(given: ReportInputs, field: str) -> None:
    with pytest.raises(Refused, match=rf"give [a-z ]+ as {field}") as caught:
        generate(given_session("s"), given, [])
    assert "--" not in caught.value.message
    assert caught.value.details["field"] == field


def test_an_assessment_without_vectors_opens_a_phase_and_is_not_compared() -> None:
    shown = given_session("s")
    opening = {**shown["assessments"][-1], "vectors": {}, "event_index": 90, "reasoning": "Closed the pool"}
    shown["assessments"] = [*shown["assessments"], opening]
    data = generate(shown, ReportInputs(), [])
    assert data.epistemic_deltas.know == 0.25
    assert data.task_summary == "Closed the pool"
