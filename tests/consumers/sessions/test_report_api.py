"""The functions for Python by name, each opening and closing the ledger, and a session from start to resuming."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger, trusted
from serving import CAROL, ServeProcess, make_home
from usage_examples import AFTER, BEFORE, FINDINGS, run_session

from deedbook.consumers.sessions.api import (
    EpistemicHandoffReportGenerator,
    bootstrap_session,
    execute_postflight,
    execute_preflight,
    generate_handoff_report,
    load_handoff,
    query_handoff_reports,
    query_handoffs,
    resume_previous_session,
    submit_postflight_assessment,
    submit_preflight_assessment,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import FindingLogged, UnknownLogged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def log(home: Path, session_id: str, *data: Any) -> None:
    """Record something in a session of alice."""
    with Ledger(home) as ledger:
        for one in data:
            ledger.emit("alice", f"session/{session_id}", one)


@pytest.mark.usefixtures("agents_home")
def test_end_to_end_handoff() -> None:
    session_id = bootstrap_session(ai_id="test")
    execute_preflight(session_id, "Test task")
    submit_preflight_assessment(session_id, BEFORE)
    execute_postflight(session_id, "Task complete")
    submit_postflight_assessment(session_id, AFTER)
    report = generate_handoff_report(
        session_id=session_id,
        task_summary="Test complete",
        key_findings=["Finding 1"],
        remaining_unknowns=["Unknown 1"],
        next_session_context="Continue",
    )
    assert report["status"] == "success"
    assert report["token_count"] > 0
    handoff = resume_previous_session(ai_id="test", resume_mode="last")
    assert len(handoff["sessions"]) == 1
    assert handoff["sessions"][0]["task"] == "Test complete"
    assert handoff["token_estimate"] < 2000
    assert handoff["sessions"][0]["calibration_status"] == "well_calibrated"


def test_a_fresh_process_resumes_what_another_recorded(agents_home: Path) -> None:
    session_id = run_session("minimax", "Found the leak", FINDINGS[:3])
    program = (
        "from deedbook import resume_previous_session; "
        "print(resume_previous_session(detail_level='full')['sessions'][0])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert session_id in told.stdout
    assert FINDINGS[2] in told.stdout


def test_postflight_makes_the_report_by_itself_from_what_was_logged(agents_home: Path) -> None:
    session_id = bootstrap_session("Find the leak", ai_id="minimax")
    log(agents_home, session_id, FindingLogged(finding="Learned that it leaks"), UnknownLogged(unknown="Since when"))
    submit_preflight_assessment(session_id, BEFORE)
    execute_postflight(session_id, "Found the leak")
    made = submit_postflight_assessment(session_id, AFTER, "Because of the test")
    assert made["handoff_report"]["report_type"] == "complete"
    (told,) = resume_previous_session()["sessions"]
    assert (told["task"], told["outcome"]) == ("Find the leak", "Found the leak")
    assert told["key_findings"] == ["Learned that it leaks"]
    assert told["remaining_unknowns"] == ["Since when"]


@pytest.mark.usefixtures("agents_home")
def test_a_postflight_stands_when_its_report_fails_and_the_report_can_be_made_later() -> None:
    session_id = bootstrap_session("Find the leak")
    done = submit_postflight_assessment(session_id, AFTER)
    assert done["handoff_report"] is None
    assert "POSTFLIGHT is recorded" in done["warnings"][0]
    assert done["report_error"]["code"] == "INVALID_FIELD"
    assert resume_previous_session(detail_level="full")["sessions"][0]["assessments"][0]["vectors"] == AFTER
    assert generate_handoff_report(session_id, key_findings=FINDINGS)["status"] == "success"


def test_stores_that_cannot_be_written_are_a_warning_and_the_report_stands(agents_home: Path) -> None:
    session_id = bootstrap_session("Find the leak")
    (agents_home / "config.toml").write_text('[reports]\ngit = ""\n', "utf-8")
    trusted(agents_home)
    made = generate_handoff_report(session_id, "Found it", FINDINGS)
    assert (made["status"], made["stored"]) == ("success", [])
    assert "no copy was written" in made["warnings"][-1]
    (agents_home / "config.toml").write_text('[reports]\ngit = "nowhere"\n', "utf-8")
    trusted(agents_home)
    again = generate_handoff_report(session_id, "Found it", FINDINGS)
    assert again["report_id"] == made["report_id"]
    assert again["storage_location"] == f"ledger:session/{session_id}"
    assert again["warnings"][-1].startswith("not copied to git_notes")
    assert "`deed notes sync`" in again["warnings"][-1]


@pytest.mark.usefixtures("agents_home")
def test_the_generator_reads_the_ledger_of_the_environment_and_stores_nothing() -> None:
    session_id = bootstrap_session("Find the leak", ai_id="minimax")
    report = EpistemicHandoffReportGenerator().generate_handoff_report(session_id, key_findings=FINDINGS)
    assert (report["session_id"], report["task_summary"], report["ai_id"]) == (session_id, "Find the leak", "minimax")
    assert load_handoff(session_id) is None


@pytest.mark.usefixtures("agents_home")
def test_a_postflight_without_a_handoff_makes_none() -> None:
    session_id = bootstrap_session("Find the leak")
    assert "handoff_report" not in execute_postflight(session_id, "Done", generate_handoff=False)
    assert "handoff_report" not in submit_postflight_assessment(session_id, AFTER, generate_handoff=False)
    assert load_handoff(session_id) is None


@pytest.mark.usefixtures("agents_home")
def test_a_report_is_loaded_as_json_and_as_markdown_with_its_long_texts_whole() -> None:
    session_id = bootstrap_session("Find the leak")
    long = [f"Finding {n} " + "is long and goes on. " * 600 for n in range(5)]
    generate_handoff_report(session_id, "Found it", long)
    loaded = load_handoff(session_id[:8], "json")
    assert loaded is not None
    assert (loaded["s"], loaded["task"], loaded["outcome"]) == (session_id[:8], "Find the leak", "Found it")
    markdown = load_handoff(session_id, format="markdown")
    assert markdown is not None
    assert all(text.strip() in markdown["markdown"] for text in long)
    with pytest.raises(Refused):
        load_handoff(session_id, "html")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "vectors",
    [
        {"know": 1.1},
        {"know": -0.1},
        {"know": float("nan")},
        {"know": float("inf")},
        {"know": "0.5"},
        {"know": True},
        {"wisdom": 0.5},
        {"know": 0.5, "KNOW": 0.6},
        {},
        [0.5],
    ],
)
@pytest.mark.usefixtures("agents_home")
def test_vectors_that_are_none_are_refused_and_nothing_is_recorded(vectors: Any) -> None:
    session_id = bootstrap_session("Find the leak")
    for submit in (submit_preflight_assessment, submit_postflight_assessment):
        with pytest.raises(Refused) as caught:
            submit(session_id, vectors)
        assert caught.value.code == "INVALID_FIELD"
    with pytest.raises(Refused):
        submit_preflight_assessment(session_id, BEFORE, overall_confidence=float("nan"))
    told = resume_previous_session(detail_level="full")["sessions"][0]
    assert told["assessments"] == []


def test_a_session_unknown_ended_or_anothers_is_refused_with_its_code(
    agents_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = bootstrap_session("Find the leak")
    monkeypatch.setenv("DEEDBOOK_AGENT", "bob")
    for call, code in (
        (lambda: submit_preflight_assessment(session_id, BEFORE), "NOT_AUTHORIZED"),
        (lambda: generate_handoff_report(session_id, "x", FINDINGS), "NOT_AUTHORIZED"),
        (lambda: submit_preflight_assessment("none", BEFORE), "NOT_FOUND"),
        (lambda: generate_handoff_report("none", "x", FINDINGS), "NOT_FOUND"),
        (lambda: bootstrap_session(session_id=session_id), "TRANSITION_NOT_ALLOWED"),
        (lambda: execute_postflight(session_id, " "), "INVALID_FIELD"),
        (lambda: query_handoff_reports(since="nonsense"), "INVALID_FIELD"),
        (lambda: query_handoff_reports(task_pattern=r"(a)\1"), "PATTERN_NOT_SUPPORTED"),
        (lambda: query_handoff_reports(task_pattern="("), "PATTERN_NOT_SUPPORTED"),
        (lambda: query_handoff_reports(limit=0), "INVALID_FIELD"),
    ):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.code == code
    monkeypatch.delenv("DEEDBOOK_AGENT")
    with pytest.raises(Refused) as caught:
        generate_handoff_report(session_id, "x", FINDINGS)
    assert caught.value.code == "USAGE"


@pytest.mark.usefixtures("agents_home")
def test_a_regex_bomb_answers_like_any_pattern() -> None:
    run_session("minimax", "a" * 5_000 + "b", FINDINGS[:3])
    assert query_handoff_reports(task_pattern="(a*)*#")["total_found"] == 0
    assert query_handoff_reports(task_pattern="(A*)*B$")["total_found"] == 1


def test_the_functions_take_their_arguments_in_the_order_that_callers_rely_on() -> None:
    relied_on = {
        generate_handoff_report: [
            "session_id",
            "task_summary",
            "key_findings",
            "remaining_unknowns",
            "next_session_context",
            "artifacts_created",
        ],
        resume_previous_session: ["ai_id", "resume_mode", "session_id", "count", "detail_level"],
        query_handoff_reports: ["ai_id", "since", "task_pattern", "limit"],
        execute_postflight: ["session_id", "task_summary", "generate_handoff"],
        load_handoff: ["session_id", "format"],
        query_handoffs: ["ai_id", "since", "limit"],
    }
    for function, names in relied_on.items():
        assert list(inspect.signature(function).parameters)[: len(names)] == names


# With a server: an agent without the log


@pytest.fixture
def carols(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A node in another process, and how carol names it."""
    monkeypatch.chdir(home.parent if home.parent.exists() else "/")
    settings = make_home(home)
    node = ServeProcess(settings)
    try:
        yield {"home": settings.home, "server": node.url, "agent": CAROL}
    finally:
        node.stop()


def test_a_session_is_reported_and_resumed_over_the_bus(carols: dict[str, Any]) -> None:
    session_id = bootstrap_session("Find the leak", ai_id="minimax", **carols)
    submit_preflight_assessment(session_id, {"know": 0.4, "uncertainty": 0.6}, **carols)
    submit_postflight_assessment(session_id, {"know": 0.9, "uncertainty": 0.1}, generate_handoff=False, **carols)
    findings = [f"Finding {number}: " + "it goes on and on. " * 600 for number in range(5)]
    made = generate_handoff_report(session_id, "Found it", findings, **carols)
    assert generate_handoff_report(session_id, "Found it", findings, **carols)["report_id"] == made["report_id"]
    resumed = resume_previous_session("minimax", detail_level="detailed", **carols)
    assert resumed["sessions"][0]["session_id"] == session_id
    assert resumed["token_estimate"] <= 800
    loaded = load_handoff(session_id, "markdown", **carols)
    assert loaded is not None
    assert all(text.strip() in loaded["markdown"] for text in findings)
    assert query_handoff_reports(since="1 day ago", task_pattern="found", **carols)["total_found"] == 1
