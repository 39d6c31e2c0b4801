"""Logs with valid signatures but with agents, nodes or terms that a gate must refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from building import key_named
from forged_steps import WrongLog, removed, then
from invitations import invitation_of, invite, join, registration

from deedbook.ledger.events.authority import (
    AgentInvitationRevoked,
    AgentRemoved,
    KeyCompromised,
    KeyRevoked,
    KeyRotated,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge import Forge

    from deedbook.ledger.format.identity import Key

    Step = Callable[[Forge], Any]


def joins_late(forge: Forge) -> None:
    """Use an invitation exactly when it expires."""
    invitation = invite(forge, "eve", seconds=60)
    forge.clock.advance(59.999)  # appending the invitation has advanced the clock by a millisecond
    join(forge, invitation)


def joins_with(change: Callable[[Forge, Any], Any], key: Callable[[Forge], Key] | None = None) -> Step:
    """Return the step that invites eve and registers her with changed data, signed with her key or another one."""

    def step(forge: Forge) -> None:
        data = change(forge, registration(invite(forge, "eve")))
        forge.emit("eve", "agent/eve", data, key=key(forge) if key else key_named("eve"))

    return step


def joins_twice(forge: Forge) -> None:
    """Register eve twice with one token, each time with another key."""
    invitation = invite(forge, "eve")
    join(forge, invitation)
    other = key_named("second eve")
    forge.emit("eve", "agent/eve", registration(invitation, other), key=other)


def taken_back(by: str, *, is_used: bool = False) -> Step:
    """Return the step that invites eve and revokes the invitation, with ``is_used`` after she has joined."""

    def step(forge: Forge) -> None:
        invitation = invite(forge, "eve")
        if is_used:
            join(forge, invitation)
        forge.emit(by, "agent/eve", AgentInvitationRevoked(name="eve"))

    return step


def joins_after_it_was_taken_back(forge: Forge) -> None:
    invitation = invite(forge, "eve")
    forge.emit(ROOT, "agent/eve", AgentInvitationRevoked(name="eve"))
    join(forge, invitation)


def joins_after_its_inviter_lost(how: Callable[[Forge], Any]) -> Step:
    """Return the step in which eve joins with the invitation of somebody who has ceased to be an admin."""

    def step(forge: Forge) -> None:
        invitation = invite(forge, "eve", by="ada")
        forge.emit(ROOT, "agent/ada", how(forge))
        join(forge, invitation)

    return step


def joins_by_the_invitation_before(forge: Forge) -> None:
    invitation = invite(forge, "eve")
    forge.clock.advance(1)
    invite(forge, "eve")
    join(forge, invitation)


def of_another_key(forge: Forge, data: Any) -> Any:
    """Replace the key in a registration, as a thief could who has seen its proof of the token."""
    thief = key_named("thief")
    return msgspec.structs.replace(data, key=thief.public.hex(), proof=thief.prove_possession(forge.id, "eve"))


def node(forge: Forge, author: str = ROOT, **changes: Any) -> None:
    """Register a node without an invitation."""
    forge.emit(author, "agent/n2", registration(invitation_of(forge, "n2", "node"), **{"token_proof": None} | changes))


def let_in(forge: Forge) -> None:
    """Admit a node correctly."""
    join(forge, invite(forge, "n2", "node"))


def key_of_node(forge: Forge, how: Any, **data: Any) -> None:
    """Revoke the key of an existing node."""
    let_in(forge)
    forge.emit(ROOT, "agent/n2", how(key=forge.keys["n2"].public.hex(), **data))


def takes_the_node_over(forge: Forge) -> None:
    """Let an admin replace the key of a node by a key of their own, to sign in the node's name."""
    let_in(forge)
    key = key_named("thief")
    data = KeyRotated(agent="n2", key=key.public.hex(), proof=key.prove_possession(forge.id, "n2"))
    forge.emit("ada", "agent/n2", data)


