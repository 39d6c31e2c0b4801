r"""The contents of a section: its text, check boxes, log lines, and the entries of the Meta block.

- Text: a line that would begin a section is written with a backslash before its hashes (``\## Plan``), which markdown
  displays as plain hashes; backslashes that are there already get one more. Deeper headings and code need no backslash.
  Text that still cannot be stored (an unclosed code fence) is refused by the writer, which reads back what it wrote.
- A check box is a list item that begins with ``[ ]``, ``[x]`` or ``[X]``, at any depth, in the order of the lines;
  ``[-]`` is not a check box. A line that only looks like one (no space after it, no text) is reported: a criterion that
  is silently not counted would leave the gate open.
- The evidence of a criterion is one line below its text, ``- DATE [author] met: TEXT`` or ``waived: TEXT``. It is
  progress, like the tick. Any other line below a box is content.
- An entry is ``key: value``, as a list item or a bare line, the key bold or not, the colon full-width or not. Lines
  indented below it belong to it. A repeated key is a problem, and the first counts: a later line must not quietly
  change who approves the handoff.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, get_args

import msgspec

from deedbook.consumers.handoffs.files.syntax import document
from deedbook.consumers.handoffs.files.syntax.lines import (
    Blocks,
    Problem,
    is_blank,
    quoted,
    read_blocks,
    text_of,
    trim_blank,
)
from deedbook.consumers.handoffs.files.syntax.note_labels import NOTE_LABELS
from deedbook.ledger.events.handoff import HandoffId, ReceiverNotes, reasoning_refs_max
from deedbook.ledger.format.codec import convert
from deedbook.ledger.format.forms import DAY_PATTERN, REF_PATTERN
from deedbook.ledger.lifecycle.handoff_status import Status

_ENDING: Final = re.compile(r"\r\n|\r|\n")
_HASHES: Final = re.compile(r"^( {0,3})(\\*#{1,2}(?:\s|$))")
_ESCAPED: Final = re.compile(r"^( {0,3})\\(\\*#{1,2}(?:\s|$))")


def text_in(lines: Sequence[str], section: document.Section | None, code: frozenset[int]) -> str:
    """Return the text of a section without the blank lines around it, its lines joined with newlines."""
    if section is None:
        return ""
    start, stop = trim_blank(lines, section.body, section.stop)
    texts = (text_of(lines[index]) for index in range(start, stop))
    return "\n".join(
        text if index in code else _ESCAPED.sub(r"\1\2", text) for index, text in enumerate(texts, start=start)
    )


def lines_for(text: str) -> tuple[str, ...]:
    """Return the lines of a text in a section; the inverse of ``text_in`` for a text that ``trimmed`` returned."""
    lines = _trimmed_lines(text)
    code = read_blocks(lines).code
    return tuple(line if index in code else _HASHES.sub(r"\1\\\2", line) for index, line in enumerate(lines))


def trimmed(text: str) -> str:
    """Return a text as a section can store it: with newlines as the only line endings, and no blank lines around it."""
    return "\n".join(_trimmed_lines(text))


def _trimmed_lines(text: str) -> list[str]:
    lines = _ENDING.split(text)
    start, stop = trim_blank(lines, 0, len(lines))
    return lines[start:stop]


_BOX: Final = re.compile(r"\[([ xX])\](?:\s+|$)")
_MARKERS: Final = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?=\[)")
_NEARLY: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]*\[[ xX]?\](?!\()")
_EVIDENCE: Final = re.compile(rf"[ \t]+[-*+][ \t]+({DAY_PATTERN[1:]} \[[^\]]*\] (?:met|waived): \S.*)$")
_WITH_EVIDENCE: Final = frozenset({"Acceptance Criteria"})
_LOG_LINE: Final = re.compile(
    rf"[ ]{{0,3}}[-*+][ \t]+({DAY_PATTERN[1:]})(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?[ \t]+\[([^\]]*)\](?:[ \t]+(.*))?$"
)


def read_checkboxes(
    lines: Sequence[str], section: document.Section | None, blocks: Blocks
) -> tuple[document.Checkbox, ...]:
    """Return the check boxes of a section in order."""
    boxes: list[document.Checkbox] = []
    for item in blocks.items:
        if section is None or not section.body <= item.start < section.stop:
            continue
        box = _BOX.match(item.text)
        markers = _MARKERS.match(lines[item.start])
        if not box or not markers:
            continue
        text = " ".join(part.strip() for part in item.text[box.end() :].split("\n")).strip()
        if text:
            _, end = trim_blank(lines, item.start, item.end)
            column = markers.end() + 1
            evidence = _evidence_at(lines, item.stop, section, blocks.code) if section.name in _WITH_EVIDENCE else None
            boxes.append(
                document.Checkbox(
                    *(text, box[1] != " ", item.start + 1, item.stop, max(item.stop, end), column),
                    evidence=evidence or "",
                    evidence_line=None if evidence is None else item.stop + 1,
                )
            )
    return tuple(boxes)


def _evidence_at(lines: Sequence[str], index: int, section: document.Section, code: frozenset[int]) -> str | None:
    if index >= section.stop or index in code:
        return None
    line = _EVIDENCE.match(text_of(lines[index]))
    return None if line is None else line[1].rstrip()


def checkbox_problems(
    lines: Sequence[str], section: document.Section | None, boxes: Sequence[document.Checkbox], blocks: Blocks
) -> Iterator[Problem]:
    """Yield the lines of a section that look like check boxes but do not count."""
    if section is None:
        return
    counted = {box.line for box in boxes}
    for index in range(section.body, section.stop):
        if index + 1 in counted or index in blocks.code:
            continue
        if _NEARLY.match(lines[index]):
            yield Problem(index + 1, f"{quoted(lines[index].strip())} is not a check box: write '- [ ] text'")
    if not boxes:
        for item in blocks.items:
            if section.body <= item.start < section.stop:
                yield Problem(item.start + 1, f"{section.name} has list items without check boxes; they do not count")
                return


def read_log(
    lines: Sequence[str], section: document.Section | None, code: frozenset[int]
) -> tuple[tuple[document.LogLine, ...], list[Problem]]:
    """Return the entries of the Log section, and its list items without the form ``- DATE [author] text``."""
    entries: list[document.LogLine] = []
    problems: list[Problem] = []
    for index in range(section.body, section.stop) if section else ():
        text = text_of(lines[index])
        if is_blank(text):
            continue
        parts = None if index in code else _LOG_LINE.match(text)
        if parts:
            author = parts[4].strip() or None
            entries.append(document.LogLine((parts[5] or "").strip(), index + 1, index + 1, parts[1], author))
        elif entries and entries[-1].last_line == index and text.startswith((" ", "\t")) and index not in code:
            last = entries[-1]
            entries[-1] = document.LogLine(f"{last.text} {text.strip()}", last.line, index + 1, last.day, last.author)
        else:
            entries.append(document.LogLine(text.strip(), index + 1, index + 1))
            if index not in code:
                problems.append(Problem(index + 1, "this line of the Log is not '- DATE [author] text'; it stays"))
    return tuple(entries), problems


_LABELS: Final = "|".join(NOTE_LABELS.values()).replace("-", "[ -]")
_NOTE: Final = re.compile(rf" {{0,3}}[-*+][ \t]+({_LABELS})[:：][ \t]*(\S.*)$", re.IGNORECASE)


def notes_text(notes: ReceiverNotes) -> str:
    """Return notes as text of their section: one line ``- Trap: TEXT`` for each."""
    return "\n".join(f"- {label}: {text}" for name, label in NOTE_LABELS.items() for text in getattr(notes, name))


def read_notes(
    lines: Sequence[str], section: document.Section | None, code: frozenset[int]
) -> tuple[ReceiverNotes, list[Problem]]:
    """Return the notes of the section, and its other lines as problems; an indented line continues a note."""
    notes: dict[str, list[str]] = {name: [] for name in NOTE_LABELS}
    of_label = {label.casefold(): name for name, label in NOTE_LABELS.items()}
    problems: list[Problem] = []
    last: list[str] | None = None
    for index in range(section.body, section.stop) if section else ():
        text = text_of(lines[index])
        if is_blank(text):
            continue
        if index not in code and (parts := _NOTE.match(text)):
            last = notes[of_label[parts[1].casefold().replace(" ", "-")]]
            last.append(parts[2].strip())
        elif last and text.startswith((" ", "\t")):
            last[-1] += f" {text.strip()}"
        else:
            known = "', '- ".join(f"{label}: …" for label in NOTE_LABELS.values())
            problems.append(Problem(index + 1, f"this line of Receiver Notes is none of '- {known}'; it stays"))
    return ReceiverNotes(**notes), problems


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
_OF_LINES: Final = ("Depends-on", "Reasoning")
REFUTED_MARK: Final = "← refuted: "
_ID_PARTS: Final = re.compile(r"[,，、\n]")
_ID_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
_ID_FILE: Final = re.compile(r"(.+?)\.md(?=$|[\s(（`])", re.IGNORECASE)


def read_entries(
    lines: Sequence[str], start: int, stop: int, *, code: frozenset[int], is_wanted: Callable[[str], bool]
) -> list[document.MetaEntry]:
    """Return the entries on lines ``start`` to ``stop`` with a wanted key."""
    entries: list[document.MetaEntry] = []
    first: re.Match[str] | None = None
    is_open = False
    for index in range(start, stop):
        text = text_of(lines[index])
        if index in code or is_blank(text):
            is_open = is_open and text.startswith((" ", "\t"))
            continue
        parts = _ENTRY.match(text)
        if (
            parts
            and _is_entry(parts, first)
            and is_wanted(name := document.key_name(parts["marked"] or parts["plain"]))
        ):
            first = first or parts
            key, value = (parts["marked"] or parts["plain"]).strip(), parts["value"].rstrip()
            entries.append(document.MetaEntry(key, name, value, index + 1, index + 1, parts.start("value")))
            is_open = True
        elif entries and (is_open or text.startswith((" ", "\t"))):
            more = re.sub(rf"^\s*(?:{_BULLET})?", "", text).rstrip()
            value = f"{entries[-1].value}\n{more}"
            entries[-1] = msgspec.structs.replace(entries[-1], value=value, last_line=index + 1)
        else:
            is_open = False
    return entries


def _is_entry(parts: re.Match[str], first: re.Match[str] | None) -> bool:
    """Return whether a match is an entry, not an address or a line indented below an entry."""
    if not parts["marked"] and parts["value"].startswith("//"):
        return False
    indent = len(parts["indent"].expandtabs(4))
    if first is None:
        return indent < 4
    return indent <= len(first["indent"].expandtabs(4)) + (1 if parts["bullet"] else 0)


def first_of(entry: document.MetaEntry | None) -> str:
    """Return the first line of the value of a key that takes only one line."""
    return entry.value.strip().split("\n")[0].strip() if entry else ""


def entry_problems(entries: Sequence[document.MetaEntry]) -> Iterator[Problem]:
    """Yield repeated keys, and values of several lines for keys of one line."""
    lines: dict[str, int] = {}
    for entry in entries:
        if entry.name in lines:
            both = f"{entry.key} is on line {lines[entry.name]} and again on line {entry.line}"
            yield Problem(entry.line, f"{both}: the first counts; remove the other")
        lines.setdefault(entry.name, entry.line)
        if entry.last_line > entry.line and entry.name in document.META_KEYS and entry.name not in _OF_LINES:
            yield Problem(entry.line, f"{entry.key} continues to line {entry.last_line}: only its first line counts")


def read_status(text: str, line: int, column: int) -> document.StatusText | None:
    """Return the status in a text at ``column`` of ``line``, or None if it has no word."""
    parts = None if document.is_none(text) else _STATUS.match(text)
    if not parts:
        return None
    written = parts[1]
    return document.StatusText(
        status_word(written), written, text[parts.end(1) :].rstrip(), line, column + parts.start(1)
    )


def status_word(written: str) -> str:
    """Return a status in the protocol's spelling, even a status that the protocol lacks."""
    status = re.sub(r"[\s-]", "_", written.lower())
    return "cancelled" if status == "canceled" else status


