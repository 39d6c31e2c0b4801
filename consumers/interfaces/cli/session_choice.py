"""Chooses the session of a verb, and appends its events so that a refusal says what to do.

If a call names no session, the session is the one in ``DEEDBOOK_SESSION``, or ``choose_session`` chooses among the
agent's open sessions. A verb that writes does not query a view first, because that costs more than the append. Only if
the gate refuses is the session looked up: the text may be the beginning of its id, or the error needs its details.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.arguments import id_and
from deedbook.consumers.interfaces.cli.guesses import TEXT_ARGUMENTS
from deedbook.consumers.interfaces.cli.output import when
from deedbook.consumers.interfaces.cli.verbs import ExtraWords
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.consumers.sessions.open_sessions import SessionChoice, choose_session
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.home.environment import present_session

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted

id_chars_min: Final = 8  # as many as lists show
_task_cells_max: Final = 60
UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def session_and(app: App, arguments: Sequence[str], what: str) -> tuple[str, str]:
    """Return the session and WHAT from the arguments ``[ID] WHAT``."""
    if len(arguments) > 2 and _is_named(app, arguments[0]):
        words = list(arguments[1:])
        raise ExtraWords(click.get_current_context(), [arguments[0]], words, f"{what} was read as {len(words)} words")
    id_, text = id_and(arguments, what)
    if id_ is None and _is_session(app, text):
        raise Refused("USAGE", f"{text} is a session: {what} is missing")
    if id_ is not None and what in TEXT_ARGUMENTS and " " not in id_ + text and not _is_named(app, id_):
        message = f"{id_} is no session (an ID needs at least {id_chars_min} of its characters)"
        raise ExtraWords(click.get_current_context(), [], list(arguments), message)
    return chosen_session(app, id_), text


def chosen_session(app: App, session_id: str | None) -> str:
    """Return the session to use: ``session_id``, that of ``DEEDBOOK_SESSION``, or the choice of ``choose_session``."""
    named = session_id if session_id is not None else present_session()
    if named is not None:
        return named.removeprefix("session/")
    agent = app.settings().agent
    if agent is None:
        raise Refused(
            "USAGE", "no session is named: give its ID, set DEEDBOOK_SESSION, or add --as NAME for the open one"
        )
    meant = choose_session(app.query_with, agent)
    if meant.session_id is not None:
        return meant.session_id
    if not meant.candidates:
        last = app.query("sessions.list", author=agent, status="ended", limit=1)["items"]
        ended = f"\n  {_end_of(app, last[0])}" if last else ""
        message = f"{agent} has no open session: `deed session start --as {agent}` opens one{ended}"
        raise Refused("NOT_FOUND", message)
    raise _several(agent, meant)


def _is_session(app: App, word: str) -> bool:
    """Return whether ``word``, the only argument, names a session. Then the text to record is missing."""
    named = present_session()
    if named is not None or " " in word or "\n" in word:
        return word.removeprefix("session/") == named
    try:
        return bool(word.removeprefix("session/") == app.query("sessions.show", id=word)["id"])
    except Refused:
        return False  # no session, or an ambiguous beginning of an id: treat the word as text


def _is_named(app: App, word: str) -> bool:
    """Return whether ``word``, which precedes a single word, certainly names a session and does not begin the text."""
    try:
        id_ = app.query("sessions.show", id=word)["id"]
    except DeedbookError:
        return False
    return len(word.removeprefix("session/")) >= min(id_chars_min, len(id_))


def append(app: App, session_id: str, *data: EventData, idem: str | None = None) -> tuple[str, list[Accepted]]:
    """Sign and append events of a session; return its whole id and the accepted events."""
    author = app.author()

    def emit(name: str) -> list[Accepted]:
        return author.emit(*(Draft(stream=f"session/{name}", data=event, idem=idem) for event in data))

    try:
        return session_id, emit(session_id)
    except Refused as refusal:
        if refusal.code not in {"TRANSITION_NOT_ALLOWED", "NOT_AUTHORIZED", "NOT_FOUND"}:
            raise
        row = app.query("sessions.show", id=session_id)
        name = str(row["id"])
        if UUID.fullmatch(name) is None:  # lists on terminals show only the beginning of a UUID
            by_whole_id(row, "session", session_id)
        if name == session_id:
            raise _with_advice(app, refusal, row) from refusal
    try:
        return name, emit(name)
    except Refused as refusal:
        raise _with_advice(app, refusal, row) from refusal


def _with_advice(app: App, refusal: Refused, row: dict[str, Any]) -> Refused:
    command = f"`deed session start --resumes {quote(row['id'])} --as {app.acting()}`"
    if refusal.code == "NOT_AUTHORIZED" and "allowed" in refusal.details:
        advice = command
    elif refusal.code == "TRANSITION_NOT_ALLOWED":
        ended = f"\n  {_end_of(app, row)}" if row["status"] == "ended" else ""
        advice = f"{command}{ended}"
    else:
        return refusal
    return Refused(refusal.code, f"{refusal.message}: {advice}", **refusal.details)


def _end_of(app: App, row: dict[str, Any]) -> str:
    """Return a text about the end of a session, which only its owner can end, and the command that shows its report."""
    try:
        app.query("reports.show", id=row["id"])
    except Refused:
        shows = f"it has no report; `deed session show {quote(row['id'])}` shows what it recorded"
    else:
        shows = f"`deed report show {quote(row['id'])}` shows its report"
    return f"{row['author']} ended {row['id']} at {when(row['ended_ms'])} (entry {row['ended_index']}): {shows}"


def _several(agent: str, meant: SessionChoice) -> Refused:
    names = [session["id"] for session in meant.candidates]
    lines = [f"\n  {session['id']}  {sanitize_line(session['task'])[:_task_cells_max]}" for session in meant.candidates]
    more = f"\n  and {meant.total - len(names)} more" if meant.total > len(names) else ""
    advice = f"give the ID of one, or set DEEDBOOK_SESSION{''.join(lines)}{more}"
    return Refused("REF_AMBIGUOUS", f"{agent} has {meant.total} open sessions: {advice}", candidates=names)
