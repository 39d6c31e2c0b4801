"""Invitations for tests. Their tokens, and the keys of the agents that join, are the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3
from building import key_named

from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from building import Actors

    from deedbook.ledger.events.authority import AgentRegistered, Role
    from deedbook.ledger.format.identity import Key

SERVER = "nats://127.0.0.1:4222"


def invitation_of(actors: Actors, name: str, *roles: Role, seconds: float = 3600) -> Invitation:
    """Return an invitation that is not signed into the ledger yet; by default for an agent."""
    token = blake3(f"token of {name} at {actors.clock.now_ms}".encode()).digest()
    root = fingerprint(actors.keys[ROOT].public)
    expires_ms = actors.clock.now_ms + int(seconds * 1000)
    return Invitation(root, name, list(roles or ("agent",)), token, [SERVER], expires_ms)


def invite(actors: Actors, name: str, *roles: Role, by: str = ROOT, **options: Any) -> Invitation:
    """Return an invitation that ``by`` signed into the ledger."""
    invitation = invitation_of(actors, name, *roles, **options)
    actors.emit(by, f"agent/{name}", invitation.make_invited())
    return invitation


def registration(invitation: Invitation, key: Key | None = None, **changes: Any) -> AgentRegistered:
    """Return the data of the event by which an invited agent registers itself. ``changes`` replace its fields."""
    name = invitation.name
    checkpoint = checkpoint_key_of(name) if "node" in invitation.roles else None
    registered = invitation.make_registered(key or key_named(name), checkpoint=checkpoint)
    return msgspec.structs.replace(registered, **changes)


def join(actors: Actors, invitation: Invitation, **changes: Any) -> Key:
    """Register the invited agent, and return its key. ``changes`` replace fields of the data that it signs."""
    name = invitation.name
    key = actors.keys.setdefault(name, key_named(name))
    actors.emit(name, f"agent/{name}", registration(invitation, **changes), key=key)
    return key


def checkpoint_key_of(node: str) -> Key:
    """Return the checkpoint key of an invited node."""
    return key_named(f"checkpoints of {node}")
