"""The work of each hook, in a child process that the supervisor ends (``supervisor``).

SessionStart opens a Deedbook session for the harness's session. It prints a brief, the text of `deed prime`, where the
conversation has none: at startup, after clear and after compaction, not on resume. If the key is locked or the disk is
full, it still prints the brief. If the ledger cannot be read, it prints only the page for agents.

The events before compaction, at the end of a turn and at the end of a session save silently: they write a
``snapshot.taken`` of the session if something was recorded since the last one. The end of the harness's session also
ends the Deedbook session: otherwise all sessions would stay open, and a verb could not find its own. The agent's
POSTFLIGHT or `deed session sweep` makes a missing report.

The id of the Deedbook session is the harness's name and the id of its session, so that every hook of that session finds
it without storing anything. If the harness's session continues after its Deedbook session was ended, it gets the next
one (``ID.2``), which resumes the earlier one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.interfaces.followed_redactions import follow_redactions
from deedbook.consumers.interfaces.hooks.harnesses import COMMAND, HARNESSES, Harness, brief_sources, own_command
from deedbook.consumers.interfaces.hooks.page import budget_tokens
from deedbook.consumers.interfaces.hooks.prime import page_alone, prime
from deedbook.consumers.interfaces.hooks.reminders import at_stop, before_edit
from deedbook.consumers.interfaces.hooks.supervisor import Work, log_failure
from deedbook.consumers.reasoning.snapshots.take import take_snapshot
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import origin_of
from deedbook.consumers.sdk.tool_agents import check_may_sign, roles_of
from deedbook.consumers.sessions.open_sessions import choose_session
from deedbook.consumers.sessions.report import report_at_end
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import SessionEnded, SessionStarted
from deedbook.ledger.home import trust
from deedbook.ledger.home.environment import environment_variable, present_session
from deedbook.ledger.home.location import resolved
from deedbook.ledger.home.settings import check_folder
from deedbook.projections.answers.checked import ask

brief_max_chars: Final = 9_800
"""Claude Code cuts what a hook prints at 10,000 characters."""

_budget_step: Final = 0.8
continued_max: Final = 50
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_hash_digits: Final = 32


def respond_to(work: Work) -> bytes:
    """Do the work of an event; return the output for the harness, usually nothing."""
    harness = HARNESSES.get(work.call.harness)
    action = None if harness is None else harness.events.get(work.event)
    if harness is None or action is None:
        _log(work, Refused("USAGE", f"no hook of {work.call.harness} handles the event {work.event!r}"))
        return b""
    try:
        check_folder(resolved(work.home), is_named=work.call.home is not None)
        trust.demand(work.home)  # first, before anything in the folder is opened
        ledger = Ledger(work.call.agent, home=work.home, server=work.call.server)
        try:
            trust.demand(work.home, ledger.client)
        except BaseException:
            ledger.close()
            raise
    except DeedbookError as error:
        if error.code == "NOT_TRUSTED":
            return _answer(work, lambda: trust.UNTRUSTED) if action == "start" else b""

        _log(work, error)
        return _answer(work, partial(page_alone, error)) if action == "start" else b""
    with ledger:
        if action == "edit":
            return _told(work, lambda session: before_edit(ledger, work, session))
        for line in follow_redactions(ledger.client, ledger.settings).lines:
            log_failure(work.home, work.call.harness, work.event, "REDACTED", line)
        if action != "start":
            _save(ledger, work, is_end=action == "end")
            return _told(work, lambda session: at_stop(ledger, harness, work, session)) if action == "save" else b""
        return _answer(work, partial(_brief, ledger, work, _opened(ledger, harness, work)))


def _answer(work: Work, brief: Callable[[], str]) -> bytes:
    """Return the answer to a start: a brief if the conversation has none."""
    source = work.payload.get("source", "startup")
    if not (isinstance(source, str) and source in brief_sources):
        return b""
    answer = {"hookSpecificOutput": {"hookEventName": work.event, "additionalContext": brief()}}
    return json.dumps(answer).encode() + b"\n"


def _opened(ledger: Ledger, harness: Harness, work: Work) -> str | None:
    """Return the id of the open session for the harness's session; None if it cannot be opened."""
    name = session_name(harness.name, work.payload.get("session_id"))
    if name is None:
        return None
    try:
        session = open_session(partial(_author, ledger, work.call.agent), ledger.client.view, work.call.agent, name)
        if harness.has_env_file:
            _export(work, session)
    except (DeedbookError, OSError) as error:
        _log(work, error)
        return None
    return session


def _author(ledger: Ledger, agent: str) -> Author:
    """Return the author that signs. Nobody has checked the agent in DEEDBOOK_AGENT, which shared settings may set."""
    check_may_sign(agent, roles_of(ledger.client, agent))
    return ledger.author()


def _export(work: Work, session: str) -> None:
    """Set session, agent and ledger as variables of the session's shell commands, so that verbs need no options.

    If these commands would not find `deed`, its folder becomes the last one on PATH.
    """
    file = environment_variable("CLAUDE_ENV_FILE")
    if not file:
        return
    variables = {"DEEDBOOK_SESSION": session, "DEEDBOOK_AGENT": work.call.agent, "DEEDBOOK_SERVER": work.call.server}
    variables["DEEDBOOK_HOME"] = None if work.call.home is None else str(work.call.home)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if value is not None]
    if shutil.which(COMMAND) is None and (folder := Path(own_command()).parent).is_absolute():
        lines.append(f'export PATH="$PATH":{shlex.quote(str(folder))}\n')
    # Appended, because other hooks write to it, too; the documentation of SessionStart asks for it.
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, "".join(lines).encode())
    finally:
        os.close(descriptor)


