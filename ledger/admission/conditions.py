"""What several rules ask of whoever signed: an agent that is known, and a role."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledger.errors import Refused
from ledger.events.fields import EventData

if TYPE_CHECKING:
    from ledger.admission.state import Layer
    from ledger.events.body import Event
    from ledger.lifecycle.authority import AgentRecord

T = TypeVar("T", bound=EventData)


def typed(event: Event, wanted: type[T]) -> T:
    """Return the event's data as its kind's type."""
    assert isinstance(event.data, wanted)  # noqa: S101 - the table pairs each kind with its data type
    return event.data


def require_role(event: Event, state: Layer, *roles: str) -> None:
    """Refuse an author with none of ``roles``.

    Raises:
        Refused: ``NOT_AUTHORIZED``.
    """
    agent = state.agent(event.author)
    if agent is None or agent.roles.isdisjoint(roles):
        wanted = " or ".join(roles)
        raise Refused("NOT_AUTHORIZED", f"{event.kind} needs the role {wanted}; {event.author} lacks it", role=wanted)


def require_registered_role(event: Event, state: Layer) -> None:
    """Refuse an author without a role that works.

    Raises:
        Refused: ``NOT_AUTHORIZED``.
    """
    agent = state.agent(event.author)
    if agent is None or not agent.roles & {"agent", "reviewer", "human", "service"}:
        raise Refused("NOT_AUTHORIZED", f"{event.author} has no role that works: grant it `agent`", name=event.author)


def known_agent(state: Layer, name: str) -> AgentRecord:
    """Return a registered agent.

    Raises:
        Refused: ``AGENT_UNKNOWN``.
    """
    agent = state.agent(name)
    if agent is None:
        raise Refused("AGENT_UNKNOWN", f"there is no agent {name}: run `baton agent add {name}`", name=name)
    return agent
