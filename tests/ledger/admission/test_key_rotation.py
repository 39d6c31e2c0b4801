"""Replacing keys, reporting them compromised, and removing agents: who may do it, and the effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentRemoved,
    CheckpointKeyRotated,
    KeyCompromised,
    KeyRevoked,
    KeyRotated,
    RoleGranted,
)
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.format.identity import Key


def refusal(ledger: Ledger, author: str, stream: str, data: Any, **fields: Any) -> Refused:
    """Return the refusal of an event, which must leave the log unchanged."""
    ledger.clock.advance(1)  # otherwise an event with the same bytes would be a repeat, and get the first answer
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data, **fields))


def rotated(ledger: Ledger, agent: str, key: Key, **change: Any) -> KeyRotated:
    """Return the data of the event that gives an agent a new key."""
    proof = key.prove_possession(ledger.id, change.pop("proven_for", agent))
    return KeyRotated(**{"agent": agent, "key": key.public.hex(), "proof": proof} | change)


def rotate(ledger: Ledger, agent: str, *, by: str | None = None) -> tuple[Key, Key]:
    """Give an agent a new key, with which it signs from now on; return the old and the new one."""
    old, new = ledger.keys[agent], key_named(f"{agent} anew {ledger.head()[0]}")
    ledger.emit(by or agent, f"agent/{agent}", rotated(ledger, agent, new))
    ledger.keys[agent] = new
    return old, new


def test_new_key_signs_and_the_old_one_does_not(ledger: Ledger) -> None:
    ledger.emit("alice", "session/s1", SessionStarted())
    old, _ = rotate(ledger, "alice")
    refused = refusal(ledger, "alice", "session/s2", SessionStarted(), key=old)
    assert (refused.code, refused.details["how"]) == ("KEY_REVOKED", "replaced")
    assert f"was replaced at entry {ledger.head()[0] - 1}" in refused.message
    ledger.emit("alice", "session/s2", SessionStarted())


def test_what_the_old_key_delegated_falls_with_it(ledger: Ledger) -> None:
    session = ledger.delegate("alice", key_named("session"))
    rotate(ledger, "alice")
    assert refusal(ledger, "alice", "session/s1", SessionStarted(), key=session).details["how"] == "replaced"
    fresh = ledger.delegate("alice", key_named("another session"))
    ledger.emit("alice", "session/s1", SessionStarted(), key=fresh)


def test_submission_sent_again_after_a_rotation_gets_its_first_answer(ledger: Ledger) -> None:
    sent = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))
    first = ledger.submit(sent)[0]
    rotate(ledger, "alice")
    again = ledger.submit(sent)[0]
    assert (again.index, again.is_repeat) == (first.index, True)


def test_batch_in_flight_during_a_rotation_is_refused_whole(ledger: Ledger) -> None:
    drafts = [Draft(stream=f"session/s{number}", data=SessionStarted()) for number in range(3)]
    in_flight = ledger.sign("alice", *drafts)
    rotate(ledger, "alice")
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        ledger.submit(in_flight)
    assert refused.value.code == "KEY_REVOKED"
    assert ledger.head() == before


def test_second_rotation_of_a_batch_is_signed_by_a_key_that_is_gone(ledger: Ledger) -> None:
    drafts = [Draft(stream="agent/alice", data=rotated(ledger, "alice", key_named(name))) for name in ("one", "two")]
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        ledger.submit(ledger.sign("alice", *drafts))
    assert refused.value.code in {"KEY_REVOKED", "DEPENDS_ON_REFUSED"}
    assert ledger.head() == before


def test_lost_key_is_replaced_by_root_and_of_mere_workers_by_an_admin(ledger: Ledger) -> None:
    ledger.register("ada", "admin")
    new = key_named("new")
    assert refusal(ledger, "bob", "agent/alice", rotated(ledger, "alice", new)).code == "NOT_AUTHORIZED"
    # An admin who could replace rita's key by their own could approve in her name.
    assert refusal(ledger, "ada", "agent/rita", rotated(ledger, "rita", new)).code == "NOT_AUTHORIZED"
    assert refusal(ledger, "ada", "agent/root", rotated(ledger, ROOT, new)).code == "NOT_AUTHORIZED"
    assert refusal(ledger, "ada", "agent/node", rotated(ledger, NODE, new)).code == "NOT_AUTHORIZED"
    rotate(ledger, "alice", by="ada")
    rotate(ledger, "rita", by=ROOT)
    ledger.emit("rita", "session/s1", SessionStarted())


def test_revoked_agent_comes_back_with_another_key(ledger: Ledger) -> None:
    ledger.emit(ROOT, "agent/alice", KeyRevoked(key=ledger.keys["alice"].public.hex()))
    old, _ = rotate(ledger, "alice", by=ROOT)
    assert refusal(ledger, "alice", "session/s1", SessionStarted(), key=old).details["how"] == "revoked"
    ledger.emit("alice", "session/s1", SessionStarted())


def test_root_and_node_are_replaced_by_root_and_the_ledger_keeps_its_id(ledger: Ledger) -> None:
    old, _ = rotate(ledger, ROOT)
    granted = RoleGranted(agent="bob", role="reviewer")
    assert refusal(ledger, ROOT, "agent/bob", granted, key=old).details["how"] == "replaced"
    rotate(ledger, NODE, by=ROOT)
    rotate(ledger, NODE)
    assert refusal(ledger, NODE, "agent/root", rotated(ledger, ROOT, key_named("x"))).code == "NOT_AUTHORIZED"
    ledger.register("carl")


# Checkpoint keys.


def checkpoint_key(ledger: Ledger, key: Key) -> CheckpointKeyRotated:
    return CheckpointKeyRotated(key=key.public.hex(), proof=key.prove_possession(ledger.id, CHECKPOINT))


def test_checkpoint_key_is_replaced_by_root(ledger: Ledger) -> None:
    ledger.register("ada", "admin")
    new = checkpoint_key(ledger, key_named("new"))
    for author in ("ada", NODE, "alice"):
        assert refusal(ledger, author, "ledger", new).code == "NOT_AUTHORIZED"
    size = ledger.emit(ROOT, "ledger", new).index + 1
    with ledger.log.snapshot() as snapshot:
        assert snapshot.checkpoint_keys() == (new.key,)
        keys = snapshot.record(b"c")
    assert (keys.at(size), keys.at(size - 1)) == ((new.key,), (ledger.keys[CHECKPOINT].public.hex(),))
    assert refusal(ledger, ROOT, "ledger", new, idem="again").code == "KEY_EXISTS"
    assert refusal(ledger, ROOT, "ledger", checkpoint_key(ledger, key_named("alice"))).code == "KEY_EXISTS"


# Compromised keys.


def compromise(ledger: Ledger, agent: str, since: int, *, by: str = ROOT, key: Key | None = None) -> None:
    public = (key or ledger.keys[agent]).public.hex()
    ledger.emit(by, f"agent/{agent}", KeyCompromised(key=public, since=since))


def test_compromised_key_signs_nothing_more_even_if_it_says_so_itself(ledger: Ledger) -> None:
    compromise(ledger, "alice", 3, by="alice")
    refused = refusal(ledger, "alice", "session/s1", SessionStarted())
    assert (refused.code, refused.details["how"]) == ("KEY_REVOKED", "compromised")
    assert "deed key rotate --as alice --lost" in refused.message


def test_declaration_can_only_lower_trust(ledger: Ledger) -> None:
    key = ledger.keys["alice"].public.hex()
    compromise(ledger, "alice", 4)
    for since in (4, 5):
        data = KeyCompromised(key=key, since=since)
        assert refusal(ledger, ROOT, "agent/alice", data).code in {"TRANSITION_NOT_ALLOWED", "INVALID_FIELD"}
    compromise(ledger, "alice", 2)
    with ledger.log.snapshot() as snapshot:
        record = snapshot.key(key)
    assert record is not None
    assert (record.compromised_since, record.ended_index, record.compromised_index) == (2, 4, 5)


@pytest.mark.parametrize("name", [ROOT, NODE])
def test_keys_of_root_and_node_are_called_compromised_once_they_were_replaced(ledger: Ledger, name: str) -> None:
    ledger.register("ada", "admin")
    data = KeyCompromised(key=ledger.keys[name].public.hex(), since=0)
    assert refusal(ledger, ROOT, f"agent/{name}", data).code == "NOT_AUTHORIZED"
    rotate(ledger, name, by=ROOT)
    assert refusal(ledger, "ada", f"agent/{name}", data).code == "NOT_AUTHORIZED"
    ledger.emit(ROOT, f"agent/{name}", data)


def test_approval_by_a_compromised_key_counts_for_no_later_claim(ledger: Ledger) -> None:
    data = ledger.hand_over("h1")
    early = ledger.hand_over("h0")
    ledger.approve("h0", early)
    ledger.approve("h1", data)
    approved_at = ledger.head()[0] - 1
    old, _ = rotate(ledger, "rita", by=ROOT)
    compromise(ledger, "rita", approved_at, key=old)
    refused = refusal(ledger, "bob", "handoff/h1", {"lease_seconds": None}, kind="handoff.claimed")
    assert (refused.code, refused.details["compromised"]) == ("NOT_APPROVED", ledger.head()[0] - 1)
    ledger.claim("h0")
    ledger.clock.advance(1)
    ledger.approve("h1", data)
    ledger.claim("h1")


# Removed agents.


def test_removed_agent_signs_nothing_and_is_named_by_nobody(ledger: Ledger) -> None:
    session = ledger.delegate("bob", key_named("session"))
    ledger.hand_over("h1")
    index = ledger.emit(ROOT, "agent/bob", AgentRemoved(agent="bob")).index
    for key in (None, session):
        assert refusal(ledger, "bob", "session/s1", SessionStarted(), key=key).details["how"] == "removed"
    created = HandoffCreated(title="t", to="bob", reviewer="rita")
    assert refusal(ledger, "alice", "handoff/h2", created).details["index"] == index
    again = ledger.registered("bob", ["agent"], key_named("bob anew")).data
    refused = refusal(ledger, ROOT, "agent/bob", again)
    assert (refused.code, refused.details["index"]) == ("AGENT_EXISTS", index)
    for data in (rotated(ledger, "bob", key_named("x")), AgentRemoved(agent="bob")):
        assert refusal(ledger, ROOT, "agent/bob", data).code == "AGENT_UNKNOWN"
    assert refusal(ledger, ROOT, "agent/bob", RoleGranted(agent="bob", role="admin")).code == "AGENT_UNKNOWN"


def test_what_a_key_signed_before_its_end_stays_and_can_be_built_on(ledger: Ledger) -> None:
    ledger.emit("alice", "session/s1", SessionStarted())
    ledger.emit("alice", "session/s1", FindingLogged(finding="f"))
    before = ledger.event(-1)
    rotate(ledger, "alice")
    ledger.emit("alice", "session/s1", FindingLogged(finding="g"))
    assert ledger.event(before.index).id == before.id
