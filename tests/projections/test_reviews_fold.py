"""Reviews and validations as rows: what stands open, and whose word counts as independent."""

from __future__ import annotations

from typing import Any

import pytest
from folding import facts, rows_of
from view_ledger import ViewLedger

from ledger.errors import Refused
from ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from ledger.events.review import ReviewAnswered, ReviewRequested
from projections import Reader
from projections.reviews.fold import VIEW as REVIEW_VIEW

ASKED = ReviewRequested(question="May it?", rule="high_impact", reasons=["IMPACT is 0.80."], task="go")


def test_request_stands_open_until_a_human_answers_it() -> None:
    (row,) = rows_of(REVIEW_VIEW, "v", facts("review/v", ("bob", ASKED)))["reviews"]
    assert (row["status"], row["author"], row["verdict"], row["answered_by"]) == ("open", "bob", None, None)
    answered = ("rita", ReviewAnswered(verdict="approved", comment="fine"))
    (row,) = rows_of(REVIEW_VIEW, "v", facts("review/v", ("bob", ASKED), answered))["reviews"]
    assert (row["status"], row["verdict"], row["answered_by"], row["comment"]) == (
        "answered",
        "approved",
        "rita",
        "fine",
    )


def test_open_requests_are_listed_oldest_first_and_page(ledger: ViewLedger, reader: Reader) -> None:
    for name in ("v1", "v2", "v3"):
        ledger.ask(name)
    ledger.emit("rita", "review/v2", ReviewAnswered(verdict="rejected"))
    first = reader.answer("reviews.list", {"status": "open", "limit": 1})
    assert ([one["id"] for one in first["reviews"]], first["total"]) == (["v1"], 2)
    second = reader.answer("reviews.list", {"status": "open", "after": first["next"]})
    assert ([one["id"] for one in second["reviews"]], second["next"]) == (["v3"], None)
    assert reader.answer("reviews.show", {"id": "review/v2"})["verdict"] == "rejected"


@pytest.mark.parametrize(("asked", "code"), [("w", "NOT_FOUND"), ("v", "REF_AMBIGUOUS"), ("", "NOT_FOUND")])
def test_review_is_found_by_an_unambiguous_beginning(ledger: ViewLedger, reader: Reader, asked: str, code: str) -> None:
    ledger.ask("v1")
    ledger.ask("v2")
    with pytest.raises(Refused) as refused:
        reader.answer("reviews.show", {"id": asked})
    assert refused.value.code == code


def record_same(ledger: ViewLedger, author: str, name: str) -> str:
    """Let somebody record a graph that is the same whoever does it; return its stream's name."""
    step = Step(step_number=1, type="observation", content="The disk is full")
    parts: list[Any] = [
        ReasoningStarted(task="t"),
        ReasoningExtended(steps=[step]),
        ReasoningConcluded(conclusion="c"),
    ]
    ledger.emit_all(author, f"reasoning/{name}", *parts)
    return name


def authors(reader: Reader, ref: str) -> list[str]:
    """Return whose validations of a version count as independent."""
    answer = reader.answer("validations.list", {"ref": ref, "independent": True})
    return [one["author"] for one in answer["validations"]]


def test_validation_by_the_author_of_the_same_graph_elsewhere_is_not_independent(
    ledger: ViewLedger, reader: Reader
) -> None:
    ledger.register("eve", "agent", "reviewer")
    record_same(ledger, "eve", "mine")
    record_same(ledger, "bob", "copy")
    ref = reader.answer("reasoning.show", {"id": "mine"})["ref"]
    ledger.validate("copy", ref, by="eve")
    assert authors(reader, ref) == []
    ledger.validate("copy", ref, by="scribe")
    assert authors(reader, ref) == ["scribe"]


def test_validation_on_the_stream_of_another_graph_counts_for_nothing(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    record_same(ledger, "alice", "other")
    ledger.validate("other", ref)
    assert authors(reader, ref) == []
    assert reader.answer("validations.list", {"ref": ref})["total"] == 1


def test_best_validation_is_the_newest_that_passed_by_somebody_else(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    with pytest.raises(Refused) as refused:
        reader.answer("validations.best", {"ref": ref})
    assert refused.value.code == "NOT_FOUND"
    first = ledger.validate("r1", ref, by="rita")
    second = ledger.validate("r1", ref, by="scribe")
    ledger.validate("r1", ref, by="scribe", passed=False)
    assert reader.answer("validations.best", {"ref": ref})["event_index"] == second.index
    assert reader.answer("validations.best", {"ref": ref, "not_by": "scribe"})["event_index"] == first.index
