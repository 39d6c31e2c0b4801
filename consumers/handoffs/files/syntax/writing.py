"""Writing a new handoff file in the seed's form and order (seed 002).

A key or section of the seed's second example that has nothing to say is left out: Created, Proposal, Tasks,
Acceptance Criteria, Context. ``Depends-on`` always stands (``(none)``), and so does ``Reviewer`` (``—``): a file
without one means the default reviewer. What is written is read back; a text that would not come back as it is (a code
fence left open, a line break in a title) is refused with the name of its field. ``section_text`` says how headings in
a text are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.handoffs.files.syntax.lines import join_lines
from consumers.handoffs.files.syntax.parsing import parse
from consumers.handoffs.files.syntax.rendering import log_text
from consumers.handoffs.files.syntax.section_text import lines_for, trimmed
from ledger.errors import Refused

if TYPE_CHECKING:
    from consumers.handoffs.files.syntax.document import HandoffFile

NO_VALUE: Final = "—"
NO_DEPENDENCY: Final = "(none)"

_LINE_BREAK: Final = re.compile(r"[\r\n\x00]")
_HASHES_AT_END: Final = re.compile(r"(?:^|[ \t])#+$")


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a file that does not exist yet; ``log`` are lines of the form ``- DATE [author] text``."""

    title: str
    sender: str
    to: str
    status: str = "pending"
    reviewer: str | None = None
    created: str | None = None
    proposal: str | None = None
    depends_on: Sequence[str] = ()
    task: str = ""
    tasks: Sequence[str] = ()
    criteria: Sequence[str] = ()
    context: str = ""
    log: Sequence[str] = ()


def write(content: NewFile) -> bytes:
    r"""Return the bytes of a v2 file: UTF-8, ``\n``, in the seed's order.

    Reading them gives the same fields, texts as ``section_text.trimmed`` returns them.

    Raises:
        Refused: ``INVALID_FIELD`` naming the ``field`` that a file cannot hold, ``TOO_LARGE`` for more than a file may.
    """
    lines = [f"# Handoff: {title_text(content.title)}", "", "## Meta", *_meta_lines(content)]
    lines += ["", "## Task", *lines_for(content.task)]
    for heading, texts in (("Tasks", content.tasks), ("Acceptance Criteria", content.criteria)):
        if texts:
            lines += ["", f"## {heading}", *(f"- [ ] {one_line(text, heading)}" for text in texts)]
    if trimmed(content.context):
        lines += ["", "## Context", *lines_for(content.context)]
    lines += ["", "## Log", *map(log_text, content.log)]
    written = join_lines([line + "\n" for line in lines], has_mark=False)
    expected = msgspec.structs.asdict(content) | {"log": tuple(map(log_text, content.log))}
    read_back(written, expected)
    return written


def _meta_lines(content: NewFile) -> list[str]:
    lines = [f"- Status: {content.status}", f"- From: {content.sender}", f"- To: {content.to}"]
    lines.append(f"- Reviewer: {NO_VALUE if content.reviewer is None else content.reviewer}")
    if content.created is not None:
        lines.append(f"- Created: {content.created}")
    if content.proposal is not None:
        lines.append(f"- Proposal: {content.proposal}")
    lines.append(f"- Depends-on: {dependencies_text(content.depends_on)}")
    return [one_line(line, line[2:].partition(":")[0]) for line in lines]


def dependencies_text(ids: Sequence[str]) -> str:
    """Return ids as ``Depends-on`` has them."""
    return ", ".join(f"{name}.md" for name in ids) or NO_DEPENDENCY


def title_text(title: str) -> str:
    """Return a title as it stands in its heading: hashes at its end need one more behind them to be part of it."""
    text = one_line(title, "title").strip()
    return f"{text} #" if _HASHES_AT_END.search(text) else text


def one_line(text: str, field: str) -> str:
    """Return a text that is to stand on one line.

    Raises:
        Refused: ``INVALID_FIELD`` where it has line breaks.
    """
    if _LINE_BREAK.search(text):
        raise Refused("INVALID_FIELD", f"{field} must stand on one line", field=field)
    return text


def read_back(written: bytes, expected: Mapping[str, Any]) -> None:
    """Read what was written, and refuse it unless every expected field comes back.

    Raises:
        Refused: ``INVALID_FIELD`` with ``field``, or ``TOO_LARGE``.
    """
    try:
        file = parse(written)
    except Refused as refusal:
        if refusal.code == "TOO_LARGE":
            raise
        message = f"this content cannot be written as a handoff file: {refusal.message}"
        raise Refused("INVALID_FIELD", message, **refusal.details) from refusal
    found = fields_of(file)
    for name, value in expected.items():
        if found[name] != _as_read(name, value):
            message = f"{name} cannot be written as a handoff file: it would not be read back as it is"
            raise Refused("INVALID_FIELD", message, field=name)


def fields_of(file: HandoffFile) -> dict[str, Any]:
    """Return the fields of a file as ``NewFile`` has them."""
    return {
        "title": file.title,
        "sender": file.sender,
        "to": file.to,
        "status": file.status.word if file.status else None,
        "reviewer": file.reviewer,
        "created": file.created,
        "proposal": file.proposal,
        "depends_on": file.depends_on,
        "task": file.task,
        "tasks": tuple(box.text for box in file.tasks),
        "criteria": tuple(box.text for box in file.criteria),
        "context": file.context,
        "log": tuple(f"- {one.day} [{one.author or ''}] {one.text}".rstrip() for one in file.log),
    }


def _as_read(name: str, value: Any) -> Any:
    """Return a value as reading gives it: without the white space around it that no file keeps."""
    match name:
        case "task" | "context":
            return trimmed(value)
        case "tasks" | "criteria":
            return tuple(text.strip() for text in value)
        case "depends_on" | "log":
            return tuple(value)
        case _:
            return value.strip() if value is not None else None
