"""The life of a session: its owner writes until it ends; its report may be made, and made again, afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ledger.errors import Refused
from ledger.events import session as kinds
from ledger.events.report import ReportGenerated

if TYPE_CHECKING:
    from ledger.events.body import Event


class SessionState(msgspec.Struct, frozen=True, array_like=True, tag="session"):
    """Who owns the session, and whether it has ended."""

    owner: str
    is_ended: bool = False


def transition(state: SessionState | None, event: Event) -> SessionState:
    """Return the state after ``event``.

    Raises:
        Refused: ``TRANSITION_NOT_ALLOWED`` or ``NOT_AUTHORIZED``.
    """
    if isinstance(event.data, kinds.SessionStarted):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} was started already")
        return SessionState(event.author)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} was never started: emit session.started first")
    if event.author != state.owner:
        raise Refused("NOT_AUTHORIZED", f"session {event.name} belongs to {state.owner}", owner=state.owner)
    if isinstance(event.data, ReportGenerated):
        return state
    if state.is_ended:
        raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} has ended")
    return SessionState(state.owner, isinstance(event.data, kinds.SessionEnded))
