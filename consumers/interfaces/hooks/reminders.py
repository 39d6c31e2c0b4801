"""A hook tells its agent two things, each once in a session: decisions about a file, and that nothing was recorded.

Before an edit, the agent reads the decisions in force for the file. At the end of a turn, if setup was called with
``--ask-at-stop``, the hook asks the agent once to continue, if it edited files and recorded nothing. The file
``hooks-shown.json`` in the ledger's folder stores what was told in which session. It is written before the answer. If
it cannot be written, the hook says nothing, so that it never asks twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.handoffs.decisions import line_of, project_path, standing
from deedbook.consumers.interfaces.hooks.harnesses import Harness
from deedbook.consumers.interfaces.hooks.supervisor import Work
from deedbook.consumers.sdk.files import write_file
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, age, origin_of, untrusted_block
from deedbook.ledger.client.client import Ask
from deedbook.ledger.format.codec import UNREADABLE, read_json

FILE: Final = "hooks-shown.json"
sessions_remembered_max: Final = 100
transcript_read_max_bytes: Final = 64 * 1024**2
_NOT_WORK: Final = frozenset({"session.started", "session.ended", "snapshot.taken", "report.generated"})
"""The kinds that hooks sign by themselves."""
_ASKED: Final = "nothing was recorded"
REASON: Final = """\
You edited files in this session and recorded nothing in Deedbook. If others need to know of it, record it now: what you
found (`deed session finding TEXT --evidence PATH:LINE`), what failed (`deed session dead-end APPROACH --why TEXT`),
what you decided (`deed decide TEXT --path PATH`), or hand it over (`deed handoff create`). If there is nothing to
record, finish: you are asked only once."""


def new_in_session(home: Path, session: str, things: Iterable[str]) -> list[str]:
    """Return the things that this session has not been told yet, and store that it is told now.

    Raises Unavailable: ``STORE_UNAVAILABLE``: that cannot be stored.
    """
    path = home / FILE
    try:
        told = read_json(path.read_bytes(), dict[str, list[str]])
    except (OSError, *UNREADABLE):
        told = {}
    known = told.pop(session, [])
    new = [thing for thing in dict.fromkeys(things) if thing not in known]
    if new:
        kept = list(told.items())[1 - sessions_remembered_max :]
        write_file(path, msgspec.json.encode({**dict(kept), session: [*known, *new]}))
    return new


def before_edit(ledger: Ledger, work: Work, name: str) -> bytes:
    """Return the answer before an edit: the decisions about the file that this session has not been told yet."""
    given = work.payload.get("tool_input")
    paths = [given.get(name) for name in ("file_path", "notebook_path")] if isinstance(given, dict) else []
    edited = [path for path in paths if isinstance(path, str) and path and "\0" not in path]
    project, folder = work.home.parent, Path(str(work.payload.get("cwd") or work.home.parent))
    # A git work tree may be outside the folder with the ledger.
    places = [project_path(path, root, folder) for path in edited for root in (project, folder)]
    about = standing(ledger.client.view, places)["items"]
    new = new_in_session(work.home, name, [row["id"] for row in about]) if about else []
    # The view is faster, so only decisions that will be told are read from signed entries.
    rows = [row for row in standing(ledger.query_with, places)["items"] if row["id"] in new] if new else []
    if not rows:
        return b""
    now = datetime.now(UTC)
    lines = "\n".join(f"- {line_of(row)}, {age(row['made_ms'], now)}" for row in rows)
    block = untrusted_block(lines, origin_of(ledger.client))
    text = f"Decisions in force for this file (`deed decisions ID` shows one). {UNTRUSTED_NOTICE}\n{block}"
    answer = {"hookSpecificOutput": {"hookEventName": work.event, "additionalContext": text}}
    return json.dumps(answer).encode() + b"\n"


def at_stop(ledger: Ledger, harness: Harness, work: Work, name: str) -> bytes:
    """Return the answer at the end of a turn: nothing, or the reason to continue once."""
    if not work.call.asks_at_stop or work.payload.get("stop_hook_active") is not False:
        return b""
    view = ledger.client.view
    started = view("sessions.show", {"id": f"session/{name}"})["started_index"]
    if _has_recorded(view, work.call.agent, started) or not _has_edited(harness, work.payload.get("transcript_path")):
        return b""
    if not new_in_session(work.home, name, [_ASKED]):
        return b""
    return json.dumps({"decision": "block", "reason": REASON}).encode() + b"\n"


def _has_recorded(view: Ask, agent: str, since: int) -> bool:
    """Return whether the agent signed something after an entry, other than what hooks sign."""
    rows = view("catalog.find", {"author": agent, "newest": True, "limit": 50})["items"]
    return any(row["event_index"] > since and row["kind"] not in _NOT_WORK for row in rows)


def _has_edited(harness: Harness, transcript: object) -> bool:
    """Return whether a transcript has the call of a tool that edits files; of a long one only the end is read."""
    if not isinstance(transcript, str) or "\0" in transcript:
        return False
    path = Path(transcript)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - transcript_read_max_bytes))
        return any(b'"tool_use"' in line and _calls(line, harness.edit_tools) for line in file)


def _calls(line: bytes, tools: Collection[str]) -> bool:
    try:
        message = json.loads(line).get("message")
    except (ValueError, AttributeError, RecursionError):
        return False
    content = message.get("content") if isinstance(message, dict) else None
    blocks: list[Any] = content if isinstance(content, list) else []
    calls = (block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use")
    return any(call.get("name") in tools for call in calls)
