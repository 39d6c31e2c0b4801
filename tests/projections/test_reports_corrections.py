"""A report leaves out retracted records of its session. It finds them by their text, even if it is shortened."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from reporting import report

from deedbook.projections.reports.compressed import compressed_of
from deedbook.projections.reports.markdown import counted, markdown_of
from deedbook.projections.reports.report import Report, ReportCorrection, is_same, uncorrected


def corrected(kind: str, text: str, **fields: Any) -> Report:
    """Return the example report after a correction of one text."""
    made = ReportCorrection(
        kind=kind, text=text, author="ada", timestamp="2026-02-13T", words="the `cause`", event_index=9
    )
    return msgspec.structs.replace(report(**fields), corrections=[made])


@pytest.mark.parametrize(
    ("whole", "held", "is_it"),
    [
        ("the pool leaks", "the pool leaks ", True),
        ("the pool leaks under load", "the pool leaks…", True),
        ("see https://x/aaaaaaaaaaaa for the query", "see https://x/aa… for the query", True),
        ("see https://x/aaaaaaaaaaaa for the query", "see https://x/aa… for a query", False),
        ("wait… what", "wait… what", True),
        ("the pool leaks", "the pool", False),
        ("the pool leaks", "…", True),
    ],
)
def test_a_shortened_text_is_known_by_what_is_left_of_it(whole: str, held: str, is_it: bool) -> None:
    assert is_same(whole, held) is is_it


def test_a_retracted_finding_is_struck_for_people_and_gone_for_whoever_goes_on() -> None:
    made = corrected("finding.retracted", "All 4 test categories passed")
    assert counted(made) == "1 finding retracted"
    struck = "- ~~All 4 test categories passed~~ (retracted 2026-02-13 by ada: the `cause`)"
    assert struck in markdown_of(made)
    assert "**Corrected:** 1 finding retracted" in markdown_of(made)
    small = json.loads(compressed_of(made))
    assert small["findings"] == ["Performance is excellent: <15ms"]
    assert small["more"]["corrected"] == 1
    assert "Corrected" not in markdown_of(report())


def test_a_resolved_unknown_is_asked_no_more() -> None:
    made = corrected(
        "unknown.resolved", "Long-term performance", recommended_next_steps=["Find out: Long-term performance"]
    )
    assert (uncorrected(made).remaining_unknowns, uncorrected(made).recommended_next_steps) == ([], [])
    assert "- ~~Long-term performance~~ (resolved 2026-02-13 by ada: the `cause`)" in markdown_of(made)


def test_a_retracted_dead_end_leaves_the_context_that_was_derived() -> None:
    context = "(Derived from the session's events.) Dead end: Restart (it comes back). Open: Who opens it."
    made = corrected("dead_end.retracted", "Restart (it comes back)", next_session_context=context)
    assert uncorrected(made).next_session_context == "(Derived from the session's events.) Open: Who opens it."
    alone = corrected("unknown.resolved", "Who", next_session_context="(Derived from the session's events.) Open: Who.")
    assert uncorrected(alone).next_session_context == ""


def test_what_the_report_never_said_is_struck_beside_what_it_says() -> None:
    made = corrected("finding.retracted", "In other words")
    assert uncorrected(made).key_findings == report().key_findings
    assert "- ~~In other words~~ (retracted" in markdown_of(made)
