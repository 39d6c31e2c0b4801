"""Parses a handoff or proposal file, in the protocol's first or second form.

The parser reads whatever it can; each fault is a problem with its line. It only refuses a file that it would
misunderstand, for example a half-written one. Only ``# `` and ``## `` headings begin a section, underlined ones do not,
so a rule below a paragraph cuts nothing off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, get_args

from deedbook.consumers.handoffs.files.syntax import document
from deedbook.consumers.handoffs.files.syntax import sections as parts
from deedbook.consumers.handoffs.files.syntax.lines import (
    Blocks,
    Heading,
    Problem,
    quoted,
    read_blocks,
    read_lines,
    settled,
    text_of,
    text_problems,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.handoff_status import Status

_VALUES: Final = {"sender": "From", "to": "To", "reviewer": "Reviewer", "created": "Created", "proposal": "Proposal"}
_HASHED: Final = re.compile(r" {0,3}#{1,2}[ \t]+(.*)$")


class _Title(NamedTuple):
    kind: str | None
    text: str
    heading: Heading


def parse(content: bytes) -> document.HandoffFile:
    """Return the parsed file with all its bytes. Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT``, with ``line``."""
    has_mark, lines = read_lines(content)
    blocks = read_blocks(lines)
    title = _read_title(lines, blocks)
    _refuse_swallowed(lines, blocks)
    sections = _read_sections(title.heading, blocks, len(lines))
    by_name = {section.name: section for section in reversed(sections)}
    meta = _read_meta(lines, title, sections, blocks.code)
    entries = {entry.name: entry for entry in reversed(meta)}
    _refuse_unfinished(lines, title, sections, meta)
    depends_on, problems = parts.read_dependencies(entries.get("Depends-on"))
    reasoning_refs, problems_of_refs = parts.read_refs(entries.get("Reasoning"))
    problems += problems_of_refs
    log, log_problems = parts.read_log(lines, by_name.get("Log"), blocks.code)
    status, status_problems = _pick_status(_statuses(lines, entries.get("Status"), blocks))
    tasks = parts.read_checkboxes(lines, by_name.get("Tasks"), blocks)
    criteria = parts.read_checkboxes(lines, by_name.get("Acceptance Criteria"), blocks)
    notes, note_problems = parts.read_notes(lines, by_name.get("Receiver Notes"), blocks.code)
    problems += [
        *log_problems,
        *note_problems,
        *status_problems,
        *text_problems(lines, has_mark=has_mark),
        *parts.entry_problems(meta),
    ]
    problems += parts.checkbox_problems(lines, by_name.get("Tasks"), tasks, blocks)
    problems += parts.checkbox_problems(lines, by_name.get("Acceptance Criteria"), criteria, blocks)
    problems += _form_problems(title, sections, entries, blocks)
    values = {name: document.value_or_none(parts.first_of(entries.get(key))) for name, key in _VALUES.items()}
    is_second = "Tasks" in by_name or "Reviewer" in entries or "Depends-on" in entries
    return document.HandoffFile(
        format="proposal" if title.kind == "proposal" else "handoff/v2" if is_second else "handoff/v1",
        title=title.text,
        title_line=title.heading.start + 1,
        title_stop=title.heading.stop,
        meta=tuple(meta),
        status=status,
        **values,
        depends_on=depends_on,
        reasoning_refs=reasoning_refs,
        task=parts.text_in(lines, by_name.get("Task"), blocks.code),
        tasks=tasks,
        criteria=criteria,
        notes=notes,
        context=parts.text_in(lines, by_name.get("Context"), blocks.code),
        log=log,
        sections=sections,
        problems=settled(problems),
        has_mark=has_mark,
        lines=lines,
        open_line=None if blocks.open_start is None else blocks.open_start + 1,
    )


def _read_title(lines: Sequence[str], blocks: Blocks) -> _Title:
    heading = next((heading for heading in blocks.headings if heading.level == 1), None)
    if heading is None:
        line = len(lines) if blocks.open_start is None else blocks.open_start + 1
        advice = "begin it with '# Handoff: …' or '# Proposal: …'"
        if blocks.open_start is not None:
            advice = f"close the block that line {line} opens, or {advice}"
        raise Refused("INVALID_FORMAT", f"the file has no title: {advice}", line=max(1, line))
    kind, text = document.split_title(heading.text)
    if not text:
        raise Refused("INVALID_FORMAT", f"the title on line {heading.start + 1} is empty", line=heading.start + 1)
    return _Title(kind, text, heading)


def _refuse_swallowed(lines: Sequence[str], blocks: Blocks) -> None:
    """Refuse a file in which an unclosed block hides a section, for example because it is half written."""
    if blocks.open_start is None:
        return
    for index in range(blocks.open_start + 1, len(lines)):
        heading = _HASHED.match(text_of(lines[index]))
        if heading and (document.section_name(heading[1]) or document.status_heading(heading[1]) is not None):
            line = blocks.open_start + 1
            message = f"the block that line {line} opens is never closed and hides {quoted(heading[0].strip())}"
            raise Refused("INVALID_FORMAT", f"{message} on line {index + 1}: close it", line=line)


def _read_sections(title: Heading, blocks: Blocks, end: int) -> tuple[document.Section, ...]:
    headings = [it for it in blocks.headings if it is title or (it.is_hashed and it.level <= 2)]
    stops = [*(heading.start for heading in headings[1:]), end]
    taken: set[str] = set()
    sections: list[document.Section] = []
    for heading, stop in zip(headings, stops, strict=True):
        if heading is title:
            continue
        name = document.section_name(heading.text)
        section_id = "" if name in taken else name
        sections.append(document.Section(section_id, heading.text, heading.start, heading.stop, stop))
        taken.add(name)
    return tuple(sections)


def _read_meta(
    lines: Sequence[str], title: _Title, sections: Sequence[document.Section], code: frozenset[int]
) -> list[document.MetaEntry]:
    """Return the entries of the Meta section or, without one, the known keys between title and first section."""
    meta = next((section for section in sections if section.name == "Meta"), None)
    if meta:
        return parts.read_entries(lines, meta.body, meta.stop, code=code, is_wanted=bool)
    stop = min((it.start for it in sections if it.start > title.heading.start), default=len(lines))
    return parts.read_entries(lines, title.heading.stop, stop, code=code, is_wanted=document.META_KEYS.__contains__)


def _refuse_unfinished(
    lines: Sequence[str], title: _Title, sections: Sequence[document.Section], meta: Sequence[document.MetaEntry]
) -> None:
    line = title.heading.start + 1
    if title.kind is None and not {"Status", "From", "To"}.intersection(entry.name for entry in meta):
        message = f"{quoted(title.text)} is neither a handoff nor a proposal: it has no Meta block"
        raise Refused("INVALID_FORMAT", f"{message}, and its title has no 'Handoff:' or 'Proposal:'", line=line)
    if title.kind != "proposal" and not meta:
        message = "the handoff has no Meta block: add '## Meta' with Status, From and To, or finish the file"
        raise Refused("INVALID_FORMAT", message, line=max(line, len(lines)))
    named = next((section for section in sections if section.name == "Meta"), None)
    is_last = not sections if named is None else named.stop == len(lines)
    is_whole = lines[-1].endswith(("\n", "\r"))
    if title.kind == "proposal":
        # A proposal may end in its Meta block, or have little else. So only a last line without an ending shows that it
        # was cut off.
        is_cut = is_last and not is_whole and bool(meta) and meta[-1].last_line == len(lines)
    else:
        is_cut = is_last and (len(sections) <= 1 or not is_whole)
    if is_cut:
        message = f"the file ends inside its Meta block on line {len(lines)}; it may be half written: finish it"
        raise Refused("INVALID_FORMAT", message, line=len(lines))


def _statuses(lines: Sequence[str], entry: document.MetaEntry | None, blocks: Blocks) -> Iterator[document.StatusText]:
    """Yield the status of the Meta block, and those in headings."""
    if entry and (status := parts.read_status(entry.value.split("\n")[0], entry.line, entry.column)):
        yield status
    for heading in blocks.headings:
        start = document.status_heading(heading.text) if heading.level == 2 and heading.is_hashed else None
        if start is not None:
            column = lines[heading.start].index(heading.text) + start
            if status := parts.read_status(heading.text[start:], heading.start + 1, column):
                yield status


def _pick_status(statuses: Iterator[document.StatusText]) -> tuple[document.StatusText | None, list[Problem]]:
    in_order = sorted(statuses, key=lambda status: status.line)
    if not in_order:
        return None, []
    first = in_order[0]
    problems = [
        Problem(other.line, f"Status is on line {first.line} and again on line {other.line}: the first counts")
        for other in in_order[1:]
    ]
    if first.word not in parts.STATUS_WORDS:
        message = f"{quoted(first.written)} is not a status of the protocol ({', '.join(get_args(Status))})"
        problems.append(Problem(first.line, message))
    return first, problems


def _form_problems(
    title: _Title, sections: Sequence[document.Section], entries: dict[str, document.MetaEntry], blocks: Blocks
) -> Iterator[Problem]:
    """Yield missing and repeated parts, and an unclosed block."""
    line = title.heading.start + 1
    if title.kind is None:
        yield Problem(line, "the title does not begin with 'Handoff:' or 'Proposal:'")
    for key in ("From", "To") if title.kind != "proposal" else ():
        if document.value_or_none(parts.first_of(entries.get(key))) is None:
            yield Problem(entries[key].line if key in entries else line, f"the Meta block has no {key}")
    first = {section.name: section for section in reversed(sections) if section.name}
    for section in sections:
        name = document.section_name(section.heading)
        if name and not section.name:
            both = f"a section {name} begins on line {first[name].start + 1} and again on line {section.start + 1}"
            yield Problem(section.start + 1, f"{both}: only the first counts")
    if title.kind != "proposal" and not first.keys() - {"Meta"}:
        message = "no Task, Tasks, Acceptance Criteria, Context or Log follows; the file may be cut off"
        yield Problem(sections[-1].start + 1, message)
    if blocks.open_start is not None:
        yield Problem(blocks.open_start + 1, "this block is never closed, so it extends to the end of the file")