def token_signs(forge: Forge) -> None:
    """Sign an event other than a registration with the key of an invitation's token."""
    forge.emit("eve", "session/eve", SessionStarted(), key=invite(forge, "eve").key)


def two_of_one_bus_key(forge: Forge) -> None:
    """Invite two agents with the same bus key."""
    nkey = invite(forge, "eve").make_invited().nkey
    adam = invitation_of(forge, "adam").make_invited()
    forge.emit(ROOT, "agent/adam", msgspec.structs.replace(adam, nkey=nkey))


def one_token_twice(forge: Forge) -> None:
    """Sign two invitations with the same token; only their bus keys differ."""
    invitation = invite(forge, "eve").make_invited()
    nkey = invitation_of(forge, "adam").make_invited().nkey
    forge.emit(ROOT, "agent/eve", msgspec.structs.replace(invitation, nkey=nkey))


WHO_IS_LET_IN: Final = (
    WrongLog("an agent invites nobody", "NOT_AUTHORIZED", lambda f: invite(f, "eve", by="alice")),
    WrongLog("the node invites nobody", "NOT_AUTHORIZED", lambda f: invite(f, "eve", "service", by=NODE)),
    WrongLog("nobody is invited who is here", "AGENT_EXISTS", lambda f: invite(f, "alice")),
    WrongLog("nobody is invited as checkpoint", "AGENT_EXISTS", lambda f: invite(f, CHECKPOINT)),
    WrongLog("nobody is invited who was removed", "AGENT_EXISTS", then(removed, lambda f: invite(f, "bob"))),
    WrongLog("an invitation has not expired", "INVALID_FIELD", lambda f: invite(f, "eve", seconds=0)),
    WrongLog(
        "an invitation stands on the stream of its name",
        "INVALID_FIELD",
        lambda f: f.emit(ROOT, "agent/adam", invitation_of(f, "eve").make_invited()),
    ),
    WrongLog("a token is of one invitation", "KEY_EXISTS", one_token_twice),
    WrongLog("the bus key of an invitation is of one name", "KEY_EXISTS", two_of_one_bus_key),
    WrongLog("a token signs no event", "AUTHOR_MISMATCH", token_signs),
    WrongLog("an invitation is used once", "NOT_INVITED", joins_twice),
    WrongLog("an invitation is used in time", "NOT_INVITED", joins_late),
    WrongLog("an invitation that was taken back lets nobody in", "NOT_INVITED", joins_after_it_was_taken_back),
    WrongLog(
        "an invitation ends with its inviter's role",
        "NOT_INVITED",
        joins_after_its_inviter_lost(lambda _: RoleRevoked(agent="ada", role="admin")),
    ),
    WrongLog(
        "an invitation ends with its inviter's key",
        "NOT_INVITED",
        joins_after_its_inviter_lost(lambda f: KeyRevoked(key=f.keys["ada"].public.hex())),
    ),
    WrongLog(
        "an invitation by a key reported compromised lets nobody in",
        "NOT_INVITED",
        joins_after_its_inviter_lost(lambda f: KeyCompromised(key=f.keys["ada"].public.hex(), since=1)),
    ),
    WrongLog(
        "an invitation ends when its inviter is removed",
        "NOT_INVITED",
        joins_after_its_inviter_lost(lambda _: AgentRemoved(agent="ada")),
    ),
    WrongLog("the last invitation of a name counts", "SIGNATURE_INVALID", joins_by_the_invitation_before),
    WrongLog(
        "who was invited has no other roles",
        "NOT_INVITED",
        joins_with(lambda _, data: msgspec.structs.replace(data, roles=["agent", "admin"])),
    ),
    WrongLog(
        "who was invited has the role of the invitation",
        "NOT_INVITED",
        joins_with(lambda _, data: msgspec.structs.replace(data, roles=["reviewer"])),
    ),
    WrongLog(
        "who was invited has each role once",
        "NOT_INVITED",
        joins_with(lambda _, data: msgspec.structs.replace(data, roles=["agent", "agent"])),
    ),
    WrongLog(
        "a token signs for one key", "SIGNATURE_INVALID", joins_with(of_another_key, lambda _: key_named("thief"))
    ),
    WrongLog(
        "who was invited signs with the key that it registers",
        "AUTHOR_MISMATCH",
        joins_with(lambda _, data: data, lambda _: key_named("thief")),
    ),
    WrongLog("nobody joins who was not invited", "NOT_INVITED", lambda f: join(f, invitation_of(f, "eve"))),
    WrongLog("an agent takes no invitation back", "NOT_AUTHORIZED", taken_back("alice")),
    WrongLog("an invitation that was used is not taken back", "TRANSITION_NOT_ALLOWED", taken_back(ROOT, is_used=True)),
    WrongLog(
        "what nobody was invited by is not taken back",
        "NOT_INVITED",
        lambda f: f.emit(ROOT, "agent/eve", AgentInvitationRevoked(name="eve")),
    ),
)

