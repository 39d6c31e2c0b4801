"""What a handoff tells its receiver that only its sender knows: as he says it, and as his session recorded it.

What the sender's session holds already is taken along: dead ends as tried, the files that findings cite as touched,
tools with "test" or "check" in them and kept artifacts as tests, open unknowns as traps; what was taken back is not.
``session`` is the one named, that of ``DEEDBOOK_SESSION``, or the sender's only open one; ``none`` takes nothing along.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sdk.text import dead_end_text, replace_line_breaks, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.handoff import ReceiverNotes
from deedbook.ledger.home.environment import present_session

derived_max: Final = 12
later_max: Final = 5
note_max_chars: Final = 400
_ASKED: Final = {
    "tested_by": "how it is tested (--tested-by CMD)",
    "touches": "which files and callers it touches (--touches PATH)",
    "traps": "what misleads (--trap TEXT)",
    "tried": "what was tried (--tried TEXT)",
}
_CITED: Final = re.compile(r"([^:\s]*[^:\s/])(?::[0-9]+(?:-[0-9]+)?)(?::|$)")
_KEPT: Final = "kept: "
_TEST: Final = re.compile(rf"test|check|{_KEPT}", re.IGNORECASE)


def notes_of(view: Ask, sender: str, given: Mapping[str, list[str]], session: str | None) -> ReceiverNotes:
    """Return what the sender says, and behind it what his session recorded. Raises Refused: as ``sessions.show``."""
    name = session or present_session() or _only_open(view, sender)
    recorded = {} if name in (None, "none") else _recorded(view("sessions.show", {"id": name.removeprefix("session/")}))
    return ReceiverNotes(
        **{
            kind: list(dict.fromkeys([*given.get(kind, ()), *recorded.get(kind, [])[-derived_max:]]))
            for kind in ReceiverNotes.__struct_fields__
        }
    )


def later(shown: Mapping[str, Any]) -> list[str]:
    """Return what a handoff's sender logged since its content stands: what he cannot amend once work has begun."""
    senders = (shown["from"], shown["importer"])
    logged = (one for one in shown["log"] if one["kind"] == "handoff.logged" and one["author"] in senders)
    return [one["text"] for one in logged if one["event_index"] > shown["template_index"]][-later_max:]


def missing(notes: ReceiverNotes, name: str) -> list[str]:
    """Return a warning that names what a handoff leaves its receiver to find out; nothing where it says it all.

    >>> missing(ReceiverNotes(tested_by=["make test"], touches=["a.py"], traps=["two configs"]), "h")
    ['its receiver is not told what was tried (--tried TEXT): you alone know; `deed handoff amend h …` adds it']
    """
    unsaid = ", ".join(words for kind, words in _ASKED.items() if not getattr(notes, kind))
    warning = f"its receiver is not told {unsaid}: you alone know; `deed handoff amend {quote(name)} …` adds it"
    return [warning] if unsaid else []


def uncommitted(shown: Mapping[str, Any]) -> list[str]:
    """Return a warning that names the files which a handoff touches and whose content here stands in no commit.

    Compared as bytes, by commands that read objects alone: `git status` would run filters that a repository names.
    """
    named = {text.partition(":")[0] for text in shown["notes"]["touches"]}
    files = sorted(filter(os.path.isfile, named))  # a note may be no path at all
    try:
        git = Git(Path.cwd(), is_own=False)
        hashed = git.ask("hash-object", "--no-filters", "--", *files).split() if files else []
        listed = git.ask("ls-tree", "-z", "HEAD", "--", *files).split("\0") if files else []
    except DeedbookError:  # no git, no repository, no commit: nobody is told what nobody can know
        return []
    committed = {path: head.split(" ")[-1] for head, _, path in (row.partition("\t") for row in listed)}
    left = [path for blob, path in zip(hashed, files, strict=True) if blob != committed.get(path)]
    return [f"not committed here: {', '.join(left)}: commit it, or whoever verifies has another"] if left else []


def _only_open(view: Ask, sender: str) -> str | None:
    page = view("sessions.list", {"author": sender, "status": "open", "limit": 1})
    return str(page["sessions"][0]["id"]) if page["total"] == 1 else None


def _recorded(session: Mapping[str, Any]) -> dict[str, list[str]]:
    findings, unknowns, dead_ends = (
        [one for one in session[of] if one["correction"] is None] for of in ("findings", "unknowns", "dead_ends")
    )
    cited = [_CITED.match(place) for one in findings for place in one["evidence"]]
    tools = [(one["tool"], f"{one['tool']} {one['purpose']}".strip()) for one in session["tools"]]
    notes = {
        "tested_by": [words if _KEPT in words else tool for tool, words in tools if _TEST.search(words)],
        "touches": [place[1] for place in cited if place],
        "traps": [f"not known: {one['unknown']}" for one in unknowns],
        "tried": [dead_end_text(one) for one in dead_ends],
    }
    return {
        kind: list(
            dict.fromkeys(shorten(" ".join(replace_line_breaks(text).split()), note_max_chars) for text in texts)
        )
        for kind, texts in notes.items()
    }
