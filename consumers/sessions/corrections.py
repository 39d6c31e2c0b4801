"""Taking back what a session recorded, or saying what an unknown came to: also after the session's end.

One signed event on the session's stream, which its author may add, or an admin (``ledger.admission.rules``). The report
that stands follows when it is read (``projections.reports.corrections``); its copies beside the log are written anew.
"""

from __future__ import annotations

from typing import Any

from consumers.sessions.copies import with_copies
from ledger.author import Author, Draft
from ledger.client import Ask
from ledger.config import Settings
from ledger.errors import Refused
from ledger.events import session as kinds


def correction(ask: Ask, ref: str, words: str, *, is_resolved: bool) -> tuple[str, kinds.Correction]:
    """Return the session's stream, and what corrects the event ``ref``: a number, an id, or the beginning of one.

    Raises:
        Refused: ``NOT_FOUND``; ``USAGE`` for an event that cannot be corrected so; ``TRANSITION_NOT_ALLOWED`` where it
            is corrected already.
    """
    if not words.strip():
        raise Refused("USAGE", "say why it is taken back, or what it came to: whoever reads it goes on from that")
    event = ask("catalog.show", {"ref": ref})
    index, stream = event["event_index"], event["stream"]
    family, _, name = stream.partition("/")
    session = ask("sessions.show", {"id": name}) if family == "session" else {}
    logged = ((kind, one) for kind in ("findings", "dead_ends", "unknowns") for one in session.get(kind, ()))
    match = next((pair for pair in logged if pair[1]["event_index"] == index), None)
    if match is None:
        message = f"entry {index} ({event['kind']}) is no finding, dead end or unknown: `baton session show` has them"
        raise Refused("USAGE", message)
    kind, one = match
    if (kind == "unknowns") != is_resolved:
        way = f"resolve {index} --with TEXT" if kind == "unknowns" else f"retract {index} --reason TEXT"
        raise Refused("USAGE", f"entry {index} is one of the {kind.replace('_', ' ')}: `baton session {way}`")
    if (done := one["correction"]) is not None:
        verb = done["kind"].partition(".")[2]
        message = f"entry {index} was {verb} by {done['author']} in entry {done['event_index']} already"
        raise Refused("TRANSITION_NOT_ALLOWED", message, entry=done["event_index"])
    if is_resolved:
        return stream, kinds.UnknownResolved(target=event["id"], answer=words)
    made = kinds.FindingRetracted if kind == "findings" else kinds.DeadEndRetracted
    return stream, made(target=event["id"], reason=words)


def correct(
    author: Author, ask: Ask, settings: Settings, ref: str, words: str, *, is_resolved: bool = False
) -> dict[str, Any]:
    """Correct an event of a session, and return ``{"id", "kind", "event_index", "target", "stored", "warnings"}``.

    Raises:
        Refused: as ``correction``; ``NOT_AUTHORIZED`` for who is neither the session's author nor an admin.
    """
    stream, data = correction(ask, ref, words, is_resolved=is_resolved)
    (accepted,) = author.emit(Draft(stream=stream, data=data))
    # If we crash here, the correction stands, and copies of the report lack it until `baton notes sync`.
    name = stream.removeprefix("session/")
    answer = {"id": name, "event_index": accepted.index, "target": data.target, "stored": [], "warnings": []}
    (session,) = ask("reports.sessions", {"id": name, "limit": 1})["sessions"]
    if session["report"] is None or session["imported"] is not None:
        return answer
    copied = with_copies(ask, settings, {"session_id": name, "storage_location": "", "warnings": []})
    return answer | {part: copied[part] for part in ("stored", "warnings")}
