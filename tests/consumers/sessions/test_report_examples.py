"""Four usage examples, run as their users write them."""

from __future__ import annotations

import pytest
from usage_examples import AFTER, ARTIFACTS, BEFORE, CONTEXT, FINDINGS, UNKNOWNS, run_session

from deedbook.seeds import (
    bootstrap_session,
    execute_postflight,
    generate_handoff_report,
    query_handoff_reports,
    query_handoffs,
    resume_previous_session,
    submit_postflight_assessment,
    submit_preflight_assessment,
)


@pytest.mark.usefixtures("agents_home")
def test_example_1_generate_handoff_during_postflight() -> None:
    session_id = bootstrap_session("Validate Goal Architecture Phase 1", ai_id="minimax")
    submit_preflight_assessment(session_id, BEFORE)
    execute_postflight(session_id, "Validated Goal Architecture Phase 1")
    submit_postflight_assessment(
        session_id=session_id, vectors=AFTER, reasoning="Successfully validated all functionality"
    )
    handoff = generate_handoff_report(
        session_id=session_id,
        task_summary="Validated Goal Architecture Phase 1 - all tests passing",
        key_findings=FINDINGS,
        remaining_unknowns=UNKNOWNS,
        next_session_context=CONTEXT,
        artifacts_created=ARTIFACTS,
    )
    assert handoff["report_id"].startswith("event:")
    assert handoff["warnings"] == []
    for text in (*FINDINGS[2:4], *UNKNOWNS, *ARTIFACTS, "| KNOW | 0.70 | 0.95 | +0.25 | ✅ Improved |"):
        assert text in handoff["markdown"]


@pytest.mark.usefixtures("agents_home")
def test_example_2_resume_previous_session() -> None:
    session_id = run_session("minimax", "Validated Goal Architecture Phase 1", FINDINGS)
    generate_handoff_report(session_id, "Validated it", FINDINGS, UNKNOWNS, CONTEXT, ARTIFACTS)
    handoff = resume_previous_session(ai_id="minimax", resume_mode="last", detail_level="detailed")
    (prev,) = handoff["sessions"]
    assert (prev["task"], prev["outcome"]) == ("Validated Goal Architecture Phase 1", "Validated it")
    assert prev["epistemic_deltas"]["know"] == 0.25
    assert prev["key_findings"] == FINDINGS
    assert prev["remaining_unknowns"] == UNKNOWNS
    assert prev["next_steps"] == [
        *(f"Find out: {one}" for one in UNKNOWNS),
        "Ready for execution - strong epistemic foundation",
    ]
    assert prev["next_session_context"] == CONTEXT
    assert ", ".join(prev["investigation_tools"]) == ""
    assert prev["artifacts_created"] == ARTIFACTS
    assert handoff["token_estimate"] <= 800


@pytest.mark.usefixtures("agents_home")
def test_example_3_query_team_history() -> None:
    run_session("minimax", "Testing the parser", FINDINGS[:3])
    run_session("claude-code", "Wrote documentation", FINDINGS[:3])
    run_session("minimax", "Validation of the queue", FINDINGS[1:4])
    reports = query_handoff_reports(since="7 days ago", limit=20)
    assert [one["task"] for one in reports["reports"]] == [
        "Validation of the queue",
        "Wrote documentation",
        "Testing the parser",
    ]
    assert f"{reports['reports'][0]['epistemic_growth']:+.2f}" == "+0.21"
    minimax_testing = query_handoff_reports(ai_id="minimax", task_pattern="test|validation", limit=1)
    assert minimax_testing["total_found"] == 2
    following = query_handoff_reports(
        ai_id="minimax", task_pattern="test|validation", limit=1, after=minimax_testing["next"]
    )
    assert [one["task"] for one in following["reports"]] == ["Testing the parser"]
    assert following["next"] is None
    assert [one["ai_id"] for one in query_handoffs(ai_id="claude-code")] == ["claude-code"]


@pytest.mark.usefixtures("agents_home")
def test_example_4_multi_agent_coordination() -> None:
    for ai_id in ("claude-code", "minimax", "rovodev"):
        run_session(ai_id, f"Work of {ai_id}", FINDINGS[:3])
    for ai_id in ("claude-code", "minimax", "rovodev"):
        (last,) = resume_previous_session(ai_id=ai_id, resume_mode="last")["sessions"]
        assert last["task"] == f"Work of {ai_id}"
        assert last["calibration_status"] == "well_calibrated"
        assert last["next_steps"][0] == "Ready for execution - strong epistemic foundation"
