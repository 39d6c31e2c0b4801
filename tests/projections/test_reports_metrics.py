"""The success metrics of a ledger: every figure is counted from its events."""

from __future__ import annotations

from deedbook.ledger.events import review, session
from deedbook.ledger.events.handoff import HandoffCompleted
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reports import metrics


def test_an_empty_ledger_has_no_figure(ledger, reader):
    answer = reader.answer("reports.metrics")
    figures = [*answer["time"].values(), *answer["questions"].values(), answer["tokens"]["snapshots"]["transferred"]]
    figures += [row["transferred"] for row in answer["tokens"]["briefs"].values()]
    figures += [row["fidelity"] for row in answer["fidelity"].values()]
    assert set(figures) == {None}


def test_tokens_fidelity_and_coverage_are_those_of_published_briefs_and_reports(ledger, reader):
    ref = ledger.reason("one")
    ledger.brief("one", ref, tokens=100, fidelity=0.9)
    ledger.brief("one", ref, tokens=140, fidelity=0.7)
    ledger.brief("one", ref, tokens=600, fidelity=1.0, level="standard", budget=700)
    ledger.record_session("s")
    ledger.report("s")
    answer = reader.answer("reports.metrics")
    assert answer["tokens"]["briefs"]["minimal"] == {
        "transferred": {"count": 2, "mean": 120, "median": 120, "max": 140},
        "full": {"count": 2, "mean": 900, "median": 900, "max": 900},
        "saved": round(1 - 240 / 1800, 4),
        "target": 200,
    }
    assert answer["tokens"]["briefs"]["standard"]["transferred"]["max"] == 600
    assert answer["tokens"]["briefs"]["full"]["transferred"] is None
    minimal = answer["fidelity"]["minimal"]
    assert minimal["fidelity"] == minimal["coverage"] == {"count": 2, "mean": 0.8, "median": 0.8, "max": 0.9}
    shown = reader.answer("reports.show", {"id": "s"})["report"]
    assert answer["tokens"]["reports"]["transferred"]["max"] == count_tokens(shown["compressed_json"])


def test_only_the_newest_transfers_are_measured(ledger, reader, monkeypatch):
    monkeypatch.setattr(metrics, "transfers_measured_max", 2)
    ref = ledger.reason("one")
    for tokens in (10, 20, 40):
        ledger.brief("one", ref, tokens=tokens)
    assert reader.answer("reports.metrics")["tokens"]["briefs"]["minimal"]["transferred"]["mean"] == 30


def test_times_are_those_of_the_ledgers_clock(ledger, reader):
    ledger.emit("bob", "session/first", session.SessionStarted(task="Find the leak"))
    ledger.clock.advance(10)
    ledger.emit("bob", "session/first", session.SessionEnded())
    ledger.clock.advance(60)
    ledger.emit("alice", "session/second", session.SessionStarted(task="Close it", resumes="first"))
    ledger.clock.advance(5)
    ledger.emit("alice", "session/second", session.FindingLogged(finding="It is in the pool"))
    data = ledger.hand_over("h")
    ledger.clock.advance(1)
    ledger.approve("h", data)
    ledger.clock.advance(30)
    ledger.claim("h")
    time = reader.answer("reports.metrics")["time"]
    assert (time["pause_s"]["count"], time["pause_s"]["mean"]) == (1, 60)
    assert time["until_ready_s"]["median"] == 5
    assert time["until_claimed_s"] == {"count": 1, "mean": 30, "median": 30, "max": 30}
    later = reader.answer("reports.metrics", {"since": ledger.clock.now_ms + 1})["time"]
    assert set(later.values()) == {None}


def test_questions_are_those_between_claim_and_completion_and_of_resumed_sessions(ledger, reader):
    ledger.emit("bob", "session/a", session.SessionStarted(task="First"))
    ledger.emit("bob", "session/a", session.UnknownLogged(unknown="Before the claim"))
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h")
    ledger.emit("bob", "session/b", session.SessionStarted(task="Second", resumes="a"))
    ledger.emit("bob", "session/b", session.UnknownLogged(unknown="Who rotates the keys?"))
    ledger.emit("bob", "review/v", review.ReviewRequested(question="May I?", rule="asked"))
    ledger.emit("bob", "handoff/h", HandoffCompleted())
    ledger.emit("bob", "session/b", session.UnknownLogged(unknown="After the end"))
    questions = reader.answer("reports.metrics")["questions"]
    assert (questions["completed_handoffs"]["count"], questions["completed_handoffs"]["mean"]) == (1, 2)
    assert (questions["resumed_sessions"]["count"], questions["resumed_sessions"]["mean"]) == (1, 2)
    assert (questions["other_sessions"]["count"], questions["other_sessions"]["max"]) == (1, 1)
