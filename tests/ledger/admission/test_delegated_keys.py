"""A session key signs for its agent within its scope, time and budget, and never approves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Actors, Clock, key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.log.keys import key_key

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData

SESSION_KEY = key_named("alice's session")


def refusal(ledger: Ledger, author: str, stream: str, data: EventData, **fields: object) -> str:
    """Sign an event with the session key; return the code of its refusal."""
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data, key=SESSION_KEY, **fields)).code


def used(ledger: Ledger) -> int:
    """Return how many events the ledger counts for the session key."""
    with ledger.log.snapshot() as snapshot:
        record = snapshot.record(key_key(SESSION_KEY.public.hex()))
    assert record is not None
    return record.used


def test_session_key_signs_for_its_agent_from_its_delegation_on(ledger: Ledger) -> None:
    assert refusal(ledger, "alice", "session/s1", SessionStarted()) == "KEY_UNKNOWN"
    ledger.delegate("alice", SESSION_KEY)
    ledger.emit("alice", "session/s1", SessionStarted(), key=SESSION_KEY)
    event = ledger.event(-1)
    assert (event.author, event.key) == ("alice", SESSION_KEY.public.hex())


def test_session_key_expires_by_the_ledgers_clock_whatever_the_author_claims(ledger: Ledger) -> None:
    ledger.delegate("alice", SESSION_KEY, seconds=60)
    ledger.clock.advance(59.999)
    ledger.emit("alice", "session/s1", SessionStarted(), key=SESSION_KEY)
    ledger.clock.advance(0.001)
    before = Actors(ledger.submit, Clock(ledger.clock.now_ms - 30_000))
    with pytest.raises(Refused) as refused:
        before.emit("alice", "session/s1", FindingLogged(finding="f"), key=SESSION_KEY)
    assert refused.value.code == "KEY_EXPIRED"


def test_session_key_stays_expired_when_the_clock_goes_back(ledger: Ledger) -> None:
    ledger.delegate("alice", SESSION_KEY, seconds=60)
    ledger.clock.advance(60)
    ledger.emit("bob", "session/s2", SessionStarted())
    ledger.clock.advance(-60)
    assert refusal(ledger, "alice", "session/s1", SessionStarted()) == "KEY_EXPIRED"


def test_session_key_signs_as_many_events_as_it_may(ledger: Ledger) -> None:
    ledger.delegate("alice", SESSION_KEY, max_events=2)
    ledger.emit("alice", "session/s1", SessionStarted(), key=SESSION_KEY)
    two = ledger.sign(
        "alice", *(Draft(stream="session/s1", data=FindingLogged(finding=text)) for text in "ab"), key=SESSION_KEY
    )
    with pytest.raises(Refused) as refused:
        ledger.submit(two)
    assert [one["code"] for one in refused.value.details["events"]] == ["KEY_EXHAUSTED"]
    assert used(ledger) == 1
    ledger.emit("alice", "session/s1", FindingLogged(finding="a"), key=SESSION_KEY)
    assert refusal(ledger, "alice", "session/s1", FindingLogged(finding="b")) == "KEY_EXHAUSTED"


def test_refused_and_repeated_events_cost_no_budget(ledger: Ledger) -> None:
    ledger.delegate("alice", SESSION_KEY, max_events=2)
    started = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()), key=SESSION_KEY)
    ledger.submit(started)
    ledger.submit(started)
    assert refusal(ledger, "alice", "session/s1", FindingLogged(finding="f"), expect=9) == "STREAM_CONFLICT"
    assert used(ledger) == 1


def test_session_key_is_revoked_by_its_agent_or_an_admin_and_by_nobody_else(ledger: Ledger) -> None:
    ledger.delegate("alice", SESSION_KEY)
    revoked = KeyRevoked(key=SESSION_KEY.public.hex())
    with pytest.raises(Refused) as refused:
        ledger.emit("bob", "agent/alice", revoked)
    assert refused.value.code == "NOT_AUTHORIZED"
    ledger.emit("alice", "agent/alice", revoked)
    assert refusal(ledger, "alice", "session/s1", SessionStarted()) == "KEY_REVOKED"
    with pytest.raises(Refused) as refused:
        ledger.emit(ROOT, "agent/alice", revoked)
    assert refused.value.code == "KEY_REVOKED"
