"""The permitted decisions, given the history of a handoff; and the version to which a form binds its decision."""

from __future__ import annotations

from typing import Any

import pytest
from building import GIVEN_MS
from given import fact, fold

from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.interfaces.dashboard.decision import (
    BUTTONS,
    Decision,
    DisplayedContent,
    arguments_of,
    choices_of,
    decision_in,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.lifecycle.handoff import MACHINE, compute_version
from deedbook.ledger.limits import decision_form_max_s

CREATED = kinds.HandoffCreated(title="t", to="bob", reviewer="lin", tasks=["one"], criteria=["c1", "c2"])
VERSION = compute_version("alice", CREATED)
RESULT = "sha256:" + "1" * 64
APPROVED = ("lin", kinds.HandoffApproved(version=VERSION))
CLAIMED = ("bob", kinds.HandoffClaimed())
CHECKED = [("bob", kinds.HandoffCriterionChecked(position=at)) for at in (0, 1)]
DONE = ("bob", kinds.HandoffCompleted())
TOKEN = "0" * 64
SHOWN = DisplayedContent("handoff/x", VERSION, RESULT, 4, 90, GIVEN_MS)
FORM = {name: str(value) for name, value in SHOWN._asdict().items()} | {"decision": f"approve:{TOKEN}"}


def offered(*authored: tuple[str, Any], human: str = "lin", codes: tuple[str, ...] = ()) -> list[str]:
    """Return the words of the buttons that a human gets after these events of alice's handoff to bob."""
    events = [fact(author, data, index=at) for at, (author, data) in enumerate((("alice", CREATED), *authored))]
    state = fold(MACHINE.decide, *events)
    criteria = [{"position": at, "mark": mark} for at, mark in enumerate(state.criteria)]
    why = {"reasons": [{"code": code} for code in codes], "waits": []}
    shown = {"id": "x", "status": state.status, "why": why, "criteria": criteria, "from": "alice", "importer": None}
    return [one.word for one in choices_of(state, shown, 3, human, GIVEN_MS)]


def test_a_pending_handoff_is_approved_rejected_or_cancelled_by_its_reviewer() -> None:
    assert offered() == ["approve", "ask", "reject", "log", "cancel"]


def test_whoever_is_no_party_gets_no_button() -> None:
    assert offered(human="mallory") == []


def test_a_sender_who_is_human_may_call_it_off_and_does_not_approve_it() -> None:
    assert offered(human="alice") == ["log", "cancel"]


def test_what_is_approved_is_not_approved_again_but_where_its_approval_does_not_count() -> None:
    assert offered(APPROVED) == ["log", "cancel"]
    assert offered(APPROVED, codes=("NOT_APPROVED",))[0] == "approve"


def test_what_was_handed_in_is_verified_or_sent_back() -> None:
    assert offered(APPROVED, CLAIMED, *CHECKED, DONE) == ["verify", "request_changes", "log", "cancel"]
    done = (APPROVED, CLAIMED, *CHECKED, DONE)
    authored = enumerate((("alice", CREATED), *done))
    state = fold(MACHINE.decide, *(fact(author, data, index=at) for at, (author, data) in authored))
    assert offered(*done, ("lin", kinds.HandoffVerified(result=state.result))) == ["log"]


def test_blocked_work_is_unblocked() -> None:
    assert offered(APPROVED, CLAIMED, ("bob", kinds.HandoffBlocked(reason="no key"))) == ["unblock", "log", "cancel"]


def test_only_a_criterion_whose_waiver_is_asked_for_is_waived_or_not() -> None:
    asked = ("bob", kinds.HandoffWaiverAsked(position=1, reason="no such machine"))
    assert offered(APPROVED, CLAIMED, asked) == ["waive.2", "refuse.2", "log", "cancel"]


def test_what_is_over_only_takes_a_line_in_its_log() -> None:
    assert offered(("lin", kinds.HandoffRejected(reason="no"))) == ["log"]


def test_every_act_that_the_table_gives_a_reviewer_has_a_button() -> None:
    # An amendment with another reviewer has more fields than a button can fill. A question to the sender requests
    # changes before there is a result.
    assert set(BUTTONS) == {verb for verb, act in OPERATIONS.items() if "reviewer" in act.by} - {"amend"} | {"ask"}


def test_the_label_names_the_version() -> None:
    state = fold(MACHINE.decide, fact("alice", CREATED))
    shown = {
        "id": "x",
        "status": "pending",
        "why": {"reasons": [], "waits": []},
        "criteria": [],
        "from": "alice",
        "importer": None,
    }
    first, second, *_ = choices_of(state, shown, 3, "lin", GIVEN_MS)
    assert (first.label, first.style, first.needs_note) == ("Approve v3", "yes", False)
    assert (second.label, second.style, second.needs_note) == ("Ask alice for changes", "", True)


@pytest.mark.parametrize(
    ("word", "note", "given"),
    [
        ("approve", "", {"version": VERSION}),
        ("approve", "fine", {"version": VERSION, "comment": "fine"}),
        ("verify", "", {"result": RESULT}),
        ("reject", "no", {"reason": "no"}),
        ("request_changes", "a\nb", {"result": RESULT, "reason": "a\nb"}),
        ("unblock", "", {}),
        ("waive.2", "old", {"criterion_numbers": 2, "reason": "old"}),
        ("log", "seen", {"text": "seen"}),
        ("ask", "smaller", {"text": "smaller"}),
    ],
)
def test_a_decision_gives_the_arguments_of_its_act(word: str, note: str, given: dict[str, Any]) -> None:
    assert arguments_of(Decision(word, TOKEN, note, SHOWN), GIVEN_MS) == given


@pytest.mark.parametrize("word", ["reject", "request_changes", "waive.1", "refuse.1", "log", "ask", "cancel"])
def test_what_needs_a_note_is_refused_without_one(word: str) -> None:
    with pytest.raises(Refused, match="needs a note"):
        arguments_of(Decision(word, TOKEN, "", SHOWN), GIVEN_MS)


@pytest.mark.parametrize(
    "sent", ["", "approve", f"approve:{TOKEN[1:]}", f"claim:{TOKEN}", f"waive.0:{TOKEN}", f"approve:{TOKEN} "]
)
def test_what_is_no_button_of_ours_is_no_decision(sent: str) -> None:
    with pytest.raises(Refused, match="press one of its buttons"):
        decision_in(FORM | {"decision": sent}, SHOWN.stream)


def test_a_note_is_signed_as_it_was_typed() -> None:
    decision = decision_in(FORM | {"decision": f"refuse.2:{TOKEN}", "note": " a\r\nb \n"}, SHOWN.stream)
    assert (decision.word, decision.verb, decision.note) == ("refuse.2", "waive", "a\nb")


def test_what_was_displayed_comes_back_as_it_went() -> None:
    assert decision_in(FORM, SHOWN.stream) == Decision("approve", TOKEN, "", SHOWN)


def test_the_token_is_over_everything_that_was_displayed_and_the_act() -> None:
    words = {SHOWN.token_parts("approve"), SHOWN.token_parts("verify")}
    words |= {SHOWN._replace(**{name: "other"}).token_parts("approve") for name in DisplayedContent._fields}
    assert len(words) == 2 + len(DisplayedContent._fields)


@pytest.mark.parametrize(
    "changed", [{"version": "sha256:x"}, {"result": "x"}, {"entries": "-1"}, {"size": ""}, {"shown_ms": "٣"}]
)
def test_a_form_that_was_made_by_hand_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(Refused, match="reload the page"):
        decision_in(FORM | changed, SHOWN.stream)


@pytest.mark.parametrize("later_ms", [-1, decision_form_max_s * 1000 + 1])
def test_a_page_that_was_loaded_long_ago_is_read_again(later_ms: int) -> None:
    with pytest.raises(Refused) as refused:
        arguments_of(Decision("approve", TOKEN, "", SHOWN), GIVEN_MS + later_ms)
    assert refused.value.code == "VERSION_MISMATCH"


def test_the_key_of_a_repeat_is_of_the_token_and_does_not_show_it() -> None:
    decision = Decision("approve", TOKEN, "", SHOWN)
    assert TOKEN not in decision.idem
    assert decision.idem != decision._replace(token="1" * 64).idem


@pytest.mark.parametrize(
    ("word", "entries"), [("approve", None), ("request_changes", None), ("reject", 4), ("ask", 4), ("waive.1", 4)]
)
def test_what_signs_nothing_that_names_what_was_read_is_of_a_stream_as_long_as_it_was(
    word: str, entries: int | None
) -> None:
    assert Decision(word, TOKEN, "", SHOWN).expect == entries


def test_a_review_needs_no_note_and_is_as_long_as_it_was() -> None:
    shown = DisplayedContent("review/r", "", "", 1, 90, GIVEN_MS)
    decision = Decision("reject", TOKEN, "", shown)
    assert arguments_of(decision, GIVEN_MS) == {}
    assert (decision.expect, Decision("approve", TOKEN, "", shown).expect) == (1, 1)
