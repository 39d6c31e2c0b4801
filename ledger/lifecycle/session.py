"""The state machine of a session: its owner writes until it ends, and may report and correct it afterwards too.

An admin may also correct it (``admission.rules``), because the session may be imported or its agent gone. Other agents
contradict it in a session of their own.

Records of another tool form a session of their own. Only its importer adds to it, and it speaks for no agent here.
"""

from __future__ import annotations

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle import require_imported


class SessionState(msgspec.Struct, frozen=True, array_like=True, tag="session"):
    """The session's owner, whether it has ended, and whether it was imported."""

    owner: str
    is_ended: bool = False
    is_imported: bool = False


def transition(state: SessionState | None, event: Event) -> SessionState:
    """Return the state after ``event``. Raises Refused: ``TRANSITION_NOT_ALLOWED`` or ``NOT_AUTHORIZED``."""
    if isinstance(event.data, RecordImported):
        require_imported(event, None if state is None else (state.owner, state.is_imported))
        return SessionState(event.author, is_imported=True)
    if state is not None and isinstance(event.data, kinds.Correction):
        return state
    if state is not None and state.is_imported:
        message = f"session {event.name} was imported and is read-only: start your own session that resumes it"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status="imported")
    if isinstance(event.data, kinds.SessionStarted):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} already exists: choose another id")
        return SessionState(event.author)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"there is no session {event.name}: start it first (session.started)")
    if event.author != state.owner:
        message = f"session {event.name} belongs to {state.owner}: start a session of your own"
        raise Refused("NOT_AUTHORIZED", message, owner=state.owner)
    if isinstance(event.data, kinds.ReportGenerated):
        return state
    if state.is_ended:
        message = f"session {event.name} has ended: start another session that resumes it"
        raise Refused("TRANSITION_NOT_ALLOWED", message)
    return SessionState(state.owner, is_ended=True) if isinstance(event.data, kinds.SessionEnded) else state
