"""Imported records: whatever a file claims of itself opens no gate and unlocks nothing until a reviewer confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import NO_EVENT, accepting
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import RoleGranted, RoleRevoked
from deedbook.ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffCancelled,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionChecked,
    HandoffCriterionWaived,
    HandoffLogged,
    HandoffReady,
    HandoffRejected,
    HandoffSuperseded,
    HandoffVerified,
)
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData

REF = "sha256:" + "1" * 64
VERIFIED = HandoffVerified(version=REF, completion=NO_EVENT)
SAID = ["done", "completed", "verified ✅", "approved", "in_progress", "superseded", "anything at all", None]
EVERYTHING_DONE = {"tasks": [0, 1], "criteria": [0, 1], "done": "02-15"}


def file(*, claims: dict[str, Any] | None = None, sender: str | None = "alice", **mapped: Any) -> RecordImported:
    """Return the record of a file From alice To bob, reviewed by rita, which claims to be done."""
    content = {"title": "t", "to": "bob", "reviewer": "rita", "tasks": ["a", "b"], "criteria": ["c", "d"]} | mapped
    return RecordImported(
        original=REF,
        source="memory/handoffs/h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={name: value for name, value in content.items() if value is not None},
        claimed_author=sender,
        claims={"status": "done"} | EVERYTHING_DONE if claims is None else claims,
    )


def refusal(ledger: Ledger, author: str, data: EventData, *, stream: str = "handoff/h") -> str:
    """Return the code of the refusal of an event that leaves no trace."""
    before = ledger.head()
    with pytest.raises(Refused) as caught:
        ledger.emit(author, stream, data)
    assert ledger.head() == before
    return caught.value.code


def approval(ledger: Ledger) -> HandoffApproved:
    """Return the approval of the handoff as it is now."""
    return HandoffApproved(version=ledger.handoff("h").version)


@pytest.fixture
def scribe(ledger: Ledger) -> str:
    """The agent who imports."""
    ledger.register("scribe")
    return "scribe"


@pytest.mark.parametrize("status", SAID)
def test_claims_of_any_sort_open_no_gate_and_unlock_nothing(ledger: Ledger, scribe: str, status: str | None) -> None:
    ledger.register("router", "service")
    ledger.emit(scribe, "handoff/h", file(claims=EVERYTHING_DONE | ({} if status is None else {"status": status})))
    ledger.approve("waiting", ledger.hand_over("waiting", depends_on=["h"]))
    state = ledger.handoff("h")
    assert (state.status, state.claimed_status) == ("pending", status or "")
    assert refusal(ledger, "bob", HandoffClaimed()) == "NOT_APPROVED"
    assert refusal(ledger, "bob", HandoffCompleted()) == "TRANSITION_NOT_ALLOWED"
    assert refusal(ledger, "bob", HandoffClaimed(), stream="handoff/waiting") == "DEPENDENCY_PENDING"
    assert refusal(ledger, "router", HandoffReady(to="bob", version=state.version)) == "TRANSITION_NOT_ALLOWED"


def test_reviewer_who_approves_confirms_that_it_is_still_to_do(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    ledger.emit("rita", "handoff/h", approval(ledger))
    assert (ledger.handoff("h").status, ledger.handoff("h").claimed_status) == ("approved", None)
    ledger.claim("h")
    assert refusal(ledger, "bob", HandoffCompleted()) == "CRITERIA_OPEN"  # what its file ticked is open here
    ledger.emit("bob", "handoff/h", HandoffCriterionChecked(position=0))
    ledger.emit("rita", "handoff/h", HandoffCriterionWaived(position=1, reason="seen"))
    ledger.emit("bob", "handoff/h", HandoffCompleted())


def test_reviewer_who_verifies_confirms_that_it_is_done(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    ledger.approve("waiting", ledger.hand_over("waiting", depends_on=["h"], unlock_at="verified"))
    ledger.verify("rita", "h")
    assert (ledger.handoff("h").status, ledger.handoff("h").claimed_status) == ("verified", None)
    ledger.claim("waiting")


def test_approved_import_is_no_longer_verified_before_it_is_completed(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    ledger.emit("rita", "handoff/h", approval(ledger))
    assert refusal(ledger, "rita", accepting(ledger.handoff("h"))) == "TRANSITION_NOT_ALLOWED"


def test_handoff_created_here_is_not_verified_like_an_import(ledger: Ledger) -> None:
    ledger.hand_over("h")
    assert refusal(ledger, "rita", accepting(ledger.handoff("h"))) == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("data", [VERIFIED, HandoffRejected(reason="no"), HandoffApproved(version=REF)])
def test_importer_confirms_nothing_unless_a_human(ledger: Ledger, data: EventData) -> None:
    ledger.register("ruth", "reviewer")
    ledger.emit("ruth", "handoff/h", file(reviewer="ruth"))
    if isinstance(data, HandoffApproved):
        data = approval(ledger)
    if isinstance(data, HandoffVerified):
        data = accepting(ledger.handoff("h"))
    assert refusal(ledger, "ruth", data) == "SELF_APPROVAL"
    ledger.emit(ROOT, "agent/ruth", RoleGranted(agent="ruth", role="human"))
    ledger.emit("ruth", "handoff/h", data)


def test_importer_confirms_nothing_later_either(ledger: Ledger) -> None:
    ledger.register("ruth", "reviewer", "human")
    ledger.emit("ruth", "handoff/h", file(reviewer="ruth", criteria=["c"], claims={}))
    ledger.emit("ruth", "handoff/h", approval(ledger))
    ledger.claim("h")
    ledger.emit(ROOT, "agent/ruth", RoleRevoked(agent="ruth", role="human"))
    waived = HandoffCriterionWaived(position=0, reason="seen")
    assert refusal(ledger, "ruth", waived) == "SELF_APPROVAL"
    ledger.emit("bob", "handoff/h", HandoffCriterionChecked(position=0))
    ledger.emit("bob", "handoff/h", HandoffCompleted())
    assert refusal(ledger, "ruth", accepting(ledger.handoff("h"))) == "SELF_APPROVAL"


def test_who_is_claimed_to_have_sent_it_confirms_nothing_unless_a_human(ledger: Ledger, scribe: str) -> None:
    ledger.register("ruth", "reviewer")
    ledger.emit(scribe, "handoff/h", file(sender="ruth", reviewer=None))
    assert ledger.handoff("h").reviewer == "ruth"
    assert refusal(ledger, "ruth", accepting(ledger.handoff("h"))) == "SELF_APPROVAL"
    ledger.emit(scribe, "handoff/h", file(sender="rita", reviewer=None))
    ledger.verify("rita", "h")


@pytest.mark.parametrize("data", [VERIFIED, HandoffApproved(version=REF)])
def test_receiver_confirms_nothing_even_when_the_file_says_so(ledger: Ledger, scribe: str, data: EventData) -> None:
    ledger.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role="human"))
    for record in (file(), file(reviewer="bob"), file(sender="bob", reviewer=None)):
        ledger.emit(scribe, "handoff/h", record)
        assert refusal(ledger, "bob", data) == "SELF_APPROVAL"


def test_reviewer_named_by_a_file_needs_the_role(ledger: Ledger, scribe: str) -> None:
    ledger.register("carl")
    ledger.emit(scribe, "handoff/h", file(reviewer="carl"))
    assert refusal(ledger, "carl", accepting(ledger.handoff("h"))) == "NOT_AUTHORIZED"


def test_file_may_be_from_to_and_reviewed_by_names_that_nobody_has_here(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file(sender="Kuro + Alex", to="gemini", reviewer="nobody"))
    state = ledger.handoff("h")
    assert (state.sender, state.receiver, state.reviewer) == ("Kuro + Alex", "gemini", "nobody")
    assert refusal(ledger, "rita", accepting(ledger.handoff("h"))) == "NOT_AUTHORIZED"
    ledger.emit(scribe, "handoff/h", HandoffAmended(title="t", to="bob", reviewer="rita"))
    assert (ledger.handoff("h").sender, ledger.handoff("h").claimed_status) == ("Kuro + Alex", None)
    ledger.emit("rita", "handoff/h", approval(ledger))
    ledger.claim("h")


def test_file_that_names_nobody_is_pending_until_it_is_amended(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file(sender=None, to=None, reviewer=None))
    assert refusal(ledger, "rita", accepting(ledger.handoff("h"))) == "NOT_AUTHORIZED"
    assert refusal(ledger, "bob", HandoffClaimed()) == "NOT_AUTHORIZED"


@pytest.mark.parametrize(
    "data",
    [
        HandoffCancelled(reason="obsolete"),
        HandoffSuperseded(by="other"),
        HandoffLogged(text="found in the archive"),
        HandoffAmended(title="t", to="bob", reviewer="rita"),
    ],
)
def test_importer_acts_for_the_sender(ledger: Ledger, scribe: str, data: EventData) -> None:
    ledger.hand_over("other")
    ledger.emit(scribe, "handoff/h", file(sender="Kuro"))
    ledger.register("eve")
    assert refusal(ledger, "eve", data) == "NOT_AUTHORIZED"
    ledger.emit(scribe, "handoff/h", data)


def test_import_again_replaces_until_somebody_confirmed(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    first = ledger.handoff("h")
    ledger.emit(scribe, "handoff/h", file(title="wider", criteria=["one"], claims={"criteria": [0]}))
    second = ledger.handoff("h")
    assert second.version != first.version
    assert (second.criteria, second.tasks, second.claimed_status) == (("claimed",), ("open", "open"), "")
    ledger.clock.advance(1)  # else it would be the first import once more
    ledger.emit(scribe, "handoff/h", file())
    assert replace(ledger.handoff("h"), completion=first.completion) == first
    ledger.emit("rita", "handoff/h", approval(ledger))
    ledger.clock.advance(1)
    assert refusal(ledger, scribe, file()) == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("way", ["created", "verified", "rejected", "amended", "cancelled"])
def test_nothing_is_imported_over_what_somebody_decided_here(ledger: Ledger, scribe: str, way: str) -> None:
    if way == "created":
        ledger.hand_over("h")
    else:
        ledger.emit(scribe, "handoff/h", file())
        author, data = {
            "verified": ("rita", accepting(ledger.handoff("h"))),
            "rejected": ("rita", HandoffRejected(reason="no")),
            "amended": (scribe, HandoffAmended(title="t", to="bob", reviewer="rita")),
            "cancelled": (scribe, HandoffCancelled(reason="no")),
        }[way]
        ledger.emit(author, "handoff/h", data)
    assert refusal(ledger, scribe, file(title="other")) == "TRANSITION_NOT_ALLOWED"


def test_handoff_is_not_created_over_an_import(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    assert refusal(ledger, "alice", HandoffCreated(title="t", to="bob", reviewer="rita")) == "TRANSITION_NOT_ALLOWED"


def test_older_import_is_not_what_the_reviewer_approves(ledger: Ledger, scribe: str) -> None:
    ledger.emit(scribe, "handoff/h", file())
    read = approval(ledger)
    ledger.emit(scribe, "handoff/h", file(title="wider"))
    assert refusal(ledger, "rita", read) == "VERSION_MISMATCH"


def test_import_closes_no_cycle(ledger: Ledger, scribe: str) -> None:
    ledger.hand_over("a", depends_on=["b"])
    ledger.emit(scribe, "handoff/b", file(depends_on=["c"]))
    assert refusal(ledger, scribe, file(depends_on=["a"]), stream="handoff/c") == "DEPENDENCY_CYCLE"
    assert refusal(ledger, scribe, file(depends_on=["h"])) == "DEPENDENCY_CYCLE"
    ledger.emit(scribe, "handoff/c", file())
    assert refusal(ledger, scribe, file(depends_on=["a"]), stream="handoff/c") == "DEPENDENCY_CYCLE"
