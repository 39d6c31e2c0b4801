"""Further nodes: only root admits them, each has its own checkpoint key, and the ledger counts terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import key_named
from invitations import checkpoint_key_of, invitation_of, invite, join, registration

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    KeyCompromised,
    KeyRevoked,
    KeyRotated,
    RoleGranted,
)
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData


def refused(ledger: Ledger, author: str, stream: str, data: EventData, **fields: Any) -> str:
    """Return the code with which an event is refused; the log must stay unchanged."""
    ledger.clock.advance(1)
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data, **fields)).code


def signing(ledger: Ledger) -> set[str]:
    """Return the keys that may sign a checkpoint now."""
    with ledger.log.snapshot() as snapshot:
        return set(snapshot.checkpoint_keys())


def of_node(ledger: Ledger, name: str = "n2", **changes: Any) -> AgentRegistered:
    """Return the registration of a node without an invitation."""
    return registration(invitation_of(ledger, name, "node"), **{"token_proof": None} | changes)


def test_root_alone_lets_nodes_in(ledger: Ledger) -> None:
    ledger.emit(ROOT, "agent/rita", RoleGranted(agent="rita", role="admin"))
    assert refused(ledger, "rita", "agent/n2", invitation_of(ledger, "n2", "node").make_invited()) == "NOT_AUTHORIZED"
    assert refused(ledger, "rita", "agent/n2", of_node(ledger)) == "NOT_AUTHORIZED"
    assert refused(ledger, NODE, "agent/n2", of_node(ledger)) == "NOT_AUTHORIZED"
    join(ledger, invite(ledger, "n2", "node"))
    ledger.emit(ROOT, "agent/n3", of_node(ledger, "n3"))
    ours = {key.public.hex() for key in (ledger.keys[CHECKPOINT], *map(checkpoint_key_of, ("n2", "n3")))}
    assert signing(ledger) == ours


def test_checkpoint_key_ends_with_its_node(ledger: Ledger) -> None:
    join(ledger, invite(ledger, "n2", "node"))
    size, _ = ledger.head()
    ledger.emit(ROOT, "agent/n2", AgentRemoved(agent="n2"))
    theirs = checkpoint_key_of("n2").public.hex()
    assert signing(ledger) == {ledger.keys[CHECKPOINT].public.hex()}
    with ledger.log.snapshot() as snapshot:
        keys = snapshot.record(b"c")
    assert [theirs in keys.at(at) for at in (size - 1, size, size + 1)] == [False, True, False]
    join(ledger, invitation := invite(ledger, "n3", "node"))
    reused = registration(invitation, name="n4", checkpoint_key=theirs)
    assert refused(ledger, "n4", "agent/n4", reused, key=key_named("n3")) == "NOT_INVITED"
    assert refused(ledger, ROOT, "agent/n4", of_node(ledger, "n4", checkpoint_key=theirs)) == "KEY_EXISTS"


def test_key_of_the_first_nodes_checkpoints_rotates_alone(ledger: Ledger) -> None:
    join(ledger, invite(ledger, "n2", "node"))
    new = key_named("checkpoint anew")
    proof = new.prove_possession(ledger.id, CHECKPOINT)
    ledger.emit(ROOT, "ledger", CheckpointKeyRotated(key=new.public.hex(), proof=proof))
    assert signing(ledger) == {new.public.hex(), checkpoint_key_of("n2").public.hex()}


def test_keys_of_a_node_are_replaced_not_ended(ledger: Ledger) -> None:
    join(ledger, invite(ledger, "n2", "node"))
    old = ledger.keys["n2"].public.hex()
    assert refused(ledger, ROOT, "agent/n2", KeyRevoked(key=old)) == "NOT_AUTHORIZED"
    assert refused(ledger, ROOT, "agent/n2", KeyCompromised(key=old, since=1)) == "NOT_AUTHORIZED"
    new = key_named("n2 anew")
    ledger.emit(
        "n2", "agent/n2", KeyRotated(agent="n2", key=new.public.hex(), proof=new.prove_possession(ledger.id, "n2"))
    )
    ledger.emit(ROOT, "agent/n2", KeyCompromised(key=old, since=1))
    assert checkpoint_key_of("n2").public.hex() in signing(ledger)


def test_node_registers_services(ledger: Ledger) -> None:
    join(ledger, invite(ledger, "n2", "node"))
    ledger.submit(ledger.sign("n2", ledger.registered("compressor-n2", ["service"])))
    with pytest.raises(Refused, match="NOT_AUTHORIZED"):
        ledger.submit(ledger.sign("n2", ledger.registered("emil", ["agent"])))
