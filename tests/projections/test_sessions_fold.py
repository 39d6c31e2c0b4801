"""Sessions: given these events, expect these rows."""

from __future__ import annotations

from folding import facts, rows_of

from deedbook.ledger.events import session as kinds
from deedbook.projections.sessions.fold import VIEW as SESSION_VIEW

STARTED = kinds.SessionStarted(task="Find the leak", ai_id="bob-1", resumes="s0")


def session(*data):
    """Return the rows after bob started a session and recorded ``data``."""
    return rows_of(SESSION_VIEW, "s", facts("session/s", ("bob", STARTED), *(("bob", one) for one in data)))


def test_a_session_is_open_until_it_ends():
    (row,) = session()["sessions"]
    assert (row["status"], row["author"], row["task"], row["resumes"]) == ("open", "bob", "Find the leak", "s0")
    (row,) = session(kinds.SessionEnded(summary="found"))["sessions"]
    assert (row["status"], row["summary"], row["ended_index"]) == ("ended", "found", 1)


def test_a_vector_that_was_not_assessed_is_null_and_never_zero():
    rows = session(kinds.AssessmentRecorded(phase="CHECK", round=2, vectors=kinds.Vectors(know=0.0)))
    (row,) = rows["assessments"]
    assert (row["phase"], row["round"], row["know"], row["do"], row["uncertainty"]) == ("CHECK", 2, 0.0, None, None)


def test_what_is_recorded_is_counted_and_kept():
    rows = session(
        kinds.FindingLogged(finding="f1", evidence=["a:1"], impact=0.5, topic="pool"),
        kinds.FindingLogged(finding="f2"),
        kinds.UnknownLogged(unknown="u"),
        kinds.DeadEndLogged(approach="a", why_failed="w"),
        kinds.ToolUsed(tool="grep", purpose="p"),
    )
    (row,) = rows["sessions"]
    assert [row[name] for name in ("assessments", "findings", "unknowns", "dead_ends", "tools")] == [0, 2, 1, 1, 1]
    assert [(one["finding"], one["evidence"], one["impact"]) for one in rows["findings"]] == [
        ("f1", '["a:1"]', 0.5),
        ("f2", "[]", None),
    ]
    assert rows["dead_ends"][0]["why_failed"] == "w"
    assert rows["tools_used"][0]["event_index"] == 5
