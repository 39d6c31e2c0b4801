"""A handoff that its sender changes, puts another in the place of, or that the router announces: what the gate asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import key_named

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRemoved, RoleGranted, RoleRevoked
from deedbook.ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffCancelled,
    HandoffCompleted,
    HandoffCreated,
    HandoffLogged,
    HandoffReady,
    HandoffReleased,
    HandoffSuperseded,
)
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key


def refused(ledger: Ledger, author: str, name: str, data: EventData, *, key: Key | None = None) -> Refused:
    """Return the refusal of an event that leaves no trace."""
    before = ledger.head()
    with pytest.raises(Refused) as caught:
        ledger.emit(author, f"handoff/{name}", data, key=key)
    assert ledger.head() == before
    return caught.value


def amended(**fields: Any) -> HandoffAmended:
    """Return new content from alice to bob, reviewed by rita."""
    return HandoffAmended(**{"title": "wider", "to": "bob", "reviewer": "rita"} | fields)


def announced(ledger: Ledger, name: str) -> HandoffReady:
    """Return the announcement of a handoff as it is now."""
    state = ledger.handoff(name)
    return HandoffReady(to=state.receiver, version=state.version)


@pytest.fixture
def router(ledger: Ledger) -> str:
    """A service that announces."""
    ledger.register("router", "service")
    return "router"


def test_amended_handoff_needs_the_approval_of_its_new_version(ledger: Ledger) -> None:
    data = ledger.hand_over("h1")
    ledger.approve("h1", data)
    old = ledger.handoff("h1").version
    ledger.emit("alice", "handoff/h1", amended())
    new = ledger.handoff("h1").version
    assert ledger.handoff("h1").status == "pending"
    assert refused(ledger, "bob", "h1", HandoffReleased()).code == "TRANSITION_NOT_ALLOWED"
    ledger.clock.advance(1)  # else it would be the first approval once more
    answer = refused(ledger, "rita", "h1", HandoffApproved(version=old))
    assert (answer.code, answer.details) == ("VERSION_MISMATCH", {"version": new, "named": old})
    ledger.emit("rita", "handoff/h1", HandoffApproved(version=new))
    ledger.claim("h1")


def test_reason_of_an_amendment_is_no_part_of_what_is_approved(ledger: Ledger) -> None:
    content = ledger.hand_over("h1")
    ledger.emit("alice", "handoff/h1", HandoffAmended(**msgspec.structs.asdict(content), reason="said twice"))
    assert ledger.handoff("h1").version == compute_version("alice", content)


def test_claim_before_the_new_approval_is_refused(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.emit("alice", "handoff/h1", amended())
    with pytest.raises(Refused) as caught:
        ledger.claim("h1")
    assert caught.value.code == "NOT_APPROVED"


@pytest.mark.parametrize("author", ["bob", "rita"])
def test_only_the_sender_amends(ledger: Ledger, author: str) -> None:
    ledger.hand_over("h1")
    assert refused(ledger, author, "h1", amended(reviewer=None)).code == "NOT_AUTHORIZED"


def test_claimed_work_is_not_amended_until_it_is_given_back(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.claim("h1")
    assert refused(ledger, "alice", "h1", amended()).details == {"status": "in_progress"}
    ledger.emit("bob", "handoff/h1", HandoffReleased())
    ledger.emit("alice", "handoff/h1", amended())
    assert ledger.handoff("h1").status == "pending"


def test_work_whose_lease_ran_out_can_be_amended(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.claim("h1", lease_seconds=60)
    ledger.clock.advance(59)
    assert refused(ledger, "alice", "h1", amended()).code == "TRANSITION_NOT_ALLOWED"
    ledger.clock.advance(1)
    ledger.emit("alice", "handoff/h1", amended())
    assert (ledger.handoff("h1").status, ledger.handoff("h1").lease) == ("pending", None)


def test_amendment_that_closes_a_cycle_of_five_names_its_path(ledger: Ledger) -> None:
    for name, on in (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")):
        ledger.hand_over(name, depends_on=[on])
    ledger.hand_over("e")
    answer = refused(ledger, "alice", "e", amended(depends_on=["a"]))
    assert (answer.code, answer.details["cycle"]) == ("DEPENDENCY_CYCLE", ["e", "a", "b", "c", "d", "e"])
    assert "e → a → b → c → d → e" in answer.message
    assert refused(ledger, "alice", "e", amended(depends_on=["e"])).details["cycle"] == ["e", "e"]


def test_dependency_that_was_amended_away_closes_no_cycle(ledger: Ledger) -> None:
    ledger.hand_over("a", depends_on=["b"])
    ledger.hand_over("b")
    ledger.emit("alice", "handoff/a", amended())
    ledger.emit("alice", "handoff/b", amended(depends_on=["a"]))
    assert ledger.handoff("b").depends_on == ("a",)


def test_amending_away_the_reviewer_is_for_humans(ledger: Ledger) -> None:
    ledger.hand_over("h1")
    assert refused(ledger, "alice", "h1", amended(reviewer=None)).code == "REVIEWER_REQUIRED"
    ledger.hand_over("h2", sender="rita", reviewer=None)
    ledger.emit("rita", "handoff/h2", amended(reviewer=None))
    assert (ledger.handoff("h2").reviewer, ledger.handoff("h2").status) == ("rita", "approved")


@pytest.mark.parametrize("other", [None, "dora"])
def test_reviewer_who_was_named_is_dropped_by_nobody(ledger: Ledger, other: str | None) -> None:
    ledger.register("ruth", "reviewer")
    ledger.register("dora", "human")
    ledger.hand_over("h1", sender="rita", reviewer="ruth")
    answer = refused(ledger, "rita", "h1", amended(reviewer=other))
    assert (answer.code, answer.details) == ("NOT_AUTHORIZED", {"reviewer": "ruth"})
    assert "deed handoff amend h1 --reviewer OTHER --as ruth" in answer.message
    assert ledger.handoff("h1").reviewer == "ruth"


@pytest.mark.parametrize("data", [RoleRevoked(agent="ruth", role="reviewer"), AgentRemoved(agent="ruth")])
def test_reviewer_who_reviews_nothing_any_more_holds_nobody_up(ledger: Ledger, data: EventData) -> None:
    ledger.register("ruth", "reviewer")
    ledger.hand_over("h1", reviewer="ruth")
    ledger.emit(ROOT, "agent/ruth", data)
    ledger.emit("alice", "handoff/h1", amended())
    assert (ledger.handoff("h1").reviewer, ledger.handoff("h1").status) == ("rita", "pending")


def test_reviewer_hands_over_and_changes_nothing_else(ledger: Ledger) -> None:
    ledger.register("ruth", "reviewer")
    data = ledger.hand_over("h1")
    ledger.approve("h1", data)
    over = HandoffAmended(**msgspec.structs.asdict(data) | {"reviewer": "ruth"}, hands_over=True)
    session = ledger.delegate("rita", key_named("rita's session"))
    for key in (session, None):
        wider = msgspec.structs.replace(over, title="wider")
        code = refused(ledger, "rita", "h1", wider, key=key).code
        assert code == ("KEY_OUT_OF_SCOPE" if key else "VERSION_MISMATCH")
    assert refused(ledger, "rita", "h1", over, key=session).code == "KEY_OUT_OF_SCOPE"
    assert refused(ledger, "alice", "h1", over).code == "SELF_APPROVAL"
    for nobody in (None, "alice", "bob", "rita"):
        assert refused(ledger, "rita", "h1", msgspec.structs.replace(over, reviewer=nobody)).code == "SELF_APPROVAL"
    for role in ("human", "reviewer"):
        ledger.emit(ROOT, "agent/rita", RoleRevoked(agent="rita", role=role))
    ledger.emit(ROOT, "agent/rita", RoleGranted(agent="rita", role="agent"))
    assert refused(ledger, "rita", "h1", over).code == "NOT_AUTHORIZED"
    ledger.emit(ROOT, "agent/rita", RoleGranted(agent="rita", role="reviewer"))
    ledger.emit("rita", "handoff/h1", over)
    assert (ledger.handoff("h1").reviewer, ledger.handoff("h1").status) == ("ruth", "pending")
    assert refused(ledger, "rita", "h1", HandoffApproved(version=ledger.handoff("h1").version)).code == "NOT_AUTHORIZED"
    ledger.emit("ruth", "handoff/h1", HandoffApproved(version=ledger.handoff("h1").version))
    ledger.claim("h1")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"to": "nobody"}, "AGENT_UNKNOWN"),
        ({"reviewer": "nobody"}, "AGENT_UNKNOWN"),
        ({"reviewer": "carl"}, "NOT_AUTHORIZED"),
        ({"reviewer": "alice"}, "SELF_APPROVAL"),
        ({"reviewer": "bob"}, "SELF_APPROVAL"),
    ],
)
def test_amendment_is_held_to_the_rules_of_a_new_handoff(ledger: Ledger, fields: dict[str, str], code: str) -> None:
    ledger.register("carl")
    ledger.hand_over("h1")
    assert refused(ledger, "alice", "h1", amended(**fields)).code == code


def test_former_reviewer_approves_no_longer(ledger: Ledger) -> None:
    ledger.register("ruth", "reviewer")
    ledger.hand_over("h1")
    ledger.emit(ROOT, "agent/rita", RoleRevoked(agent="rita", role="human"))
    ledger.emit(ROOT, "agent/rita", RoleRevoked(agent="rita", role="reviewer"))
    ledger.emit("alice", "handoff/h1", amended(reviewer="ruth"))
    approval = HandoffApproved(version=ledger.handoff("h1").version)
    assert refused(ledger, "rita", "h1", approval).code == "NOT_AUTHORIZED"
    ledger.emit("ruth", "handoff/h1", approval)


def test_superseding_needs_another_handoff_that_exists(ledger: Ledger) -> None:
    ledger.hand_over("h1")
    answer = refused(ledger, "alice", "h1", HandoffSuperseded(by="h2"))
    assert (answer.code, answer.details) == ("NOT_FOUND", {"by": "h2"})
    assert refused(ledger, "alice", "h1", HandoffSuperseded(by="h1")).code == "INVALID_FIELD"
    ledger.hand_over("h2")
    ledger.emit("alice", "handoff/h1", HandoffSuperseded(by="h2"))
    assert (ledger.handoff("h1").status, ledger.handoff("h1").reason) == ("superseded", "by h2")


@pytest.mark.parametrize("author", ["bob", "rita"])
def test_only_the_sender_puts_another_in_its_place(ledger: Ledger, author: str) -> None:
    ledger.hand_over("h1")
    ledger.hand_over("h2")
    assert refused(ledger, author, "h1", HandoffSuperseded(by="h2")).code == "NOT_AUTHORIZED"


def test_superseded_handoff_never_unlocks_what_waits_for_it(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.approve("waiting", ledger.hand_over("waiting", depends_on=["h1"]))
    ledger.finish("h2", verify=True)
    ledger.emit("alice", "handoff/h1", HandoffSuperseded(by="h2"))
    with pytest.raises(Refused) as caught:
        ledger.claim("waiting")
    assert (caught.value.code, caught.value.details) == ("DEPENDENCY_PENDING", {"on": "h1", "status": "superseded"})


def test_work_that_was_superseded_while_it_was_done_is_not_completed(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.claim("h1")
    ledger.hand_over("h2")
    ledger.emit("alice", "handoff/h1", HandoffSuperseded(by="h2"))
    assert refused(ledger, "bob", "h1", HandoffCompleted()).details == {"status": "superseded"}
    ledger.emit("bob", "handoff/h1", HandoffLogged(text="half of it is in the branch"))


def test_services_announce_and_nobody_else(ledger: Ledger, router: str) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    for author in ("alice", "bob", "rita"):
        assert refused(ledger, author, "h1", announced(ledger, "h1")).code == "NOT_AUTHORIZED"
    ledger.emit(router, "handoff/h1", announced(ledger, "h1"))
    assert ledger.handoff("h1").is_announced
    assert ledger.handoff("h1").status == "approved"


def test_service_that_lost_its_role_announces_nothing(ledger: Ledger, router: str) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.emit(ROOT, f"agent/{router}", RoleRevoked(agent=router, role="service"))
    assert refused(ledger, router, "h1", announced(ledger, "h1")).code == "NOT_AUTHORIZED"


def test_what_is_not_approved_or_waits_is_not_announced(ledger: Ledger, router: str) -> None:
    data = ledger.hand_over("h1", depends_on=["first", "ghost"])
    assert refused(ledger, router, "h1", announced(ledger, "h1")).details == {"status": "pending"}
    ledger.approve("h1", data)
    ledger.hand_over("first")
    waits = refused(ledger, router, "h1", announced(ledger, "h1"))
    assert (waits.code, waits.details["on"]) == ("DEPENDENCY_MISSING", "ghost")
    ledger.emit("alice", "handoff/first", HandoffCancelled(reason="obsolete"))
    ledger.emit("alice", "handoff/h1", amended(depends_on=["ghost"]))
    ledger.emit("rita", "handoff/h1", HandoffApproved(version=ledger.handoff("h1").version))
    assert refused(ledger, router, "h1", announced(ledger, "h1")).code == "DEPENDENCY_MISSING"
    ledger.hand_over("ghost")
    waits = refused(ledger, router, "h1", announced(ledger, "h1"))
    assert (waits.code, waits.details["on"]) == ("DEPENDENCY_PENDING", "ghost")


@pytest.mark.parametrize("fields", [{"to": "rita"}, {"version": "sha256:" + "0" * 64}])
def test_announcement_names_the_receiver_and_the_approved_version(
    ledger: Ledger, router: str, fields: dict[str, str]
) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    wrong = msgspec.structs.replace(announced(ledger, "h1"), **fields)
    assert refused(ledger, router, "h1", wrong).code == "VERSION_MISMATCH"


def test_one_wait_is_announced_once(ledger: Ledger, router: str) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.emit(router, "handoff/h1", announced(ledger, "h1"))
    ledger.clock.advance(1)
    assert refused(ledger, router, "h1", announced(ledger, "h1")).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("way", ["released", "lapsed", "amended"])
def test_another_wait_is_announced_anew(ledger: Ledger, router: str, way: str) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.emit(router, "handoff/h1", announced(ledger, "h1"))
    ledger.clock.advance(1)
    if way == "amended":
        ledger.emit("alice", "handoff/h1", amended())
        assert not ledger.handoff("h1").is_announced
        ledger.emit("rita", "handoff/h1", HandoffApproved(version=ledger.handoff("h1").version))
    else:
        ledger.claim("h1", lease_seconds=60)
        assert refused(ledger, router, "h1", announced(ledger, "h1")).code == "TRANSITION_NOT_ALLOWED"
    if way == "released":
        ledger.emit("bob", "handoff/h1", HandoffReleased())
    if way == "lapsed":
        ledger.clock.advance(60)
    ledger.emit(router, "handoff/h1", announced(ledger, "h1"))
    assert (ledger.handoff("h1").status, ledger.handoff("h1").is_announced) == ("approved", True)


def test_announcement_binds_nobody(ledger: Ledger, router: str) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    ledger.emit(router, "handoff/h1", announced(ledger, "h1"))
    ledger.emit("alice", "handoff/h1", HandoffCancelled(reason="obsolete"))
    assert not ledger.handoff("h1").is_announced
    ledger.approve("h2", ledger.hand_over("h2"))
    ledger.claim("h2")  # never announced


def test_same_content_created_again_is_not_an_amendment(ledger: Ledger) -> None:
    data = ledger.hand_over("h1")
    ledger.clock.advance(1)
    assert (
        refused(ledger, "alice", "h1", HandoffCreated(**msgspec.structs.asdict(data))).code == "TRANSITION_NOT_ALLOWED"
    )
