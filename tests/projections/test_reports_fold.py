"""Reports: given these events, expect these rows."""

from __future__ import annotations

import json

import pytest
from folding import facts, rows_of
from hypothesis import given
from hypothesis import strategies as st
from reporting import generated

from deedbook.projections.reports.fold import REPORTS, ReportRecord
from deedbook.projections.reports.fold import VIEW as REPORT_VIEW

KNOWN_COLUMNS = [
    "session_id",
    "ai_id",
    "timestamp",
    "task_summary",
    "epistemic_deltas",
    "key_findings",
    "remaining_unknowns",
    "next_session_context",
    "recommended_next_steps",
    "calibration_status",
    "compressed_json",
    "markdown_report",
    "created_at",
]


def events(*tasks):
    """Return several reports of session s, a second apart."""
    return facts("session/s", *(("bob", generated(task_summary=task)) for task in tasks))


def test_the_table_has_the_columns_and_indexes_that_other_tools_read():
    assert list(REPORTS.columns[: len(KNOWN_COLUMNS)]) == KNOWN_COLUMNS
    assert REPORTS.primary_key == ("session_id",)
    assert {("ai_id",), ("timestamp",)} <= set(REPORTS.indexes)


def test_a_report_is_a_row_that_other_tools_read():
    (row,) = rows_of(REPORT_VIEW, "s", events("one"))["handoff_reports"]
    assert (row["session_id"], row["ai_id"], row["author"]) == ("s", "minimax", "bob")
    assert row["timestamp"] == "2026-02-12T10:00:00.000Z"
    assert row["created_at"] == 1_770_890_400.0
    assert json.loads(row["epistemic_deltas"])["uncertainty"] == -0.45
    assert json.loads(row["key_findings"])[0] == "All 4 test categories passed"
    assert json.loads(row["recommended_next_steps"]) == ["Ready for execution - strong epistemic foundation"]
    assert json.loads(row["compressed_json"])["task"] == "one"
    assert row["markdown_report"].startswith("# Epistemic Handoff Report\n")


def test_the_latest_version_counts_and_all_are_kept():
    rows = rows_of(REPORT_VIEW, "s", events("one", "two", "three"))
    (row,) = rows["handoff_reports"]
    assert (row["task_summary"], row["event_index"]) == ("three", 2)
    kept = [(one["event_index"], json.loads(one["report"])["task_summary"]) for one in rows["handoff_report_versions"]]
    assert kept == [(0, "one"), (1, "two"), (2, "three")]


@given(st.permutations(range(4)))
def test_an_older_version_never_takes_the_place_of_a_newer(order):
    made = events("0", "1", "2", "3")
    state = ReportRecord("s")
    for place in order:
        state = REPORT_VIEW.fold(state, made[place])
    assert state.report.task_summary == "3"


def test_a_report_without_an_agent_is_its_authors():
    (event,) = facts("session/s", ("bob", generated(ai_id="")))
    (row,) = rows_of(REPORT_VIEW, "s", [event])["handoff_reports"]
    assert row["ai_id"] == "bob"


def test_the_table_holds_one_row_a_session_after_another_version(ledger, reader):
    ledger.record_session("s1")
    ledger.report("s1", task_summary="one")
    reader.catch_up()
    ledger.report("s1", task_summary="two")
    reader.catch_up()
    with reader.store.reading() as reading:
        rows = reading.rows("SELECT task_summary, calibration_status FROM handoff_reports WHERE ai_id = 'bob-1'")
        assert rows == [{"task_summary": "two", "calibration_status": "well_calibrated"}]
        assert len(reading.rows("SELECT 1 FROM handoff_report_versions")) == 2
        indexes = {row["name"] for row in reading.rows("SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert {"by_handoff_reports_ai_id", "by_handoff_reports_timestamp"} <= indexes


@pytest.mark.parametrize("column", ["markdown_report", "compressed_json"])
def test_what_the_row_holds_is_what_the_query_shows(ledger, reader, column):
    ledger.record_session("s1")
    ledger.report("s1")
    shown = reader.answer("reports.show", {"id": "s1"})["report"]
    with reader.store.reading() as reading:
        (row,) = reading.rows("SELECT * FROM handoff_reports")
    assert row[column] == shown["markdown" if column == "markdown_report" else column]
