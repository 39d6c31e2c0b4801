"""Reviews and validations as rows: the open ones, and the reviewers who count as independent."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from folding import facts, rows_of
from view_ledger import ViewLedger

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import Counts, ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested
from deedbook.projections.answers.reader import Reader
from deedbook.projections.reviews.fold import VIEW as REVIEW_VIEW

# Ages in answers differ from run to run: the ledger's clock stands still, but queries use the real time.
AGE = re.compile(r"just now|\d+ (?:min|h|d) ago")
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
    assert ([one["id"] for one in first["items"]], first["total"]) == (["v1"], 2)
    second = reader.answer("reviews.list", {"status": "open", "after": first["next"]})
    assert ([one["id"] for one in second["items"]], second["next"]) == (["v3"], None)
    assert reader.answer("reviews.show", {"id": "review/v2"})["verdict"] == "rejected"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ReviewAnswered(verdict="approved"), "said yes"),
        (ReviewAnswered(verdict="rejected", comment="too early"), "said no: too early"),
    ],
)
def test_events_tell_what_the_human_answered(
    ledger: ViewLedger, reader: Reader, answer: ReviewAnswered, words: str
) -> None:
    ledger.ask("v1")
    index = ledger.emit("rita", "review/v1", answer).index
    assert reader.answer("catalog.show", {"id": str(index)})["did"] == words


def test_request_that_its_asker_made_anew_waits_for_nobody(ledger: ViewLedger, reader: Reader) -> None:
    ledger.register("boss", "human")
    for name, task, number in (("v1", "go", "1"), ("v2", "stay", "1"), ("v3", "go", "2"), ("v4", "go", "1")):
        ref = f"sha256:{number * 64}"
        ledger.emit("bob", f"review/{name}", msgspec.structs.replace(ASKED, task=task, reasoning_ref=ref))
    listed = reader.answer("reviews.list", {"status": "open"})["items"]
    assert {one["id"]: one["superseded_by"] for one in listed} == {"v1": "v4", "v2": None, "v3": None, "v4": None}
    waiting = reader.answer("handoffs.next", {"agent": "boss"})["items"]
    assert [one["id"] for one in waiting] == ["v2", "v3", "v4"]


@pytest.mark.parametrize(("asked", "code"), [("w", "NOT_FOUND"), ("v", "REF_AMBIGUOUS"), ("", "NOT_FOUND")])
def test_review_is_found_by_an_unambiguous_beginning(ledger: ViewLedger, reader: Reader, asked: str, code: str) -> None:
    ledger.ask("v1")
    ledger.ask("v2")
    with pytest.raises(Refused) as refused:
        reader.answer("reviews.show", {"id": asked})
    assert refused.value.code == code


def record_same(ledger: ViewLedger, author: str, name: str) -> str:
    """Let an agent record a graph that is equal for every author; return its stream's name."""
    step = Step(step_number=1, type="observation", content="The disk is full")
    parts: list[Any] = [
        ReasoningStarted(task="t"),
        ReasoningExtended(steps=[step]),
        ReasoningConcluded(conclusion="c"),
    ]
    ledger.emit_all(author, f"reasoning/{name}", *parts)
    return name


def authors(reader: Reader, ref: str) -> list[str]:
    """Return the authors whose validations of a version count as independent."""
    verdict = reader.answer("validations.latest", {"id": ref})
    return [one["by"] for one in (verdict["latest"], *verdict["differing"]) if one is not None]


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


def counted(stand: int, *, issues: int = 0, assumptions: int = 0, steps: int = 1) -> Any:
    """Return the counts of a report on three references, of which ``stand`` are confirmed."""
    known = {"steps": steps, "evidence": 3, "evidence_ok": stand, "issues": issues, "assumptions": assumptions}
    return Counts(**(dict.fromkeys(Counts.__struct_fields__, 0) | known))


def test_verdict_is_the_newest_independent_report_with_who_differs(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    texts = []
    reports: list[tuple[str, bool, Any]] = [
        ("scribe", True, counted(3)),
        ("scribe", False, counted(1, issues=2)),
        ("rita", True, counted(3)),
        ("scribe", True, counted(3, steps=2)),
        ("scribe", True, counted(3, assumptions=1)),
    ]
    for by, passed, counts in [("", True, None), *reports]:
        if by:
            ledger.validate("r1", ref, by=by, passed=passed, counts=counts)
        verdict = reader.answer("validations.latest", {"id": "r1"})
        texts.append((verdict["outcome"], AGE.sub("now", verdict["text"])))
    wrong = "1 of 3 stand, found wrong by scribe now"
    rita = "3 of 3 stand, validated by rita now"
    assert texts == [
        ("none", "not validated"),
        ("passed", "3 of 3 stand, validated by scribe now"),
        ("failed", wrong),
        ("failed", f"{rita}; but {wrong}"),
        ("passed", "3 of 3 stand, validated by scribe now"),
        ("passed", f"3 of 3 stand, 1 assumption unchecked, checked by scribe now; but {rita}"),
    ]


def test_verdict_on_a_version_is_none_on_the_next(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    ledger.validate("r1", ref, counts=counted(3))
    step = Step(step_number=99, type="observation", content="One more thing")
    ledger.emit(
        reader.answer("reasoning.show", {"id": "r1"})["author"], "reasoning/r1", ReasoningExtended(steps=[step])
    )
    newer, older = (reader.answer("validations.latest", {"id": one}) for one in ("r1", ref))
    said = "3 of 3 stand, validated by scribe now"
    assert (newer["outcome"], AGE.sub("now", newer["text"])) == ("none", "not validated")
    assert (older["outcome"], AGE.sub("now", older["text"])) == ("passed", said)


def test_validation_on_the_stream_of_another_graph_counts_for_nothing(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    record_same(ledger, "alice", "other")
    ledger.validate("other", ref)
    assert authors(reader, ref) == []
    assert reader.answer("validations.list", {"id": ref})["total"] == 1


def test_rebuilt_verdict_is_the_live_one(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    for by, passed in (("scribe", True), ("rita", False), ("scribe", False), ("rita", True)):
        ledger.validate("r1", ref, by=by, passed=passed, counts=counted(3 if passed else 1, issues=2 - 2 * passed))

    def verdict() -> dict[str, Any]:
        answer = reader.answer("validations.latest", {"id": "r1"})
        for voice in (answer, answer["latest"], *answer["differing"]):
            voice["text"] = AGE.sub("now", voice["text"])
        return answer

    live = verdict()
    assert [live["outcome"], live["latest"]["by"], live["differing"][0]["by"]] == ["failed", "rita", "scribe"]
    reader.rebuild(["reasoning", "validations"])
    assert verdict() == live
