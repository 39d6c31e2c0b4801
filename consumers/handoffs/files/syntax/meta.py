"""The Meta block, the status and the dependencies of a handoff file (seed 002).

An entry is ``key: value``, as a list item or a bare line, the key bold or not, the colon full-width or not. What is
indented below an entry belongs to it: ``Depends-on`` may list its ids there, for other keys only the first line counts.
A key given twice is a problem, and the first one counts: nothing later in a file may quietly change who approves it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from consumers.handoffs.files.syntax.document import META_KEYS, MetaEntry, StatusText
from consumers.handoffs.files.syntax.headings import is_none, key_name
from consumers.handoffs.files.syntax.lines import Problem, is_blank, quoted, text_of
from ledger.events.handoff import HandoffId
from ledger.lifecycle.handoff import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

STATUS_WORDS: Final = frozenset[str](get_args(Status))

_KEY: Final = r"[^\W\d_][\w /-]{0,40}"
_BULLET: Final = r"(?:[-*+]|\d{1,9}[.)])[ \t]+"
_ENTRY: Final = re.compile(
    rf"(?P<indent>[ \t]*)(?P<bullet>{_BULLET})?"
    rf"(?:(?P<mark>[*_`]{{1,3}})(?P<marked>{_KEY})(?:(?P=mark)[ \t]*[:：]|[:：](?P=mark))|(?P<plain>{_KEY})[:：])"
    r"[ \t]*(?P<value>.*)$"
)
_STATUS: Final = re.compile(
    r"[\W_]*(in[ _-]progress(?![A-Za-z])|[A-Za-z](?:[A-Za-z_-]*[A-Za-z])?|[^\W_]+)", re.IGNORECASE
)
_ID_PARTS: Final = re.compile(r"[,，、\n]")
_ID_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
_ID_FILE: Final = re.compile(r"(.+?)\.md(?=$|[\s(（`])", re.IGNORECASE)


def read_entries(
    lines: Sequence[str], start: int, stop: int, *, code: frozenset[int], is_wanted: Callable[[str], bool]
) -> list[MetaEntry]:
    """Return the entries on lines ``start`` to ``stop`` whose key's name is wanted."""
    entries: list[MetaEntry] = []
    first: re.Match[str] | None = None
    is_open = False
    for index in range(start, stop):
        text = text_of(lines[index])
        if index in code or is_blank(text):
            is_open = is_open and text.startswith((" ", "\t"))
            continue
        found = _ENTRY.match(text)
        if found and _is_entry(found, first) and is_wanted(name := key_name(found["marked"] or found["plain"])):
            first = first or found
            key, value = (found["marked"] or found["plain"]).strip(), found["value"].rstrip()
            entries.append(MetaEntry(key, name, value, index + 1, index + 1, found.start("value")))
            is_open = True
        elif entries and (is_open or text.startswith((" ", "\t"))):
            entries[-1] = _continued(entries[-1], text, index + 1)
        else:
            is_open = False
    return entries


def _is_entry(found: re.Match[str], first: re.Match[str] | None) -> bool:
    """Tell an entry from an address, and from what is indented below an entry."""
    if not found["marked"] and found["value"].startswith("//"):
        return False
    indent = len(found["indent"].expandtabs(4))
    if first is None:
        return indent < 4
    return indent <= len(first["indent"].expandtabs(4)) + (1 if found["bullet"] else 0)


def _continued(entry: MetaEntry, text: str, line: int) -> MetaEntry:
    more = re.sub(rf"^\s*(?:{_BULLET})?", "", text).rstrip()
    return msgspec.structs.replace(entry, value=f"{entry.value}\n{more}", last_line=line)


def first_of(entry: MetaEntry | None) -> str:
    """Return the value that counts for a key of one line."""
    return entry.value.strip().split("\n")[0].strip() if entry else ""


def entry_problems(entries: Sequence[MetaEntry]) -> Iterator[Problem]:
    """Yield the keys given twice, and values that go on where only the first line counts."""
    lines: dict[str, int] = {}
    for entry in entries:
        if entry.name in lines:
            both = f"{entry.key} stands on line {lines[entry.name]} and again on line {entry.line}"
            yield Problem(entry.line, f"{both}: the first counts; remove the other")
        lines.setdefault(entry.name, entry.line)
        if entry.last_line > entry.line and entry.name in META_KEYS and entry.name != "Depends-on":
            yield Problem(entry.line, f"{entry.key} goes on to line {entry.last_line}: only its first line counts")


def read_status(text: str, line: int, column: int) -> StatusText | None:
    """Return the status in a text that stands at ``column`` of ``line``, or None if there is no word in it."""
    found = None if is_none(text) else _STATUS.match(text)
    if not found:
        return None
    written = found[1]
    return StatusText(status_word(written), written, text[found.end(1) :].rstrip(), line, column + found.start(1))


def status_word(written: str) -> str:
    """Return a status as the protocol spells it, whether or not it knows the word."""
    word = re.sub(r"[\s-]", "_", written.lower())
    return "cancelled" if word == "canceled" else word


def read_dependencies(entry: MetaEntry | None) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the ids that ``Depends-on`` names, without ``.md``, and what is wrong with them.

    An id that cannot be one stays in the answer: to leave it out would open the gate that it is meant to keep shut, and
    the ledger refuses it by name.
    """
    ids: list[str] = []
    problems: list[Problem] = []
    for part in _ID_PARTS.split(entry.value) if entry else ():
        text = _ID_LINK.sub(r"\1", part.split("←")[0]).strip().strip("`<>*").strip()
        if is_none(text):
            continue
        found = _ID_FILE.match(text)
        named = found[1] if found else text
        if named in ids:
            continue
        ids.append(named)
        if not is_handoff_id(named):
            line = entry.line if entry else 1
            problems.append(Problem(line, f"Depends-on names {quoted(named)}, which no handoff can be called"))
    return tuple(ids), problems


def is_handoff_id(name: str) -> bool:
    """Whether a handoff may be called this."""
    try:
        msgspec.convert(name, HandoffId)
    except msgspec.ValidationError:
        return False
    return True