WHO_IS_A_NODE: Final = (
    WrongLog("an admin invites no node", "NOT_AUTHORIZED", lambda f: invite(f, "n2", "node", by="ada")),
    WrongLog("an admin registers no node", "NOT_AUTHORIZED", lambda f: node(f, "ada")),
    WrongLog("the node registers no node", "NOT_AUTHORIZED", lambda f: node(f, NODE)),
    WrongLog("a node has no other role", "INVALID_FIELD", lambda f: node(f, roles=["node", "admin"])),
    WrongLog("no node is invited with another role", "INVALID_FIELD", lambda f: invite(f, "n2", "node", "service")),
    WrongLog(
        "a node has a checkpoint key", "INVALID_FIELD", lambda f: node(f, checkpoint_key=None, checkpoint_proof=None)
    ),
    WrongLog("an agent has no checkpoint key", "INVALID_FIELD", lambda f: node(f, roles=["agent"])),
    WrongLog("a checkpoint key is the node's", "SIGNATURE_INVALID", lambda f: node(f, checkpoint_proof="00" * 64)),
    WrongLog("a checkpoint key comes with a proof", "SIGNATURE_INVALID", lambda f: node(f, checkpoint_proof=None)),
    WrongLog(
        "a checkpoint key is of one node",
        "KEY_EXISTS",
        lambda f: node(f, checkpoint_key=f.keys[CHECKPOINT].public.hex()),
    ),
    WrongLog(
        "a checkpoint key is not an agent's",
        "KEY_EXISTS",
        lambda f: node(f, checkpoint_key=f.keys["alice"].public.hex()),
    ),
    WrongLog(
        "a checkpoint key is not the node's own",
        "KEY_EXISTS",
        lambda f: node(f, checkpoint_key=key_named("n2").public.hex()),
    ),
    WrongLog(
        "nobody is made a node",
        "NOT_AUTHORIZED",
        lambda f: f.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role="node")),
    ),
    WrongLog(
        "a node is given no role",
        "NOT_AUTHORIZED",
        then(let_in, lambda f: f.emit(ROOT, "agent/n2", RoleGranted(agent="n2", role="agent"))),
    ),
    WrongLog(
        "a node stays one",
        "NOT_AUTHORIZED",
        then(let_in, lambda f: f.emit(ROOT, "agent/n2", RoleRevoked(agent="n2", role="node"))),
    ),
    WrongLog(
        "a node works on nothing",
        "NOT_AUTHORIZED",
        then(let_in, lambda f: f.emit("n2", "session/n2", SessionStarted())),
    ),
    WrongLog("the key of a node is not revoked", "NOT_AUTHORIZED", lambda f: key_of_node(f, KeyRevoked)),
    WrongLog(
        "the key of a node is replaced before it is reported compromised",
        "NOT_AUTHORIZED",
        lambda f: key_of_node(f, KeyCompromised, since=1),
    ),
    WrongLog("the lost key of a node is replaced by root", "NOT_AUTHORIZED", takes_the_node_over),
)
