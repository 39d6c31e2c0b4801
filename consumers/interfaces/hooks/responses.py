"""What each hook does, in a process of its own that the supervisor ends (``supervisor``).

SessionStart opens the Deedbook session that stands for the harness's, and prints a brief, what `deed prime` prints,
where the conversation has none: at startup, after clear and after compaction, not on resume. Where the key is locked
or the disk is full the brief comes all the same, and where the ledger cannot be read, the page for agents alone.

The events before compaction, at the end of a turn and of a session save silently: a ``snapshot.taken`` of what the
session's events say, when something was recorded since the last one; nothing when nothing was. The end of the harness's
session ends ours: else each would stay open, and which one is meant be ambiguous. A report that it lacks is its own
POSTFLIGHT's, or made by `deed session sweep`.

The id of the Deedbook session that stands for a harness's is the harness's name and its session's id, so that every
hook of that session finds it without remembering anything. A session of a harness that goes on after its Deedbook
session was ended gets the next one (``ID.2``), which resumes the earlier.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, Final

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES, Harness, brief_sources
from deedbook.consumers.interfaces.hooks.prime import budget_tokens, page_alone, prime
from deedbook.consumers.interfaces.hooks.supervisor import Work, log_failure
from deedbook.consumers.reasoning.snapshots.take import take_snapshot
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import origin_of
from deedbook.consumers.sessions.open_sessions import meant_session
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import SessionEnded, SessionStarted
from deedbook.ledger.home import trust
from deedbook.ledger.home.environment import environment_variable, present_session
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import resolved
from deedbook.ledger.home.settings import check_place
from deedbook.projections.answers.checked import ask

brief_max_chars: Final = 9_800
"""Claude Code cuts what a hook prints at 10,000 characters."""

_budget_step: Final = 0.8
continued_max: Final = 50
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_hash_digits: Final = 32


def respond_to(work: Work) -> bytes:
    """Do what an event asks for; return what the harness is to read, most often nothing."""
    harness = HARNESSES.get(work.call.harness)
    does = None if harness is None else harness.events.get(work.event)
    if harness is None or does is None:
        _log(work, Refused("USAGE", f"{work.call.harness} has no event {work.event!r} that a hook is for"))
        return b""
    try:
        check_place(resolved(work.home), is_named=work.call.home is not None)
        trust.demand(work.home)  # first, and nothing of the folder is opened
        ledger = Ledger(work.call.agent, home=work.home, server=work.call.server)
        try:
            trust.demand(work.home, ledger.client)
        except BaseException:
            ledger.close()
            raise
    except DeedbookError as error:
        if error.code == "NOT_TRUSTED":
            return _answer(work, lambda: trust.UNTRUSTED) if does == "start" else b""

        _log(work, error)
        return _answer(work, partial(page_alone, error)) if does == "start" else b""
    with ledger:
        if does != "start":
            return _save(ledger, work, is_end=does == "end")
        return _answer(work, partial(_brief, ledger, work, _opened(ledger, harness, work)))


def _answer(work: Work, brief: Callable[[], str]) -> bytes:
    """Return the answer to a start: with a brief where the conversation has none."""
    source = work.given.get("source", "startup")
    if not (isinstance(source, str) and source in brief_sources):
        return b""
    answer = {"hookSpecificOutput": {"hookEventName": work.event, "additionalContext": brief()}}
    return json.dumps(answer).encode() + b"\n"


def _opened(ledger: Ledger, harness: Harness, work: Work) -> str | None:
    """Return the id of the session that is open for the harness's; None where it cannot be."""
    name = session_name(harness.name, work.given.get("session_id"))
    if name is None or work.call.agent is None:
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
    """Return who signs; whom DEEDBOOK_AGENT names nobody has looked at, and shared settings may set it."""
    from deedbook.consumers.interfaces.mcp.tool_ledger import check_may_sign, roles_of  # noqa: PLC0415 - most turns sign nothing

    check_may_sign(agent, roles_of(ledger.client, agent))
    return ledger.author()


def _export(work: Work, session: str) -> None:
    """Set the variables of the session's shell commands: which session, who acts and where, so that verbs need none."""
    file = environment_variable("CLAUDE_ENV_FILE")
    if not file:
        return
    variables = {"DEEDBOOK_SESSION": session, "DEEDBOOK_AGENT": work.call.agent, "DEEDBOOK_SERVER": work.call.server}
    variables["DEEDBOOK_HOME"] = None if work.call.home is None else str(work.call.home)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if value is not None]
    # Appended, as other hooks write to it too; the documentation of SessionStart asks for it.
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
            origin = origin_of(client, Home(work.home))
            view = partial(ask, client)
            agent, folder = work.call.agent, work.home.parent
            made = prime(view, client.get_blob, origin, agent=agent, session=session, budget=budget, folder=folder)
            if len(made.text) <= brief_max_chars:
                return made.text
            budget = int(budget * _budget_step)
    except DeedbookError as error:
        _log(work, error)
        return page_alone(error)


def _save(ledger: Ledger, work: Work, *, is_end: bool) -> bytes:
    agent = work.call.agent
    if agent is None:
        return b""
    try:
        name = session_name(work.call.harness, work.given.get("session_id"))
        its = None if name is None or not is_end else find_open(ledger.client.view, name)[0]
        if is_end and its is None:
            return b""
        found = to_save(ledger.client.view, agent, name, present_session())
        if found is not None:
            take_snapshot(_author(ledger, agent), ledger.client.view, session=found["id"])
        # If we are killed here, within the little time that a harness gives, the sweep ends the session.
        if its is not None and its["author"] == agent:
            _author(ledger, agent).emit(Draft(stream=f"session/{its['id']}", data=SessionEnded()))
    except DeedbookError as error:
        _log(work, error)
    return b""


def _log(work: Work, error: DeedbookError | OSError) -> None:
    code = error.code if isinstance(error, DeedbookError) else "STORE_UNAVAILABLE"
    message: Any = error.message if isinstance(error, DeedbookError) else error
    log_failure(work.home, work.call.harness, work.event, code, str(message))


def session_name(harness: str, session_id: object) -> str | None:
    """Return the id of the first Deedbook session of a harness's session; None for what is no session id."""
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
    raise Refused("TRANSITION_NOT_ALLOWED", f"{name} was ended {continued_max} times: `deed session start` goes on")


def open_session(author: Callable[[], Author], view: Ask, agent: str, name: str) -> str:
    """Return the id of the agent's open session, started now if it was not; only then is the author asked for."""
    found, numbered, earlier = find_open(view, name)
    if found is None:
        data = SessionStarted(ai_id=agent, resumes=earlier)
        author().emit(Draft(stream=f"session/{numbered}", data=data))
    elif found["author"] != agent:
        raise Refused("NOT_AUTHORIZED", f"session {numbered} is {found['author']}'s, not {agent}'s")
    return numbered


def to_save(view: Ask, agent: str, name: str | None, present: str | None) -> dict[str, Any] | None:
    """Return the session in which something was recorded since the agent's last snapshot of it; None for none.

    It is the harness's own, else the one named (``DEEDBOOK_SESSION``), else the agent's only open one.
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
    meant = meant_session(view, agent)
    return None if meant.session_id is None else view("sessions.show", {"id": meant.session_id})
