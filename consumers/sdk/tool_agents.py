"""The agents whose keys tools and hooks may use: their signature must never mean that a person decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.lifecycle.authority import RESERVED_NAMES

NEVER_SIGNED_AS: Final = ("human", "admin")
"""Roles whose signature means that a person decided. No tool signs with them."""


def roles_of(client: Client, name: str) -> tuple[str, ...] | None:
    """Return the current roles of an agent; None if it is not registered."""
    return next((agent.roles for agent in client.agents() if agent.name == name), None)


def names_of(client: Client) -> list[str]:
    """Return the names of the agents that tools may sign as."""
    excluded = {*NEVER_SIGNED_AS}
    return [
        agent.name for agent in client.agents() if agent.name not in RESERVED_NAMES and not excluded & {*agent.roles}
    ]


def check_may_sign(name: str, roles: tuple[str, ...] | None, before: str = "", *, names: Iterable[str] = ()) -> None:
    """Refuse an agent that is not registered or that no tool may sign as; ``before`` begins the message.

    For an unknown agent the message suggests similar ``names``.

    Raises Refused: ``AGENT_UNKNOWN``, ``NOT_AUTHORIZED``.
    """
    before = before and f"{before}, but "
    if roles is None:
        others = did_you_mean(near(name, names)).removeprefix(": ")
        advice = f"register it with `deed agent add {name} --role agent`, or name another with --as NAME"
        message = f"{before}{name!r} is not registered in this ledger: {others and f'{others} Else '}{advice}"
        raise Refused("AGENT_UNKNOWN", message, name=name)
    forbidden = [role for role in NEVER_SIGNED_AS if role in roles]
    if name in RESERVED_NAMES or forbidden:
        reason = f"{name} has the role {forbidden[0]}" if forbidden else f"{name} is the ledger's own key"
        advice = "start the server as an agent with `deed mcp --as NAME`; a person signs with `deed` in a terminal"
        message = f"{before}{reason}, and tools never sign as {name}: {advice}"
        raise Refused("NOT_AUTHORIZED", message, name=name, roles=sorted(roles))
