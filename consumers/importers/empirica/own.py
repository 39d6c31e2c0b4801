"""Which notes this ledger wrote itself: their bytes are what it derives from one of its own reports.

Neither the ref nor a trailer of the commit decides that: anybody can write both. A note that claims to be ours, and
says something else, is another tool's and is imported as such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from consumers.sessions.stores.names import text_of
from ledger.errors import Refused

if TYPE_CHECKING:
    from consumers.importers.empirica.notes import Note
    from ledger.client import Ask

_REF: Final = re.compile(rb'"ref":"([0-9a-f]{12})"')
_MARKDOWN: Final = b"# Epistemic Handoff Report"


def is_own(note: Note, answer: Ask) -> bool:
    """Return whether this ledger derives the very bytes of a note from a report that it has."""
    kind, _, name = note.tail.partition("/")
    if note.content is None or not name:
        return False
    if kind == "handoff":
        found = _REF.search(note.content)
        named = "" if found is None else found[1].decode("ascii")
        return bool(named) and _is_derived(answer, {"id": named}, "compressed_json", note.content)
    if kind == "handoff-markdown" and note.content.startswith(_MARKDOWN):
        session = text_of(name) or name
        asked = ({"id": session, "version": one} for one in _versions(answer, session))
        return any(_is_derived(answer, one, "markdown", note.content) for one in asked)
    return False


def _versions(answer: Ask, session: str) -> list[str]:
    try:
        shown = answer("reports.show", {"id": session})
    except Refused:
        return []
    return [one["report_id"] for one in reversed(shown["versions"])]


def _is_derived(answer: Ask, asked: dict[str, str], form: str, content: bytes) -> bool:
    try:
        report = answer("reports.show", asked)["report"]
    except Refused:
        return False
    return report["imported"] is None and report[form].encode("utf-8", "replace").rstrip() == content.rstrip()