def _brief(ledger: Ledger, work: Work, session: str | None) -> str:
    budget = budget_tokens
    try:
        while True:
            client = ledger.client
            origin = origin_of(client)
            view = partial(ask, client)
            agent, folder = work.call.agent, work.home.parent
            brief = prime(
                view,
                client.get_blob,
                origin,
                agent=agent,
                session=session,
                budget=budget,
                folder=folder,
                home=work.home,
            )
            if len(brief.text) <= brief_max_chars:
                return brief.text
            budget = int(budget * _budget_step)
    except DeedbookError as error:
        _log(work, error)
        return page_alone(error)


def _told(work: Work, answer: Callable[[str], bytes]) -> bytes:
    """Return the answer for a session of the harness; nothing if anything fails."""
    name = session_name(work.call.harness, work.payload.get("session_id"))
    try:
        return b"" if name is None else answer(name)
    except (DeedbookError, OSError) as error:
        _log(work, error)
        return b""


def _save(ledger: Ledger, work: Work, *, is_end: bool) -> None:
    agent = work.call.agent
    try:
        name = session_name(work.call.harness, work.payload.get("session_id"))
        own = None if name is None or not is_end else find_open(ledger.client.view, name)[0]
        if is_end and own is None:
            return
        session = to_save(ledger.client.view, agent, name, present_session())
        if session is not None:
            take_snapshot(_author(ledger, agent), ledger.client.view, session=session["id"])
        # If the harness's timeout kills us here, `deed session sweep` ends the session.
        if own is not None and own["author"] == agent:
            author = _author(ledger, agent)
            author.emit(Draft(stream=f"session/{own['id']}", data=SessionEnded()))
            report_at_end(author, ledger.client.view, ledger.settings, own["id"])
    except DeedbookError as error:
        _log(work, error)


def _log(work: Work, error: DeedbookError | OSError) -> None:
    code = error.code if isinstance(error, DeedbookError) else "STORE_UNAVAILABLE"
    message: Any = error.message if isinstance(error, DeedbookError) else error
    log_failure(work.home, work.call.harness, work.event, code, str(message))


def session_name(harness: str, session_id: object) -> str | None:
    """Return the id of the first Deedbook session of a harness's session; None if it is not a session id."""
    if not isinstance(session_id, str) or not session_id:
        return None
    if _PLAIN.fullmatch(session_id) is None:
        session_id = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_hash_digits]
    return f"{harness}-{session_id}"


def find_open(view: Ask, name: str) -> tuple[dict[str, Any] | None, str, str]:
    """Return (session, id, resumed).

    ``session`` is the open session named ``name``, ``name.2``, …, or None. ``id`` is its id or, if none is open,
    the id of the next session. ``resumed`` is the id of the ended session before it, or empty.
    """
    earlier = ""
    for number in range(1, continued_max + 1):
        numbered = name if number == 1 else f"{name}.{number}"
        try:
            session = view("sessions.show", {"id": f"session/{numbered}"})
        except Refused as refusal:
            if refusal.code not in {"NOT_FOUND", "REF_AMBIGUOUS"}:
                raise
            return None, numbered, earlier
        if session["id"] != numbered:  # the id only begins with this text
            return None, numbered, earlier
        if session["status"] == "open":
            return session, numbered, earlier
        earlier = numbered
    message = f"{name} was ended {continued_max} times. Start another session with `deed session start`."
    raise Refused("TRANSITION_NOT_ALLOWED", message)


def open_session(author: Callable[[], Author], view: Ask, agent: str, name: str) -> str:
    """Return the id of the agent's open session; start one with the author if there is none."""
    session, numbered, earlier = find_open(view, name)
    if session is None:
        data = SessionStarted(ai_id=agent, resumes=earlier)
        author().emit(Draft(stream=f"session/{numbered}", data=data))
    elif session["author"] != agent:
        raise Refused("NOT_AUTHORIZED", f"session {numbered} belongs to {session['author']}, not to {agent}")
    return numbered


def to_save(view: Ask, agent: str, name: str | None, present: str | None) -> dict[str, Any] | None:
    """Return the session if something was recorded in it since the agent's last snapshot of it; otherwise None.

    It is the harness's own session, else the one in ``DEEDBOOK_SESSION``, else the one that ``choose_session`` chooses.
    """
    session = _its_session(view, agent, name, present)
    if session is None or session["author"] != agent or not any(session["counts"].values()):
        return None
    taken = view("snapshots.list", {"session": session["id"], "author": agent, "limit": 1})["items"]
    return None if taken and taken[0]["event_index"] > session["updated_index"] else session


def _its_session(view: Ask, agent: str, name: str | None, present: str | None) -> dict[str, Any] | None:
    if name is not None:
        session, _, earlier = find_open(view, name)
        if session is not None or earlier:
            return session or view("sessions.show", {"id": earlier})
    if present is not None:
        try:
            return view("sessions.show", {"id": present})
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
    choice = choose_session(view, agent)
    return None if choice.session_id is None else view("sessions.show", {"id": choice.session_id})
