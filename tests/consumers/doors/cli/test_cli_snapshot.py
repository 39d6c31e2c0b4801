"""`baton snapshot` and `baton review`: what is known travels, and what needs a human stands until one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Baton

    Fresh = Callable[[str], str]


def record(baton: Baton, name: str, domain: str) -> str:
    """Record a reasoning of two steps; return its ref."""
    who = ["--as", "a"]
    baton("reasoning", "start", "--id", name, "--task", "Why is the disk full?", "--domain", domain, *who)
    step = ["reasoning", "step", name, *who, "--content"]
    baton(*step, "The disk is at 98 %", "--type", "observation", "--evidence", "logs/disk.log:14")
    baton(*step, "Backups fill the disk", "--rests-on", 1)
    ref: str = baton.data("reasoning", "conclude", name, *who, "--conclusion", "Move the backups")["ref"]
    return ref


@pytest.mark.served
def test_taken_snapshot_is_shown_listed_and_received(baton: Baton, fresh: Fresh) -> None:
    name, id_ = fresh("quiet"), fresh("snap")
    ref = record(baton, name, "operations")
    given = ["--vector", "Know=0.7", "--vector", "UNCERTAINTY=0.1", "--vector", "impact=0.2"]
    taken = baton.document("snapshot", "take", "--as", "a", "--id", id_, "--reasoning", name, *given)
    assert taken["next"] == f"baton snapshot receive {id_}"
    data = taken["data"]
    assert (data["reasoning_ref"], data["context_source"], data["domain"]) == (ref, "derived", "operations")
    assert data["vectors"] == {"know": 0.7, "uncertainty": 0.1, "impact": 0.2}
    assert len(data["reasoning_embedding"]) == data["embedder"]["dim"] == 384
    assert data["tokens"] <= 900
    assert baton.data("snapshot", "show", id_) == data
    assert "CONCLUSION: Move the backups" in baton("snapshot", "show", id_)
    assert id_ in baton("snapshot", "list", "--author", "a")
    decision = baton.data("snapshot", "receive", id_, "--task", "Water the plants")
    assert (decision["action"], decision["rule_fired"], decision["not_assessed"]) == ("act", None, [])
    assert decision["tokens"] <= decision["budget"]
    said = baton("snapshot", "receive", id_)
    assert decision["prompt"] in said
    assert "act: no rule fired" in said


@pytest.mark.parametrize("level", ["minimal", "standard", "full"])
def test_level_asked_for_is_sent_within_its_budget(baton: Baton, fresh: Fresh, level: str) -> None:
    name = fresh("level")
    record(baton, name, "")
    data = baton.data("snapshot", "receive", name, "--level", level)
    assert (data["level"], data["gate"]["level"]) == (level, level)
    assert data["tokens"] <= data["budget"]


def test_security_reasoning_waits_for_a_human_who_answers(baton: Baton, fresh: Fresh) -> None:
    name, id_ = fresh("audit"), fresh("snap")
    record(baton, name, "security")
    baton("snapshot", "take", "--as", "a", "--id", id_, "--reasoning", name)
    unsigned = baton.data("snapshot", "receive", id_)
    assert (unsigned["action"], unsigned["review"]) == ("human_review_required", None)
    assert "nobody was asked" in baton("snapshot", "receive", id_)
    data = baton.data("snapshot", "receive", id_, "--as", "b")
    assert (data["action"], data["rule_fired"]["name"], data["may_act"]) == (
        "human_review_required",
        "high_risk_domain",
        False,
    )
    review = data["review"]["id"]
    assert f"baton review answer {review}" in baton("snapshot", "receive", id_, "--as", "b")
    open_ = baton.data("review", "list", "--author", "b")["reviews"]
    assert review in [one["id"] for one in open_]
    baton.refuses("USAGE", "review", "answer", review, "--as", "rita")
    baton.refuses("NOT_AUTHORIZED", "review", "answer", review, "--approve", "--as", "b")
    answered = baton.data("review", "answer", review, "--approve", "--comment", "I looked", "--as", "rita")
    assert (answered["status"], answered["verdict"]) == ("answered", "approved")
    assert review not in [one["id"] for one in baton.data("review", "list", "--author", "b")["reviews"]]
    assert "approved by rita: I looked" in baton("review", "show", review)
    again = baton.data("snapshot", "receive", id_, "--as", "b")
    assert (again["action"], again["may_act"], again["review"]["id"]) == ("human_review_required", True, review)


def test_session_gives_context_and_vectors(baton: Baton, fresh: Fresh) -> None:
    name, id_ = fresh("session"), fresh("snap")
    stream = ["--stream", f"session/{name}", "--as", "a", "--data"]
    baton("emit", "session.started", *stream, '{"task":"找出泄漏"}')
    baton("emit", "assessment.recorded", *stream, '{"phase":"CHECK","vectors":{"uncertainty":0.8}}')
    data = baton.data("snapshot", "take", "--as", "a", "--id", id_, "--session", name)
    assert (data["context_summary"], data["context_source"]) == ("Task: 找出泄漏.", "derived")
    assert baton.data("snapshot", "receive", id_)["rule_fired"]["name"] == "high_uncertainty"
    mine = baton.data("snapshot", "take", "--as", "a", "--session", name, "--context", "Mine")
    assert (mine["context_summary"], mine["context_source"]) == ("Mine", "author")


def test_what_cannot_be_taken_or_received_is_refused(baton: Baton, fresh: Fresh) -> None:
    take = ["snapshot", "take", "--as", "a"]
    baton.refuses("USAGE", *take)
    baton.refuses("NOT_FOUND", *take, "--session", "no-such-session")
    baton.refuses("NOT_FOUND", *take, "--reasoning", "no-such-reasoning")
    for vector in ("hope=0.5", "know=2", "know=nan", "know", "know=much"):
        baton.refuses("INVALID_FIELD", *take, "--context", "c", "--vector", vector)
    baton.refuses("INVALID_FIELD", *take, "--context", "c", "--vector", "know=0.1", "--vector", "KNOW=0.2")
    baton.refuses("NOT_FOUND", "snapshot", "receive", "no-such-thing")
    baton.refuses("NOT_FOUND", "snapshot", "show", "no-such-thing")
    baton.refuses("NOT_FOUND", "review", "show", "no-such-thing")
    id_ = fresh("once")
    baton(*take, "--context", "c", "--id", id_)
    baton.refuses("TRANSITION_NOT_ALLOWED", *take, "--context", "d", "--id", id_)
