"""The work of each hook, in a child process that the supervisor ends (``supervisor``).

At the start of a session, the hook prints a brief where the conversation has none: at startup, after clear and after
compaction, not on resume. If the ledger cannot be read, it prints only the page for agents. ``hooked_sessions`` opens,
saves and ends the Deedbook session for the harness's session, ``reminders`` speaks before an edit and at a stop.

The id of the Deedbook session is the harness's name and the id of its session, so that every hook of that session finds
it without storing anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Any, Final

from deedbook.consumers.interfaces.followed_redactions import follow_redactions
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES, brief_sources
from deedbook.consumers.interfaces.hooks.page import page_alone
from deedbook.consumers.interfaces.hooks.reminders import at_stop, before_edit
from deedbook.consumers.interfaces.hooks.supervisor import Work, log_error, log_failure
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import DeedbookError, Refused, did_you_mean, near
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import resolved
from deedbook.ledger.home.settings import check_folder

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_hash_digits: Final = 32


def respond_to(work: Work) -> bytes:
    """Do the work of an event; return the output for the harness, usually nothing."""
    harness = HARNESSES.get(work.call.harness)
    action = None if harness is None else harness.events.get(work.event)
    if harness is None or action is None:
        others = did_you_mean(near(work.call.harness, HARNESSES)) if harness is None else ""
        log_error(work, Refused("USAGE", f"no hook of {work.call.harness} handles the event {work.event!r}{others}"))
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

        log_error(work, error)
        return _answer(work, partial(page_alone, error)) if action == "start" else b""
    with ledger:
        if action == "edit":
            return _told(work, lambda session: before_edit(ledger, work, session))
        for line in follow_redactions(ledger.client, ledger.settings).lines:
            log_failure(work.home, work.call.harness, work.event, "REDACTED", line)
        # Loaded only now: the hook before each edit needs no reports and no briefs.
        sessions: Any = import_module("deedbook.consumers.interfaces.hooks.hooked_sessions")
        name = session_name(harness.name, work.payload.get("session_id"))
        if action != "start":
            sessions.save(ledger, work, name, is_end=action == "end")
            return _told(work, lambda session: at_stop(ledger, harness, work, session)) if action == "save" else b""
        return _answer(work, partial(sessions.brief, ledger, work, sessions.opened(ledger, harness, work, name)))


def _answer(work: Work, brief: Callable[[], str]) -> bytes:
    """Return the answer to a start: a brief if the conversation has none."""
    source = work.payload.get("source", "startup")
    if not (isinstance(source, str) and source in brief_sources):
        return b""
    answer = {"hookSpecificOutput": {"hookEventName": work.event, "additionalContext": brief()}}
    return json.dumps(answer).encode() + b"\n"


def _told(work: Work, answer: Callable[[str], bytes]) -> bytes:
    """Return the answer for a session of the harness; nothing if anything fails."""
    name = session_name(work.call.harness, work.payload.get("session_id"))
    try:
        return b"" if name is None else answer(name)
    except (DeedbookError, OSError) as error:
        log_error(work, error)
        return b""


def session_name(harness: str, session_id: object) -> str | None:
    """Return the id of the first Deedbook session of a harness's session; None if it is not a session id."""
    if not isinstance(session_id, str) or not session_id:
        return None
    if _PLAIN.fullmatch(session_id) is None:
        session_id = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_hash_digits]
    return f"{harness}-{session_id}"
