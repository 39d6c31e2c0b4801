"""The life of a session: its owner writes until it ends; it is reported on, and corrected, afterwards too.

What is corrected may be imported as well, or of an agent who is gone: so an admin may, too (``admission.rules``).
Everybody else says otherwise in a session of his own.

What another tool recorded is a session of its own, to which its importer alone adds: it speaks for no agent of here.
"""

from __future__ import annotations

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle import require_imported


class SessionState(msgspec.Struct, frozen=True, array_like=True, tag="session"):
    """Who owns the session, whether it has ended, and whether it was imported."""

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
        hint = f"start a session of your own that resumes {event.name}"
        raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} was imported: {hint}", status="imported")
    if isinstance(event.data, kinds.SessionStarted):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} was started already: choose another id")
        return SessionState(event.author)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} was never started: emit session.started first")
    if event.author != state.owner:
        message = f"session {event.name} belongs to {state.owner}: start one of your own"
        raise Refused("NOT_AUTHORIZED", message, owner=state.owner)
    if isinstance(event.data, kinds.ReportGenerated):
        return state
    if state.is_ended:
        raise Refused("TRANSITION_NOT_ALLOWED", f"session {event.name} has ended: start another that resumes it")
    return SessionState(state.owner, is_ended=True) if isinstance(event.data, kinds.SessionEnded) else state
