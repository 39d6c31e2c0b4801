"""Who may do what with a handoff: the machine decides on states, these rules on who exists and has which role (002)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.admission.conditions import known_agent, require_registered_role, require_role
from ledger.admission.dependencies import check_cycle, check_dependencies
from ledger.errors import Refused
from ledger.events import handoff
from ledger.events.imported import RecordImported
from ledger.lifecycle import handoff as handoff_life
from ledger.lifecycle.handoff import HandoffState

if TYPE_CHECKING:
    from ledger.admission.state import Layer
    from ledger.events.body import Event


def decide_handoff(event: Event, state: Layer, life: object) -> HandoffState:
    """Return the handoff after ``event``.

    Raises:
        Refused: the codes of the machine, and those of roles, dependencies and cycles.
    """
    require_registered_role(event, state)
    assert life is None or isinstance(life, HandoffState)  # noqa: S101 - a stream's sort fixes its life
    after = handoff_life.transition(life, event)
    match event.data:
        case handoff.HandoffCreated() | handoff.HandoffAmended():
            _check_parties(event, event.data, state)
            check_cycle(event, after.depends_on, state)
        case RecordImported():
            check_cycle(event, after.depends_on, state)
        case handoff.HandoffClaimed():
            check_dependencies(event, after, state)
        case handoff.HandoffReady():
            require_role(event, state, "service")
            check_dependencies(event, after, state)
        case handoff.HandoffSuperseded():
            if state.stream(f"handoff/{event.data.by}") is None:
                raise Refused("NOT_FOUND", f"there is no handoff {event.data.by} to take its place", by=event.data.by)
        case (
            handoff.HandoffApproved()
            | handoff.HandoffRejected()
            | handoff.HandoffCriterionWaived()
            | handoff.HandoffVerified()
            | handoff.HandoffChangesRequested()
        ):
            _require_reviewing_role(state, event.author)
            _require_no_import_of_ones_own(event, after, state)
        case _:
            pass  # the machine alone decides
    return after


def _require_reviewing_role(state: Layer, name: str) -> None:
    if not known_agent(state, name).roles & {"reviewer", "human"}:
        raise Refused("NOT_AUTHORIZED", f"{name} is neither reviewer nor human", name=name)


def _require_no_import_of_ones_own(event: Event, after: HandoffState, state: Layer) -> None:
    """Who imported a handoff acts for its sender: only a human may confirm his own import (as he may his own work)."""
    if after.importer and event.author in after.senders and "human" not in known_agent(state, event.author).roles:
        raise Refused(
            "SELF_APPROVAL",
            f"{event.author} sent or imported {event.name}: another reviewer, or a human, must confirm it",
            reviewer=after.reviewer,
        )


def _check_parties(event: Event, data: handoff.HandoffCreated | handoff.HandoffAmended, state: Layer) -> None:
    known_agent(state, data.to)
    if data.reviewer is not None:
        _require_reviewing_role(state, data.reviewer)
    elif "human" not in known_agent(state, event.author).roles:
        raise Refused("REVIEWER_REQUIRED", f"{event.author} is no human: name a reviewer", author=event.author)
