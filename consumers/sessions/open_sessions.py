"""Chooses an agent's open session."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from deedbook.ledger.client.client import Ask, every_row

SWEPT: Final = "never closed: swept"  # the summary of a session that a sweep ended; it says nothing about the work
candidates_max: Final = 10


class SessionChoice(NamedTuple):
    """The id of the chosen session, at most ten of the agent's open sessions, and how many there are.

    The id is None if no session is open, or if the agent alternates between several.
    """

    session_id: str | None
    candidates: list[dict[str, Any]]
    total: int


def choose_session(ask: Ask, agent: str) -> SessionChoice:
    """Return the agent's newest open session, for a call that names none and has no ``DEEDBOOK_SESSION``.

    It is chosen only if no older open session has an event since it began. Otherwise two programs act as this agent, or
    one program alternates between sessions, and we cannot know which one the call is for. An event that was signed in
    the wrong session cannot be moved.
    """
    rows = list(every_row(ask, "sessions.list", {"author": agent, "status": "open"}))
    is_clear = bool(rows) and all(row["updated_index"] < rows[0]["started_index"] for row in rows[1:])
    return SessionChoice(rows[0]["id"] if is_clear else None, rows[:candidates_max], len(rows))
