"""The agents whose keys tools and hooks may use: their signature must never mean that a person decided."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.authority import RESERVED_NAMES

NEVER_SIGNED_AS: Final = ("human", "admin")
"""Roles whose signature means that a person decided. No tool signs with them."""


def roles_of(client: Client, name: str) -> tuple[str, ...] | None:
    """Return the current roles of an agent; None if it is not registered."""
    return next((agent.roles for agent in client.agents() if agent.name == name), None)


def check_may_sign(name: str, roles: tuple[str, ...] | None, before: str = "") -> None:
    """Refuse an agent that is not registered or that no tool may sign as; ``before`` begins the message.

    Raises Refused: ``AGENT_UNKNOWN``, ``NOT_AUTHORIZED``.
    """
    before = before and f"{before}, but "
    if roles is None:
        advice = f"register it with `deed agent add {name} --role agent`, or name another with --as NAME"
        raise Refused("AGENT_UNKNOWN", f"{before}{name!r} is not registered in this ledger: {advice}", name=name)
    forbidden = [role for role in NEVER_SIGNED_AS if role in roles]
    if name in RESERVED_NAMES or forbidden:
        reason = f"{name} has the role {forbidden[0]}" if forbidden else f"{name} is the ledger's own key"
        advice = "start the server as an agent with `deed mcp --as NAME`; a person signs with `deed` in a terminal"
        message = f"{before}{reason}, and tools never sign as {name}: {advice}"
        raise Refused("NOT_AUTHORIZED", message, name=name, roles=sorted(roles))
