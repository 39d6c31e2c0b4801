"""`deed report query`, `similar`, `overlap`, `calibration`: reports are found and compared; bad queries are refused."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from reported_sessions import begin, finish

from deedbook.consumers.interfaces.cli.commands.reports import reported_at

if TYPE_CHECKING:
    from calling import Deed
    from reported_sessions import Fresh


@pytest.mark.parametrize("verb", [["session", "list"], ["report", "query"]])
def test_cursor_that_no_page_has_and_text_that_is_none_are_refused(deed: Deed, verb: list[str]) -> None:
    deed.refuses("INTEGER_OUT_OF_RANGE", *verb, "--after", 10**30)
    deed.refuses("INVALID_FORMAT", *verb, "--ai-id", "not\udcff text")


def test_report_that_was_imported_without_a_time_has_none() -> None:
    report = {"timestamp": "2026-02-12T10:00:00.000Z"}
    assert reported_at(report | {"imported": None}) == "2026-02-12T10:00:00"
    assert reported_at(report | {"imported": {"claimed_at": "2026-02-12T10:00:00Z"}}) == "2026-02-12T10:00:00"
    assert reported_at(report | {"imported": {"claimed_at": None}}) == "undated"


@pytest.mark.served
def test_query_finds_by_agent_time_and_pattern_and_pages(deed: Deed, fresh: Fresh) -> None:
    label = fresh("agent")
    names = [begin(deed, fresh("q"), f"Validate part {n} of it", "--ai-id", label) for n in range(3)]
    for name in names:
        finish(deed, name)
    begin(deed, fresh("q"), "Water the plants", "--ai-id", label)
    query = ["report", "query", "--ai-id", label, "--since", "7 days ago", "--task-pattern", "VALIDATE part|nothing"]
    first = deed.document(*query, "--limit", 2)
    assert (first["data"]["total_found"], len(first["data"]["reports"])) == (3, 2)
    assert first["data"]["reports"][0].keys() >= {"session_id", "ai_id", "timestamp", "task", "key_findings"}
    assert first["data"]["reports"][0]["epistemic_growth"] == pytest.approx(0.3)
    rest = deed.document(*shlex.split(first["next"])[1:])
    assert [one["session_id"] for one in rest["data"]["reports"]] == names[:1]
    assert "next" not in rest
    said = deed(*query, "--limit", 2)
    assert "  +0.30   " in said
    assert f"3 in all; continue with: {first['next']}" in said
    assert deed("report", "query", "--ai-id", label, "--since", "2999-01-01") == "(none)\n"
    assert deed.data("report", "query", "--ai-id", label, "--task-pattern", "water")["total_found"] == 0


@pytest.mark.parametrize("since", ["no time", "", "in 3 days", "2026-13-01", "x" * 1000])
def test_since_that_is_no_time_is_refused(deed: Deed, since: str) -> None:
    for verb in ("query", "overlap", "calibration"):
        assert "10 minutes ago" in deed.refuses("INVALID_FIELD", "report", verb, "--since", since)["message"]


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "(", "a{1001}", "((a{100}){100}){100}"])
def test_pattern_that_re2_does_not_take_is_refused(deed: Deed, pattern: str) -> None:
    deed.refuses("PATTERN_NOT_SUPPORTED", "report", "query", "--task-pattern", pattern)


def test_pattern_that_explodes_elsewhere_is_answered(deed: Deed, fresh: Fresh) -> None:
    label, name = fresh("agent"), fresh("bomb")
    begin(deed, name, "a" * 5000 + "!", "--ai-id", label)
    finish(deed, name)
    found = deed.data("report", "query", "--ai-id", label, "--task-pattern", "^(a+)+$")
    assert found["total_found"] == 0
    assert deed.data("report", "query", "--ai-id", label, "--task-pattern", "^(a+)+!$")["total_found"] == 1
