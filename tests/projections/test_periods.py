"""Lists filtered by time and agent. Imported records count at their claimed time, for their claimed author."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from building import START_MS
from view_ledger import ViewLedger

from deedbook.ledger.events import decision, reasoning, review, session
from deedbook.ledger.events import handoff as handoffs
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.answers.instants import to_ms
from deedbook.projections.answers.reader import Reader

CLAIMED = "2025-03-04T05:06:07Z"
CLAIMED_MS = to_ms(datetime.fromisoformat(CLAIMED))
DAY_MS = 86_400_000


def claim(kind: str, mapped: dict[str, Any], **fields: Any) -> RecordImported:
    """Return an imported record that claims to be by the agent ghost, in March 2025."""
    fields = {"claimed_author": "ghost", "claimed_at": CLAIMED} | fields
    return RecordImported(
        original="blake3:" + "7" * 64, source="notes", format="notes/1", mapped_kind=kind, mapped=mapped, **fields
    )


def live_three_days(ledger):
    """Let bob on one day and alice on the next make one record of every type; import ghost's work of March 2025."""
    ledger.clock.advance(1)
    for name, author in (("first", "bob"), ("second", "alice")):
        ledger.emit_all(
            author,
            f"session/{name}",
            session.SessionStarted(task=f"{name} task", ai_id="model"),
            session.FindingLogged(finding=f"{name} finding", topic=name),
            session.UnknownLogged(unknown=f"{name} unknown"),
            session.DeadEndLogged(approach=f"{name} approach", why_failed="slow"),
        )
        ledger.report(name, by=author, task_summary=f"{name} report", ai_id="model")
        started = reasoning.ReasoningStarted(task=f"{name} reasoning", ai_id="model")
        ledger.emit(author, f"reasoning/{name}", started)
        ledger.hand_over(name, sender=author)
        ledger.emit(author, f"decision/{name}", decision.DecisionMade(text=f"{name} decision"))
        ledger.emit(author, f"review/{name}", review.ReviewRequested(question=f"{name} review?", rule="high_impact"))
        ledger.clock.advance(DAY_MS / 1000)
    content = {"title": "old handoff", "to": "bob", "reviewer": "rita"}
    ledger.emit("bob", "handoff/old", claim("handoff.created", content, claims={"status": "done"}))
    ledger.emit("bob", "session/old", claim("finding.logged", {"finding": "old finding"}))
    ledger.emit("bob", "session/old", claim("unknown.logged", {"unknown": "old unknown"}))
    ledger.emit("bob", "session/old", claim("dead_end.logged", {"approach": "old approach", "why_failed": "slow"}))
    ledger.emit("bob", "reasoning/old", claim("reasoning.started", {"task": "old reasoning", "ai_id": "ghost"}))


# For each list: its query, the filters that show all of it, its name column, and the names of its rows, newest first.
LISTS: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "sessions": ("sessions.list", {}, "id", ["second", "first", "old"]),
    "reports": ("reports.list", {}, "session_id", ["second", "first"]),
    "reasonings": ("reasoning.list", {}, "id", ["second", "first", "old"]),
    "handoffs": ("handoffs.list", {"history": "shown"}, "id", ["second", "first", "old"]),
    "decisions": ("decisions.list", {}, "id", ["second", "first"]),
    "reviews": ("reviews.list", {"newest": True}, "id", ["second", "first"]),
    "findings": ("sessions.statements", {"type": "finding"}, "session_id", ["second", "first", "old"]),
    "unknowns": ("sessions.statements", {"type": "unknown"}, "session_id", ["second", "first", "old"]),
    "dead ends": ("sessions.statements", {"type": "dead_end"}, "session_id", ["second", "first", "old"]),
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def read_only(request, tmp_path_factory):
    """A ledger of three days, and a reader with one of the two stores; the tests of a store share both."""
    with ViewLedger(tmp_path_factory.mktemp("days") / ".deedbook") as ledger:
        live_three_days(ledger)
        store = request.getfixturevalue("postgres").make_database() if request.param == "postgres" else None
        with Reader(ledger.reads, ledger.settings(), store=store) as reader:
            yield ledger, reader


@pytest.fixture(params=["sqlite", "postgres"])
def reader(request, ledger):
    """A reader of a test's own ledger of three days, to which the test may append."""
    live_three_days(ledger)
    store = request.getfixturevalue("database") if request.param == "postgres" else None
    with Reader(ledger.reads, ledger.settings(), store=store) as made:
        yield made


def names(reader, query, column, **filters):
    """Return the names of the rows of a list, read page by page."""
    rows: list[str] = []
    after, total = None, 0
    while True:
        page = reader.answer(query, filters | {"limit": 1, "after": after})
        items = page.get("items", page.get("reports"))
        rows += [row[column] for row in items]
        total, after = page.get("total", page.get("total_found")), page["next"]
        if after is None:
            assert total == len(rows)
            return rows


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_what_happened_in_a_period(read_only, name):
    three_days, reader = read_only
    query, filters, column, expected = LISTS[name]
    second = three_days.clock() - DAY_MS
    assert names(reader, query, column, **filters) == expected
    assert names(reader, query, column, **filters, since=second) == expected[:1]
    assert names(reader, query, column, **filters, since=START_MS, until=second) == expected[1:2]
    claimed = {"since": CLAIMED_MS, "until": CLAIMED_MS + 1}
    assert names(reader, query, column, **filters, **claimed) == expected[2:]


