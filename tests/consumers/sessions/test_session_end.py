"""An ended session has its report, or the reason why there is none; and a summary has a line for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.sessions.report import report_at_end
from deedbook.consumers.sessions.resume import resume
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events import session as kinds

if TYPE_CHECKING:
    from building import Ledger
    from report_figures import Recorder

FOUND = kinds.FindingLogged(finding="The pool is never closed after an exception")
LAST = kinds.AssessmentRecorded(phase="POSTFLIGHT", vectors=kinds.Vectors(know=0.9, uncertainty=0.1))
FIRST = kinds.AssessmentRecorded(phase="PREFLIGHT", vectors=kinds.Vectors(know=0.2, uncertainty=0.7))


def ended(recorder: Recorder, ledger: Ledger, *data: Any, task: str = "Find the leak") -> dict[str, Any]:
    """End a session with these events, and return the result for its report."""
    events = [kinds.SessionStarted(task=task), *data, kinds.SessionEnded()]
    recorder.author.emit(*(Draft(stream="session/s", data=event) for event in events))
    return report_at_end(recorder.author, recorder.answer, ledger.settings(), "s")


@pytest.mark.parametrize("before", [(), (FIRST,), (FIRST, LAST)])
def test_a_session_that_found_something_gets_its_report_once(
    recorder: Recorder, ledger: Ledger, before: tuple[Any, ...]
) -> None:
    made = ended(recorder, ledger, FOUND, *before)
    assert made["status"] == "success"
    listed = recorder.answer("reports.list", {})["reports"]
    assert [report["key_findings"] for report in listed] == [[FOUND.finding]]
    assert report_at_end(recorder.author, recorder.answer, ledger.settings(), "s") == {"status": "exists"}
    assert recorder.answer("reports.list", {})["total_found"] == 1


def test_a_session_without_a_finding_is_told_why_it_has_no_report(recorder: Recorder, ledger: Ledger) -> None:
    told = ended(recorder, ledger, FIRST)
    assert told["status"] == "nothing_found"
    assert "deed report generate" in told["message"]
    assert recorder.answer("reports.list", {})["total_found"] == 0


def test_a_report_that_cannot_be_made_is_told_with_its_error(recorder: Recorder, ledger: Ledger) -> None:
    told = ended(recorder, ledger, FOUND, task="")
    assert (told["status"], told["error"]["code"]) == ("failed", "INVALID_FIELD")


@pytest.mark.parametrize("count", [3, 8, 12, 15])
def test_a_summary_has_a_line_for_each_finding_and_a_dead_end(recorder: Recorder, count: int) -> None:
    findings = [
        f"Module {number} of the session pool keeps its handles open after an exception in the login handler, because "
        f"nobody closes them before the timeout of {number} seconds"
        for number in range(count)
    ]
    dead_end = kinds.DeadEndLogged(approach="Raise the timeout " * 20, why_failed="The call never returns " * 20)
    events = [kinds.SessionStarted(task="Find the leak"), FIRST, *(kinds.FindingLogged(finding=f) for f in findings)]
    recorder.author.emit(*(Draft(stream="session/long", data=data) for data in [*events, dead_end, LAST]))
    answer = resume(recorder.answer, lambda _: b"", session_id="long", resume_mode="session_id")
    (session,) = answer["sessions"]
    lines = session["key_findings"]
    assert all(any(line.startswith(f"Module {number} of") for line in lines) for number in range(count))
    assert answer["dead_ends"][0]["approach"].startswith("Raise the timeout")
    assert answer["token_estimate"] <= 400
