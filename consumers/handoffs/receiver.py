"""The notes of a handoff for its receiver: written by the sender, or taken from the sender's session.

The session adds its dead ends as tried, the files that findings cite as touched, tools with "test" or "check" in their
name and stored artifacts as tests, and open unknowns as traps. Retracted entries are left out. The session is the one
named, that of ``DEEDBOOK_SESSION``, or the sender's only open one; ``none`` adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

from msgspec.structs import asdict

from deedbook.consumers.sdk.text import dead_end_text, replace_line_breaks, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.handoff import ReceiverNotes
from deedbook.ledger.home.environment import present_session

derived_max: Final = 12
later_max: Final = 5
note_max_chars: Final = 400
_WANTED: Final = {
    "tested_by": "how to test it (--tested-by CMD)",
    "touches": "which files and callers it affects (--touches PATH)",
    "traps": "what misleads (--trap TEXT)",
    "tried": "what was tried (--tried TEXT)",
}
_CITED: Final = re.compile(r"([^:\s]*[^:\s/])(?::[0-9]+(?:-[0-9]+)?)(?::|$)")
_STORED: Final = "kept: "
_TEST: Final = re.compile(rf"test|check|{_STORED}", re.IGNORECASE)


def notes_of(view: Ask, sender: str, notes: Mapping[str, list[str]], session: str | None) -> ReceiverNotes:
    """Return the sender's notes, followed by those from the session. Raises Refused: as ``sessions.show``."""
    name = session or present_session() or _only_open(view, sender)
    recorded = {} if name in (None, "none") else _recorded(view("sessions.show", {"id": name.removeprefix("session/")}))
    return ReceiverNotes(
        **{
            kind: list(dict.fromkeys([*notes.get(kind, ()), *recorded.get(kind, [])[-derived_max:]]))
            for kind in ReceiverNotes.__struct_fields__
        }
    )


def attached(notes: ReceiverNotes, given: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the notes that the session added to those that the sender gave, by kind.

    >>> attached(ReceiverNotes(touches=["a.py", "b.py"], tried=["a timer"]), {"touches": ["a.py"]})
    {'touches': ['b.py'], 'tried': ['a timer']}
    """
    added = {kind: [text for text in texts if text not in given.get(kind, ())] for kind, texts in asdict(notes).items()}
    return {kind: texts for kind, texts in added.items() if texts}


def later(handoff: Mapping[str, Any]) -> list[str]:
    """Return the lines that the sender logged since the last change of the content, which work in progress forbids."""
    senders = (handoff["from"], handoff["importer"])
    lines = (line for line in handoff["log"] if line["kind"] == "handoff.logged" and line["author"] in senders)
    return [line["text"] for line in lines if line["event_index"] > handoff["template_index"]][-later_max:]


def missing(notes: ReceiverNotes, name: str) -> list[str]:
    """Return a warning that names the notes that a handoff lacks; empty if it lacks none.

    >>> missing(ReceiverNotes(tested_by=["make test"], touches=["a.py"], traps=["two configs"]), "h")
    ['the receiver does not know what was tried (--tried TEXT): add it with `deed handoff amend h …`']
    """
    unsaid = ", ".join(text for kind, text in _WANTED.items() if not getattr(notes, kind))
    warning = f"the receiver does not know {unsaid}: add it with `deed handoff amend {quote(name)} …`"
    return [warning] if unsaid else []


def _only_open(view: Ask, sender: str) -> str | None:
    page = view("sessions.list", {"author": sender, "status": "open", "limit": 1})
    return str(page["items"][0]["id"]) if page["total"] == 1 else None


def _recorded(session: Mapping[str, Any]) -> dict[str, list[str]]:
    findings, unknowns, dead_ends = (
        [row for row in session[name] if row["correction"] is None] for name in ("findings", "unknowns", "dead_ends")
    )
    cited = [_CITED.match(citation) for finding in findings for citation in finding["evidence"]]
    tools = [(row["tool"], f"{row['tool']} {row['purpose']}".strip()) for row in session["tools"]]
    notes = {
        "tested_by": [text if _STORED in text else tool for tool, text in tools if _TEST.search(text)],
        "touches": [match[1] for match in cited if match],
        "traps": [f"not known: {row['unknown']}" for row in unknowns],
        "tried": [dead_end_text(row) for row in dead_ends],
    }
    return {
        kind: list(
            dict.fromkeys(shorten(" ".join(replace_line_breaks(text).split()), note_max_chars) for text in texts)
        )
        for kind, texts in notes.items()
    }
