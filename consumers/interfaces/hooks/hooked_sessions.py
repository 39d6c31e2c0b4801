"""The Deedbook session for a harness's session: its hooks open it, save it and end it.

SessionStart opens it. It prints a brief, the text of `deed prime`, also if the key is locked or the disk is full.

The events before compaction, at the end of a turn and at the end of a session save silently: they write a
``snapshot.taken`` of the session if something was recorded since the last one. The end of the harness's session also
ends the Deedbook session: otherwise all sessions would stay open, and a verb could not find its own. The agent's
POSTFLIGHT or `deed session sweep` makes a missing report.

If the harness's session continues after its Deedbook session was ended, it gets the next one (``ID.2``), which resumes
the earlier one.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.interfaces.hooks.harnesses import COMMAND, Harness, own_command
from deedbook.consumers.interfaces.hooks.page import budget_tokens, page_alone
from deedbook.consumers.interfaces.hooks.prime import prime
from deedbook.consumers.interfaces.hooks.supervisor import Work, log_error
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
from deedbook.ledger.home.environment import environment_variable, present_session
from deedbook.projections.answers.checked import ask

brief_max_chars: Final = 9_800
"""Claude Code cuts what a hook prints at 10,000 characters."""

_budget_step: Final = 0.8
continued_max: Final = 50


def opened(ledger: Ledger, harness: Harness, work: Work, name: str | None) -> str | None:
    """Return the id of the open session for the harness's session; None if it cannot be opened."""
    if name is None:
        return None
    try:
        session = open_session(partial(_author, ledger, work.call.agent), ledger.client.view, work.call.agent, name)
        if harness.has_env_file:
            _export(work, session)
    except (DeedbookError, OSError) as error:
        log_error(work, error)
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


def brief(ledger: Ledger, work: Work, session: str | None) -> str:
    """Return the text for an agent at the start of its session."""
    budget = budget_tokens
    try:
        while True:
            client = ledger.client
            origin = origin_of(client)
            view = partial(ask, client)
            agent, folder = work.call.agent, work.home.parent
            primed = prime(
                view,
                client.get_blob,
                origin,
                agent=agent,
                session=session,
                budget=budget,
                folder=folder,
                home=work.home,
            )
            if len(primed.text) <= brief_max_chars:
                return primed.text
            budget = int(budget * _budget_step)
    except DeedbookError as error:
        log_error(work, error)
        return page_alone(error)


def save(ledger: Ledger, work: Work, name: str | None, *, is_end: bool) -> None:
    """Take a snapshot of the session if something was recorded; at the end of the harness's session, end it."""
    agent = work.call.agent
    try:
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
        log_error(work, error)


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
    if session is None or session["author"] != agent or not any(session[of] for of in session["counts"]):
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
