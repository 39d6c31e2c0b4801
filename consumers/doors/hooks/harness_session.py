"""The Baton session that stands for a session of a harness.

Its id is the harness's name and its session's id, so that every hook of that session finds it without remembering
anything. A session of a harness that goes on after its Baton session was ended gets the next one (``ID.2``), which
resumes the earlier.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.session import SessionStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.author import Author
    from ledger.client import Ask

continued_max: Final = 50
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_hash_digits: Final = 32


def session_name(harness: str, session_id: object) -> str | None:
    """Return the id of the first Baton session of a harness's session; None for what is no session id."""
    if not isinstance(session_id, str) or not session_id:
        return None
    if _PLAIN.fullmatch(session_id) is None:
        session_id = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_hash_digits]
    return f"{harness}-{session_id}"


def find_open(view: Ask, name: str) -> tuple[dict[str, Any] | None, str, str]:
    """Return the open session (None: there is none yet), the id of the next one, and the id that it resumes."""
    earlier = ""
    for number in range(1, continued_max + 1):
        numbered = name if number == 1 else f"{name}.{number}"
        try:
            found = view("sessions.show", {"id": f"session/{numbered}"})
        except Refused as refusal:
            if refusal.code not in {"NOT_FOUND", "REF_AMBIGUOUS"}:
                raise
            return None, numbered, earlier
        if found["id"] != numbered:  # only the beginning of another id
            return None, numbered, earlier
        if found["status"] == "open":
            return found, numbered, earlier
        earlier = numbered
    raise Refused("TRANSITION_NOT_ALLOWED", f"{name} was ended {continued_max} times: `baton session start` goes on")


def open_session(author: Callable[[], Author], view: Ask, agent: str, name: str) -> str:
    """Return the id of the agent's open session, started now if it was not; only then is the author asked for.

    Raises:
        Refused: the key cannot be used, or the session is somebody else's.
    """
    found, numbered, earlier = find_open(view, name)
    if found is None:
        data = SessionStarted(ai_id=agent, resumes=earlier)
        author().emit(Draft(stream=f"session/{numbered}", data=data))
    elif found["author"] != agent:
        raise Refused("NOT_AUTHORIZED", f"session {numbered} is {found['author']}'s, not {agent}'s")
    return numbered


def to_save(view: Ask, agent: str, name: str | None, present: str | None) -> dict[str, Any] | None:
    """Return the session in which something was recorded since the agent's last snapshot of it; None for none.

    It is the harness's own, else the one named (``BATON_SESSION``), else the agent's only open one.
    """
    found = _its_session(view, agent, name, present)
    if found is None or found["author"] != agent or not any(found["counts"].values()):
        return None
    taken = view("snapshots.list", {"session_id": found["id"], "author": agent, "limit": 1})["snapshots"]
    return None if taken and taken[0]["event_index"] > found["updated_index"] else found


def _its_session(view: Ask, agent: str, name: str | None, present: str | None) -> dict[str, Any] | None:
    if name is not None:
        found, _, earlier = find_open(view, name)
        if found is not None or earlier:
            return found or view("sessions.show", {"id": earlier})
    if present is not None:
        try:
            return view("sessions.show", {"id": present})
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
    opened = view("sessions.list", {"author": agent, "status": "open", "limit": 1})
    return view("sessions.show", {"id": opened["sessions"][0]["id"]}) if opened["total"] == 1 else None