def read_dependencies(entry: document.MetaEntry | None) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the ids that ``Depends-on`` names, without ``.md``, and their problems.

    An invalid id stays in the list: leaving it out would open the gate that it is meant to close. The ledger then
    refuses it by name.
    """
    ids: list[str] = []
    problems: list[Problem] = []
    for part in _ID_PARTS.split(entry.value) if entry else ():
        text = _ID_LINK.sub(r"\1", part.split("←")[0]).strip().strip("`<>*").strip()
        if document.is_none(text):
            continue
        file = _ID_FILE.match(text)
        named = file[1] if file else text
        if named in ids:
            continue
        ids.append(named)
        if not is_handoff_id(named):
            line = entry.line if entry else 1
            problems.append(Problem(line, f"Depends-on names {quoted(named)}, which is not a valid handoff id"))
    return tuple(ids), problems


def cited_names(entry: document.MetaEntry | None) -> list[str]:
    """Return the refs and ids that the field ``Reasoning`` names."""
    parts = [part.partition(REFUTED_MARK)[0] for part in _ID_PARTS.split(entry.value)] if entry else []
    names = [part.strip().strip("`<>").strip() for part in parts]
    return [name for name in names if not document.is_none(name)]


def read_refs(entry: document.MetaEntry | None) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the full refs (``sha256:…``) in the field ``Reasoning`` of a handoff file, and the problems found.

    Any other name, such as an id, is a problem and is left out.
    """
    named = {name: re.match(REF_PATTERN, name) is not None for name in cited_names(entry)}
    refs = [name for name, is_ref in named.items() if is_ref]
    strange = [quoted(name) for name, is_ref in named.items() if not is_ref]
    faults = [f"Reasoning names {name}, which is not a whole ref (sha256:…): it does not count" for name in strange]
    if len(refs) > reasoning_refs_max:
        faults.append(f"Reasoning names {len(refs)} refs: only the first {reasoning_refs_max} count")
    return tuple(refs[:reasoning_refs_max]), [Problem(entry.line if entry else 1, text) for text in faults]


def is_handoff_id(name: str) -> bool:
    """Whether a name is a valid handoff id."""
    try:
        convert(name, HandoffId)
    except msgspec.ValidationError:
        return False
    return True
