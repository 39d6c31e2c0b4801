"""Imported records: given these events, expect rows with their content, marked as imported."""

from __future__ import annotations

import pytest
from folding import rows_of
from given import fact

from deedbook.ledger.events.handoff import HandoffCompleted
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.codec import encode_sorted
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.records.fold import VIEW as RECORD_VIEW
from deedbook.projections.records.marks import happened_ms
from deedbook.projections.reports.fold import VIEW as REPORT_VIEW
from deedbook.projections.sessions.fold import VIEW as SESSION_VIEW
from deedbook.projections.views.projection import Logged

REF = "blake3:" + "1" * 64
DAY_MS = 1_748_736_000_000  # 2025-06-01
REPORT = {
    "report_type": "complete",
    "ai_id": "claude-code",
    "task_summary": "Replaced the parser",
    "key_findings": ["It was quadratic"],
    "recommended_next_steps": ["Measure"],
    "calibration_status": "not_assessable",
    "epistemic_deltas": {"know": 0.5, "uncertainty": -0.1},
}


def record(kind, mapped, **fields):
    """Return a record of an event of ``kind``."""
    made = {"claimed_author": "claude-code", "claimed_at": "2025-06-01T00:00:00Z", "source": f"notes/{kind}"} | fields
    return RecordImported(original=REF, format="empirica/x", mapped_kind=kind, mapped=mapped, **made)


def events(*records, stream="session/s"):
    """Return the events of records that alice imports."""
    return [fact("alice", data, stream=stream, index=index, at_s=index) for index, data in enumerate(records, 7)]


def goal(task, **fields):
    """Return the record of a goal."""
    return record("session.started", {"task": task, "ai_id": "claude-code"}, **fields)


def test_an_imported_session_is_said_to_be_its_authors_and_marked():
    found = events(goal("First", claimed_at="2025-06-01T00:00:05Z"), record("finding.logged", {"finding": "f"}))
    [row] = rows_of(SESSION_VIEW, "s", found)["sessions"]
    assert (row["status"], row["author"], row["ai_id"], row["task"]) == ("imported", "alice", "claude-code", "First")
    assert (row["started_index"], row["happened_ms"], row["findings"]) == (7, DAY_MS, 1)
    assert '"importer":"alice"' in row["imported"]
    assert '"event_index":7' in row["imported"]


def test_the_first_of_several_goals_is_the_task_of_the_session():
    [row] = rows_of(SESSION_VIEW, "s", events(record("finding.logged", {"finding": "f"}), goal("One"), goal("Two")))[
        "sessions"
    ]
    assert (row["task"], row["started_index"]) == ("One", 7)


def test_an_author_that_no_record_claims_is_unknown_and_never_the_importer():
    nobody = record("finding.logged", {"finding": "f"}, claimed_author=None)
    assert rows_of(SESSION_VIEW, "s", events(nobody))["sessions"][0]["ai_id"] == "unknown"
    assert rows_of(SESSION_VIEW, "s", events(nobody, goal("x")))["sessions"][0]["ai_id"] == "claude-code"


def test_a_native_session_is_not_marked_and_happened_when_it_was_accepted():
    native = [
        fact("bob", SessionStarted(task="t"), stream="session/s"),
        fact("bob", FindingLogged(finding="f"), index=1),
    ]
    [row] = rows_of(SESSION_VIEW, "s", native[:1])["sessions"]
    assert (row["status"], row["imported"], row["happened_ms"]) == ("open", None, row["started_ms"])


@pytest.mark.parametrize(
    ("claimed", "at_ms"),
    [
        ("2025-06-01T00:00:00Z", DAY_MS),
        ("2025-06-01T00:00:00.123456Z", DAY_MS + 123),
        ("2025-06-01T00:00:00+00:00", UNDATED_MS),
        ("2025-06-01 00:00:00Z", UNDATED_MS),
        ("2025-02-30T00:00:00Z", UNDATED_MS),
        ("1969-12-31T23:59:59Z", UNDATED_MS),
        ("2999-01-01T00:00:00Z", None),
        ("yesterday", UNDATED_MS),
        (None, UNDATED_MS),
    ],
)
def test_a_claimed_time_counts_only_where_it_can_be_true(claimed, at_ms):
    [event] = events(goal("x", claimed_at=claimed))
    assert happened_ms(event) == (event.accepted_ms if at_ms is None else at_ms)


