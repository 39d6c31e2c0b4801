"""Reports that are alike: found by task, with what failed there, and work that two did."""

from __future__ import annotations

import pytest

from ledger.events import session
from projections.reports import similar

POOL = "Find out why the connection pool leaks file handles under load"
LIKE_POOL = "The connection pool leaks handles: find the reason"
DOCS = "Translate the user manual into French"


@pytest.fixture
def reports(ledger):
    """Three sessions: two about the pool, one about something else; bob's ``recent`` has no report."""
    for name, task, finding in (
        ("pool", POOL, "The pool is never closed after an exception"),
        ("again", LIKE_POOL, "After an exception the pool is never closed"),
        ("docs", DOCS, "The glossary lacks 40 terms"),
    ):
        ledger.record_session(name)
        ledger.report(name, task_summary=task, key_findings=[finding, f"Only {name} knows"], ai_id=name)
    return ledger


def test_sessions_like_a_task_are_found_nearest_first(reports, reader):
    found = reader.answer("reports.similar", {"task": POOL})
    assert [one["session_id"] for one in found["reports"]] == ["pool", "again"]
    first, second = found["reports"]
    assert first["score"] > second["score"] > found["threshold"]
    assert (first["like"], first["score"] > 0.99) == ("task", True)
    assert found["embedder"] == {"name": "hash-v1", "version": "1"}
    assert (found["total_found"], found["not_compared"]) == (2, 0)
    assert first["key_findings"] == ["The pool is never closed after an exception", "Only pool knows"]


def test_a_task_is_compared_with_findings_too(reports, reader):
    found = reader.answer("reports.similar", {"task": "the glossary lacks terms"})
    assert [(one["session_id"], one["like"]) for one in found["reports"]] == [("docs", "findings")]


def test_a_session_need_not_find_itself_and_agents_can_be_chosen(reports, reader):
    found = reader.answer("reports.similar", {"task": POOL, "session_id": "pool"})
    assert [one["session_id"] for one in found["reports"]] == ["again"]
    assert reader.answer("reports.similar", {"task": POOL, "ai_id": "docs"})["total_found"] == 0
    limited = reader.answer("reports.similar", {"task": POOL, "limit": 1})
    assert (len(limited["reports"]), limited["total_found"]) == (1, 2)


def test_a_task_without_words_is_like_nothing(reports, reader):
    assert reader.answer("reports.similar", {"task": "!!!"})["reports"] == []


def test_dead_ends_of_similar_tasks_come_nearest_first(reports, reader):
    for name, task in (("recent", POOL), ("other", DOCS)):
        ended = session.DeadEndLogged(approach=f"Tried {name}", why_failed="It did not help")
        reports.emit_all("bob", f"session/{name}", session.SessionStarted(task=task), ended)
    found = reader.answer("reports.dead_ends", {"task": POOL})
    assert [(one["session_id"], one["approach"]) for one in found["dead_ends"]] == [
        ("pool", "Restarting"),
        ("recent", "Tried recent"),
        ("again", "Restarting"),
    ]
    assert [one["score"] for one in found["dead_ends"]] == sorted(
        (one["score"] for one in found["dead_ends"]), reverse=True
    )
    limited = reader.answer("reports.dead_ends", {"task": POOL, "limit": 1})
    assert (len(limited["dead_ends"]), limited["total_found"]) == (1, 3)
    assert reader.answer("reports.dead_ends", {"task": POOL, "ai_id": "bob"})["total_found"] == 1


def test_work_that_two_did_is_told_with_what_is_alike(reports, reader):
    found = reader.answer("reports.overlap")
    (pair,) = found["overlaps"]
    assert [one["session_id"] for one in pair["sessions"]] == ["again", "pool"]
    assert set(pair["alike"]) == {"task", "findings"}
    assert pair["score"] == max(pair["alike"].values()) > found["threshold"]
    assert pair["is_same_agent"] is False
    assert pair["nearest_findings"]["findings"] == [
        "After an exception the pool is never closed",
        "The pool is never closed after an exception",
    ]
    assert found["total_found"] == 1


def test_overlap_looks_at_reports_since_a_moment(reports, reader):
    now = reports.clock.now_ms
    assert reader.answer("reports.overlap", {"since_ms": now})["total_found"] == 1
    assert reader.answer("reports.overlap", {"since_ms": now + 1})["total_found"] == 0


def test_what_was_not_compared_is_counted(reports, reader, monkeypatch):
    monkeypatch.setattr(similar, "overlap_compared_max", 2)
    found = reader.answer("reports.overlap")
    assert (found["total_found"], found["not_compared"]) == (0, 1)
    reports.emit_all(
        "bob", "session/bare", session.SessionStarted(), session.DeadEndLogged(approach="a", why_failed="w")
    )
    monkeypatch.setattr(similar, "unreported_compared_max", 0)
    assert reader.answer("reports.dead_ends", {"task": POOL})["not_compared"] == 1


def test_a_new_version_counts_and_the_old_one_does_not(reports, reader):
    reports.report("docs", task_summary=POOL, key_findings=["Nothing here"], ai_id="docs")
    assert reader.answer("reports.similar", {"task": DOCS})["total_found"] == 0
    assert reader.answer("reports.similar", {"task": POOL})["total_found"] == 3
