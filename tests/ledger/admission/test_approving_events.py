"""Every event after which a handoff is approved, or past it: which of them a human's session key may sign, and does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from building import accepting, key_named

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionWaived,
    HandoffReady,
    HandoffReleased,
    HandoffSuperseded,
    HandoffUnblocked,
)
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from building import Ledger

    from deedbook.ledger.events.fields import EventData

BARE: Final = {"title": "t", "to": "bob"}
IMPORTED: Final = RecordImported(
    original="sha256:" + "1" * 64,
    source="h.md",
    format="handoff/v2",
    mapped_kind="handoff.created",
    mapped=BARE | {"reviewer": "dora"},
)


def pending(ledger: Ledger, **fields: Any) -> HandoffCreated:
    """Let dora be the reviewer of a handoff that nobody has approved."""
    return ledger.hand_over("h", reviewer="dora", criteria=["c"], **fields)


def at_work(ledger: Ledger) -> None:
    """Let the work on it have begun."""
    ledger.approve("h", pending(ledger))
    ledger.claim("h")


def completed(ledger: Ledger) -> None:
    """Let it be done."""
    at_work(ledger)
    ledger.emit("dora", "handoff/h", HandoffCriterionWaived(position=0, reason="x"))
    ledger.emit("bob", "handoff/h", HandoffCompleted())


def imported(ledger: Ledger, author: str = "alice") -> None:
    """Let a file be imported that names dora as its reviewer."""
    ledger.emit(author, "handoff/h", IMPORTED)


def own(ledger: Ledger) -> None:
    """Let dora have handed over without a reviewer."""
    ledger.hand_over("h", sender="dora", reviewer=None)


def approval(ledger: Ledger) -> EventData:
    """Return the approval of it as it is."""
    return HandoffApproved(version=ledger.handoff("h").version)


def handed_over(ledger: Ledger) -> EventData:
    """Return dora's handing over of her review to rita."""
    data = HandoffCreated(title="h", to="bob", reviewer="dora", criteria=["c"])
    return HandoffAmended(**msgspec.structs.asdict(data) | {"reviewer": "rita"}, hands_over=True)


# What leads to approved, or past it: given, what dora signs, and how the handoff stands after it.
APPROVES: Final[dict[str, tuple[Callable[[Ledger], Any], Callable[[Ledger], EventData], str]]] = {
    "created without a reviewer": (lambda _: None, lambda _: HandoffCreated(**BARE), "approved"),
    "amended without a reviewer": (own, lambda _: HandoffAmended(**BARE), "approved"),
    "an import of one's own, amended": (
        lambda ledger: imported(ledger, "dora"),
        lambda _: HandoffAmended(**BARE),
        "approved",
    ),
    "a review that is handed over": (pending, handed_over, "pending"),
    "approved": (pending, approval, "approved"),
    "an import that is approved": (imported, approval, "approved"),
    "an import that is verified": (imported, lambda ledger: accepting(ledger.handoff("h")), "verified"),
    "a criterion that is waived": (at_work, lambda _: HandoffCriterionWaived(position=0, reason="x"), "in_progress"),
    "verified": (completed, lambda ledger: accepting(ledger.handoff("h")), "verified"),
}
# What moves a handoff that was approved, or tells of it: signed with a session key, it approves nothing.
MOVES: Final = {
    HandoffClaimed,
    HandoffReady,
    HandoffReleased,
    HandoffSuperseded,
    HandoffUnblocked,
    HandoffCompleted,
}


@pytest.fixture
def dora(ledger: Ledger) -> Ledger:
    """A ledger with the human dora, who has a session key for everything."""
    ledger.register("dora", "human")
    ledger.delegate("dora", key_named("dora's session"))
    return ledger


@pytest.mark.parametrize("path", APPROVES)
def test_what_approves_needs_the_identity_key(dora: Ledger, path: str) -> None:
    given, made, status = APPROVES[path]
    given(dora)
    before, data = dora.head(), made(dora)
    with pytest.raises(Refused) as refused:
        dora.emit("dora", "handoff/h", data, key=key_named("dora's session"))
    assert refused.value.code == "KEY_OUT_OF_SCOPE"
    assert "sign it with the identity key" in refused.value.message
    assert dora.head() == before
    dora.emit("dora", "handoff/h", data)
    assert dora.handoff("h").status == status


@pytest.mark.parametrize("change", [{}, {"reviewer": "rita"}])
def test_no_key_of_a_sender_drops_the_reviewer(dora: Ledger, change: dict[str, str]) -> None:
    dora.register("ruth", "reviewer")
    dora.hand_over("h", sender="dora", reviewer="ruth")
    for key in (None, key_named("dora's session")):
        with pytest.raises(Refused) as refused:
            dora.emit("dora", "handoff/h", HandoffAmended(**BARE | change), key=key)
        assert refused.value.code in ("NOT_AUTHORIZED", "KEY_OUT_OF_SCOPE")
    assert (dora.handoff("h").reviewer, dora.handoff("h").status) == ("ruth", "pending")


def test_import_again_and_a_handoff_in_its_place_approve_nothing(dora: Ledger) -> None:
    session = key_named("dora's session")
    dora.emit("dora", "handoff/h", IMPORTED, key=session)
    again = msgspec.structs.replace(IMPORTED, mapped=BARE, claims={"status": "approved"})
    dora.emit("dora", "handoff/h", again, key=session)
    assert dora.handoff("h").status == "pending"
    dora.hand_over("other")
    dora.emit("dora", "handoff/h", HandoffSuperseded(by="other"), key=session)
    assert dora.handoff("other").status == "pending"


def test_answer_to_a_review_needs_the_identity_key(dora: Ledger) -> None:
    dora.emit("alice", "review/r", ReviewRequested(question="May it?", rule="risk"))
    with pytest.raises(Refused) as refused:
        dora.emit("dora", "review/r", ReviewAnswered(verdict="approved"), key=key_named("dora's session"))
    assert refused.value.code == "KEY_OUT_OF_SCOPE"
    dora.emit("dora", "review/r", ReviewAnswered(verdict="approved"))


def test_what_moves_a_handoff_names_no_new_status_that_was_approved() -> None:
    # A kind that is added must be looked at: does it approve, or move what was approved?
    kinds = {name.partition(".")[2] for name, kind in KINDS.items() if kind.stream == "handoff"}
    assert kinds == {
        "created",
        "amended",
        "approved",
        "criterion_waived",
        "verified",  # in the table
        "rejected",
        "changes_requested",  # reviews that lead away from it
        "cancelled",
        "blocked",
        "logged",
        "task_checked",
        "criterion_checked",
        "waiver_asked",
        *(one.__name__.removeprefix("Handoff").lower() for one in MOVES),
    }