def test_an_undated_record_is_older_than_all_others():
    undated = {"claimed_at": None}
    records = (goal("x", **undated), record("report.generated", REPORT))
    found = rows_of(REPORT_VIEW, "s", events(*records, record("report.generated", REPORT | {"ai_id": "y"}, **undated)))
    [row] = found["handoff_reports"]
    assert (row["ai_id"], row["happened_ms"]) == ("claude-code", DAY_MS)
    [session] = rows_of(SESSION_VIEW, "s", events(*records))["sessions"]
    assert session["happened_ms"] == DAY_MS
    [session] = rows_of(SESSION_VIEW, "s", events(goal("x", **undated)))["sessions"]
    assert session["happened_ms"] == UNDATED_MS


def test_what_was_recorded_has_the_time_that_it_claims():
    found = rows_of(SESSION_VIEW, "s", events(goal("x"), record("finding.logged", {"finding": "f", "impact": 0.5})))
    [row] = found["findings"]
    assert (row["finding"], row["impact"], row["happened_ms"]) == ("f", 0.5, DAY_MS)
    assert row["accepted_ms"] > DAY_MS


def test_an_imported_report_is_the_sessions_report_with_its_time_and_mark():
    found = rows_of(REPORT_VIEW, "s", events(goal("x"), record("report.generated", REPORT)))
    [row] = found["handoff_reports"]
    assert (row["timestamp"], row["ai_id"], row["happened_ms"]) == ("2025-06-01T00:00:00.000Z", "claude-code", DAY_MS)
    assert '"importer":"alice"' in row["imported"]
    assert "**Imported:** by alice" in row["markdown_report"]
    assert len(found["handoff_report_versions"]) == 1


def test_records_of_other_sorts_are_no_sessions_and_no_reports():
    aside = RecordImported(original=REF, source="x", format="f", reason="no place")
    handoff = RecordImported(
        original=REF, source="h", format="handoff/v2", mapped_kind="handoff.created", mapped={"title": "t", "to": "bob"}
    )
    for view in (SESSION_VIEW, REPORT_VIEW):
        for stream, data in (("record/1", aside), ("handoff/h", handoff)):
            [event] = events(data, stream=stream)
            assert view.keys(event) == ()
            assert view.added(None, Logged(event, REF, 1, [])) == ()


def test_every_record_is_a_row_with_the_number_of_its_dirty_values():
    dirty = {"dirty": [{"path": "impact", "value": "9", "why": "out of range"}]}
    found = events(goal("x"), record("finding.logged", {"finding": "f"}, claims=dirty))
    rows = rows_of(RECORD_VIEW, "s", found)["records"]
    assert [(row["event_index"], row["mapped_kind"], row["importer"], row["dirty"]) for row in rows] == [
        (7, "session.started", "alice", 0),
        (8, "finding.logged", "alice", 1),
    ]
    assert encode_sorted(rows[0]["original"]) == encode_sorted(REF)


@pytest.fixture
def filled(ledger, reader):
    """A ledger with a session and report of bob, and an older session and report that alice imported."""
    ledger.record_session("native")
    ledger.report("native")
    aside = RecordImported(original=REF, source="notes/aside", format="empirica/tasks", reason="no place")
    ledger.emit("alice", "record/1", aside)
    for data in (goal("Replace the parser"), record("report.generated", REPORT)):
        ledger.emit("alice", "session/foreign", data)
    return reader.answer


def test_records_are_listed_by_what_became_of_them_and_where_they_were_found(filled):
    def sources(**asked):
        return [one["source"] for one in filled("records.list", asked)["items"]]

    assert sources() == ["notes/aside", "notes/session.started", "notes/report.generated"]
    assert sources(unmapped=True) == ["notes/aside"]
    assert sources(source="notes/r") == ["notes/report.generated"]
    assert sources(dirty=True) == []
    page = filled("records.list", {"limit": 2})
    assert page["total"] == 3
    assert [one["source"] for one in filled("records.list", {"after": page["next"]})["items"]] == sources()[2:]