@pytest.mark.parametrize("name", ["sessions", "reports", "reasonings", "handoffs", "findings", "unknowns", "dead ends"])
def test_an_agent_is_the_author_or_the_one_that_an_import_claims(read_only, name):
    _, reader = read_only
    query, filters, column, expected = LISTS[name]
    assert names(reader, query, column, **filters, agent="alice") == ["second"]
    assert names(reader, query, column, **filters, agent="ghost") == expected[2:]
    assert names(reader, query, column, **filters, agent="model") == []


def test_a_statement_says_who_and_when_and_whether_it_is_a_claim(read_only):
    _, reader = read_only
    items = reader.answer("sessions.statements", {"type": "dead_end"})["items"]
    assert [(row["text"], row["detail"], row["agent"], row["author"]) for row in items] == [
        ("second approach", "slow", "alice", "alice"),
        ("first approach", "slow", "bob", "bob"),
        ("old approach", "slow", "ghost", "bob"),
    ]
    assert [row["imported"] is not None for row in items] == [False, False, True]
    assert [row["task"] for row in items] == ["second task", "first task", ""]
    assert items[2]["happened_ms"] == CLAIMED_MS


def test_each_record_of_a_session_counts_under_the_name_that_it_claims(ledger, reader):
    ledger.emit("bob", "session/old", claim("finding.logged", {"finding": "other"}, claimed_author="spirit"))
    items = reader.answer("sessions.statements", {})["items"]
    assert {row["text"]: row["agent"] for row in items if row["session_id"] == "old"} == {
        "other": "spirit",
        "old finding": "ghost",
    }
    assert names(reader, "sessions.statements", "text", agent="spirit") == ["other"]


def test_a_topic_selects_statements(read_only):
    _, reader = read_only
    assert names(reader, "sessions.statements", "text", topic="first") == ["first finding"]


def test_corrected_statements_count_when_they_were_corrected(ledger, reader):
    (asked,) = reader.answer("sessions.statements", {"type": "unknown", "agent": "bob"})["items"]
    target = ledger.event(asked["event_index"]).id
    closed_ms = ledger.clock()
    ledger.emit("bob", "session/first", session.UnknownResolved(target=target, answer="it is"))
    ledger.clock.advance(60)
    unknowns = {"type": "unknown"}
    assert names(reader, "sessions.statements", "text", **unknowns, corrected=True) == ["first unknown"]
    assert names(reader, "sessions.statements", "text", **unknowns, corrected=True, since=closed_ms) == [
        "first unknown"
    ]
    assert names(reader, "sessions.statements", "text", **unknowns, corrected=True, until=closed_ms) == []
    assert names(reader, "sessions.statements", "text", **unknowns, corrected=False) == [
        "second unknown",
        "old unknown",
    ]
    (row,) = reader.answer("sessions.statements", unknowns | {"corrected": True})["items"]
    assert (row["correction"]["words"], row["correction"]["author"]) == ("it is", "bob")


def test_handoffs_are_done_by_their_status_or_claim(ledger, reader):
    assert names(reader, "handoffs.list", "id", history="shown", progress="done") == ["old"]
    assert names(reader, "handoffs.list", "id", history="shown", progress="waiting") == ["second", "first"]
    ledger.emit("rita", "handoff/old", handoffs.HandoffCancelled(reason="long over"))
    assert names(reader, "handoffs.list", "id", history="shown", progress="done") == []
    assert names(reader, "handoffs.list", "id", history="shown", progress="given_up") == ["old"]
    # The handoff counts at the time of its last event in this ledger, not at its claimed time.
    assert names(reader, "handoffs.list", "id", since=ledger.clock()) == ["old"]


def test_a_tag_selects_handoffs_that_cite_a_reasoning_with_it(ledger, reader):
    ref = ledger.reason("tagged")
    ledger.hand_over("citing", reasoning_refs=[ref])
    (row,) = reader.answer("reasoning.list", {"limit": 1})["items"]
    assert names(reader, "handoffs.list", "id", tag=row["tags"][0]) == ["citing"]
    assert names(reader, "handoffs.list", "id", tag="no_such_tag") == []


@pytest.mark.parametrize(
    ("name", "kind"),
    {
        "reports": "report.generated",
        "reasonings": "reasoning.started",
        "handoffs": "handoff.created",
        "decisions": "decision.made",
        "findings": "finding.logged",
        "unknowns": "unknown.logged",
        "dead ends": "dead_end.logged",
    }.items(),
)
def test_entries_select_what_they_are_about(read_only, name, kind):
    _, reader = read_only
    query, filters, column, expected = LISTS[name]
    (entry,) = reader.answer("catalog.find", {"kind": kind, "author": "alice"})["items"]
    assert names(reader, query, column, **filters, entries=[entry["event_index"]]) == expected[:1]
    assert names(reader, query, column, **filters, entries=[]) == []


def test_the_entry_that_gives_a_title_is_about_what_was_recorded_under_it(read_only):
    _, reader = read_only

    def entry(kind):
        (found,) = reader.answer("catalog.find", {"kind": kind, "author": "alice"})["items"]
        return [found["event_index"]]

    started = entry("session.started")
    for name in ("reports", "findings", "unknowns", "dead ends"):
        query, filters, column, _ = LISTS[name]
        assert names(reader, query, column, **filters, entries=started) == ["second"]
    created = entry("handoff.created")
    both = {"types": ["handoff.created", "finding.logged"], "entries": [*created, *started]}
    assert names(reader, "catalog.find", "event_index", **both) == created
    assert names(reader, "catalog.find", "kind", **both, by_title=True) == ["finding.logged", "handoff.created"]
