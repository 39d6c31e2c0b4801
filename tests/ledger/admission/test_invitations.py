"""An invited agent registers itself: once, in time, and only with the name and roles of its invitation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger, key_named
from invitations import invitation_of, invite, join, registration

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentInvitationRevoked,
    AgentRemoved,
    ClockSet,
    KeyCompromised,
    KeyRevoked,
    KeyRotated,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deedbook.ledger.client.invitation import Invitation
    from deedbook.ledger.events.fields import EventData


def refusal(ledger: Ledger, author: str, data: EventData, stream: str = "agent/dora", **fields: Any) -> Refused:
    """Return the refusal of an event, which must leave the log unchanged."""
    ledger.clock.advance(1)  # otherwise an event with the same bytes would be a repeat, and get the first answer
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data, **fields))


def not_admitted(ledger: Ledger, invitation: Invitation, **changes: Any) -> tuple[str, Any]:
    """Return the code and the reason with which the registration of an invited agent is refused."""
    refused = refusal(ledger, "dora", registration(invitation, **changes), key=key_named("dora"))
    return refused.code, refused.details.get("how")


def test_who_was_invited_registers_itself_and_works(ledger: Ledger) -> None:
    join(ledger, invite(ledger, "dora", "agent", "reviewer"))
    ledger.emit("dora", "session/d", SessionStarted())
    with ledger.log.snapshot() as snapshot:
        agent = next(one for one in snapshot.agents() if one.name == "dora")
    assert (agent.key, agent.roles) == (key_named("dora").public.hex(), ("agent", "reviewer"))


def test_a_new_gate_lets_agents_work_that_another_admin_invited(ledger: Ledger) -> None:
    ledger.register("ada", "admin")
    join(ledger, invite(ledger, "dora", by="ada"))
    answer = Gate(ledger.log, clock_ms=ledger.clock).submit(
        ledger.sign("dora", Draft(stream="session/d", data=SessionStarted()))
    )
    assert [entry.index for entry in answer] == [ledger.head()[0] - 1]


def test_token_is_good_once(ledger: Ledger) -> None:
    invitation = invite(ledger, "dora")
    join(ledger, invitation)
    refused = refusal(ledger, "dora", registration(invitation, key_named("other")), key=key_named("other"))
    assert (refused.code, refused.details["how"]) == ("NOT_INVITED", "used")


def test_same_registration_again_gets_the_first_answer(ledger: Ledger) -> None:
    invitation = invite(ledger, "dora")
    submission = ledger.sign("dora", Draft(stream="agent/dora", data=registration(invitation)), key=key_named("dora"))
    first = ledger.submit(submission)[0]
    ledger.clock.advance(7200)  # also after the invitation has expired
    again = ledger.submit(submission)[0]
    assert (again.index, again.is_repeat) == (first.index, True)


def test_invitation_holds_until_it_expires_by_the_ledgers_clock(ledger: Ledger) -> None:
    invitation = invite(ledger, "dora", seconds=60)
    ledger.clock.advance(59)  # a refusal advances the clock by one second
    assert not_admitted(ledger, invitation) == ("NOT_INVITED", "expired")
    ledger.clock.advance(-1)
    join(ledger, invitation)


def test_clock_that_was_set_back_ends_what_was_granted_later(ledger: Ledger) -> None:
    ledger.clock.advance(86_400)
    invitation = invite(ledger, "dora", seconds=3 * 86_400)
    ledger.clock.advance(-86_400)
    ledger.emit(ROOT, "ledger", ClockSet(time=ledger.clock.text(), reason="it was ahead"))
    assert not_admitted(ledger, invitation) == ("NOT_INVITED", "expired")


def test_invitation_is_taken_back_until_it_is_used(ledger: Ledger) -> None:
    invitation = invite(ledger, "dora")
    assert refusal(ledger, "alice", AgentInvitationRevoked(name="dora")).code == "NOT_AUTHORIZED"
    ledger.emit(ROOT, "agent/dora", AgentInvitationRevoked(name="dora", reason="sent to the wrong one"))
    assert not_admitted(ledger, invitation) == ("NOT_INVITED", "revoked")
    assert refusal(ledger, ROOT, AgentInvitationRevoked(name="dora")).code == "TRANSITION_NOT_ALLOWED"
    join(ledger, invite(ledger, "dora"))
    assert "deed agent remove dora" in refusal(ledger, ROOT, AgentInvitationRevoked(name="dora")).message
    assert refusal(ledger, ROOT, AgentInvitationRevoked(name="alice"), "agent/alice").details["how"] == "unknown"


def key_of(ledger: Ledger, name: str) -> str:
    return ledger.keys[name].public.hex()


@pytest.mark.parametrize(
    "end",
    [
        lambda ledger: RoleRevoked(agent="rita", role="admin"),
        lambda ledger: AgentRemoved(agent="rita"),
        lambda ledger: KeyRevoked(key=key_of(ledger, "rita")),
        lambda ledger: KeyCompromised(key=key_of(ledger, "rita"), since=1),
    ],
)
def test_invitation_ends_with_what_made_its_inviter_an_admin(ledger: Ledger, end: Callable[[Ledger], Any]) -> None:
    ledger.emit(ROOT, "agent/rita", RoleGranted(agent="rita", role="admin"))
    invitation = invite(ledger, "dora", by="rita")
    with ledger.log.snapshot() as snapshot:
        assert [one.is_open(ledger.clock.now_ms, snapshot) for one in snapshot.invitations()] == [True]
    ledger.emit(ROOT, "agent/rita", end(ledger))
    assert not_admitted(ledger, invitation) == ("NOT_INVITED", "inviter")
    with ledger.log.snapshot() as snapshot:
        assert [one.is_open(ledger.clock.now_ms, snapshot) for one in snapshot.invitations()] == [False]
    join(ledger, invite(ledger, "dora"))


def test_invitation_holds_when_its_inviter_replaced_the_key_unless_that_was_compromised(ledger: Ledger) -> None:
    ledger.emit(ROOT, "agent/rita", RoleGranted(agent="rita", role="admin"))
    held, stolen = invite(ledger, "dora", by="rita"), invite(ledger, "emil", by="rita")
    key, old = key_named("rita's next"), key_of(ledger, "rita")
    ledger.emit(
        ROOT,
        "agent/rita",
        KeyRotated(agent="rita", key=key.public.hex(), proof=key.prove_possession(ledger.id, "rita")),
    )
    join(ledger, held)
    with ledger.log.snapshot() as snapshot:
        since = next(one for one in snapshot.invitations() if one.name == "emil").index
    ledger.emit(ROOT, "agent/rita", KeyCompromised(key=old, since=since))
    refused = refusal(ledger, "emil", registration(stolen), "agent/emil", key=key_named("emil"))
    assert (refused.code, refused.details["how"]) == ("NOT_INVITED", "inviter")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"roles": ["agent", "reviewer"]}, "NOT_INVITED"),
        ({"roles": []}, "NOT_INVITED"),
        ({"roles": ["reviewer"]}, "NOT_INVITED"),
        ({"roles": ["agent", "agent"]}, "NOT_INVITED"),
        ({"name": "eve"}, "AUTHOR_MISMATCH"),
        ({"token_proof": "00" * 64}, "SIGNATURE_INVALID"),
        ({"proof": "00" * 64}, "SIGNATURE_INVALID"),
        ({"token_proof": None}, "KEY_UNKNOWN"),
        ({"checkpoint_key": "12" * 32, "checkpoint_proof": "00" * 64}, "INVALID_FIELD"),
    ],
)
def test_nothing_else_is_admitted_than_was_invited(ledger: Ledger, changes: Any, code: str) -> None:
    assert not_admitted(ledger, invite(ledger, "dora"), **changes)[0] == code


def test_code_of_another_ledger_is_of_no_use_here(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other", root="another root") as other:
        invitation = invite(other, "dora")
    invite(ledger, "dora")
    assert not_admitted(ledger, invitation)[0] == "SIGNATURE_INVALID"


def test_token_signs_nothing_but_that_one_key(ledger: Ledger) -> None:
    invitation = invite(ledger, "dora")
    refused = refusal(ledger, "dora", SessionStarted(), "session/d", key=invitation.key)
    assert refused.code == "AUTHOR_MISMATCH"
    for how in (KeyRevoked, KeyCompromised):
        data: dict[str, Any] = {"key": invitation.key.public.hex()} | ({"since": 1} if how is KeyCompromised else {})
        assert refusal(ledger, ROOT, how(**data)).code == "NOT_AUTHORIZED"
    own = ledger.sign(
        "dora", Draft(stream="agent/dora", data=registration(invitation, invitation.key)), key=invitation.key
    )
    with pytest.raises(Refused, match="KEY_EXISTS"):
        ledger.submit(own)


def test_batch_that_invites_and_joins_is_refused(ledger: Ledger) -> None:
    invitation = invitation_of(ledger, "dora")
    both = [Draft(stream="agent/dora", data=data) for data in (invitation.make_invited(), registration(invitation))]
    for author, key in ((ROOT, ledger.keys[ROOT]), ("dora", key_named("dora"))):
        with pytest.raises(Refused):
            ledger.submit(ledger.sign(author, *both, key=key))
    assert not any(agent.name == "dora" for agent in agents(ledger))


def agents(ledger: Ledger) -> list[Any]:
    """Return the agents of the log."""
    with ledger.log.snapshot() as snapshot:
        return list(snapshot.agents())