def test_what_stands_already_is_told_by_original_and_source(filled):
    places = [{"original": REF, "source": "notes/aside"}, {"original": REF, "source": "elsewhere"}]
    [row] = filled("records.existing", {"places": places})["items"]
    assert (row["source"], row["mapped_kind"], row["reason"]) == ("notes/aside", None, "no place")


def test_sessions_and_reports_say_which_were_imported(filled):
    sessions = filled("sessions.list", {})["items"]
    assert [(one["id"], one["status"], bool(one["imported"])) for one in sessions] == [
        ("native", "ended", False),
        ("foreign", "imported", True),
    ]
    assert filled("sessions.list", {"status": "open"})["total"] == 0
    assert filled("sessions.show", {"id": "foreign"})["imported"]["source"] == "notes/session.started"
    reports = filled("reports.list", {})["reports"]
    assert [one["imported"] and one["imported"]["importer"] for one in reports] == [None, "alice"]
    for imported, name in ((True, "foreign"), (False, "native")):
        for query, key in (("reports.list", "reports"), ("reports.sessions", "items")):
            assert [one["session_id"] for one in filled(query, {"imported": imported})[key]] == [name]


def test_since_is_asked_of_the_time_that_an_imported_report_claims(filled):
    assert [one["session_id"] for one in filled("reports.list", {"since": DAY_MS + 1})["reports"]] == ["native"]
    assert len(filled("reports.list", {"since": DAY_MS})["reports"]) == 2


def test_calibration_counts_an_imported_report_as_it_claims_and_marks_it(filled):
    found = {one["ai_id"]: one for one in filled("reports.calibration", {})["items"]}
    assert {name: (one["total"], one["claimed"]) for name, one in found.items()} == {
        "bob-1": (1, 0),
        "claude-code": (1, 1),
    }
    (point,) = found["claude-code"]["points"]
    assert (point["imported"]["importer"], point["timestamp"][:10]) == ("alice", "2025-06-01")
    assert found["bob-1"]["points"][0]["imported"] is None
    assert filled("reports.calibration", {"author": "alice"})["items"] == []


def test_imported_sessions_and_reports_do_not_count_among_the_metrics(filled):
    answer = filled("reports.metrics", {})
    assert answer["questions"]["other_sessions"]["count"] == 1
    assert answer["tokens"]["reports"]["transferred"]["count"] == 1


def test_what_the_importer_finished_is_not_the_work_of_an_imported_session(ledger, filled):
    ledger.approve("h", ledger.hand_over("h", sender="bob", to="alice"), sender="bob")
    ledger.claim("h", by="alice")
    ledger.emit("alice", "handoff/h", HandoffCompleted())
    assert filled("reports.accomplished", {"id": "foreign"})["items"] == []


def test_lists_go_by_the_time_that_things_happened_page_by_page(ledger, filled):
    times = {"c": "2025-06-03", "a": "2025-06-01", "b": "2025-06-02", "d": "2025-06-03", "e": "2030-01-01"}
    for name, day in times.items():
        found = record("report.generated", REPORT, claimed_at=f"{day}T12:00:00Z", source=f"notes/{name}")
        ledger.emit("alice", f"session/{name}", found)
    # A claimed time in the future does not count: e is listed at the time of its import, which is the latest.
    expected = ["e", "native", "d", "c", "b", "a", "foreign"]
    for query, key in (("reports.list", "reports"), ("reports.sessions", "items")):
        for asked in ({}, {"task_pattern": "."} if query == "reports.list" else {"has": "records"}):
            names, cursor = [], None
            while len(names) < 10:
                page = filled(query, asked | {"limit": 2, "after": cursor})
                names += [one["session_id"] for one in page[key]]
                cursor = page["next"]
                if cursor is None:
                    break
            assert names == expected, (query, asked)


def test_the_latest_report_of_an_imported_session_is_the_one_that_claims_the_latest_time(ledger, filled):
    for task, day in (("second", "2025-06-02"), ("third", "2025-06-03"), ("first", "2025-06-01")):
        found = record("report.generated", REPORT | {"task_summary": task}, claimed_at=f"{day}T12:00:00Z", source=task)
        ledger.emit("alice", "session/late", found)
    shown = filled("reports.show", {"id": "late"})
    assert (shown["report"]["task_summary"], len(shown["versions"])) == ("third", 3)
    assert [one["task_summary"] for one in filled("reports.list", {})["reports"]].count("third") == 1
