r"""The table of small handoffs in ``active.md``, row by row.

A table counts if its header has From, To, Task and Status, in any order, among others; Owner and Assignee mean To,
Title and Description mean Task. The column ID, if there is one, identifies a row within its file. Lines with pipes
that a program appended below a blank line are rows too. Cells are split as GitHub does, at every pipe without a
backslash before it. If that gives a wrong number of cells, pipes inside code spans are taken as text.

    >>> table = parse_table(b"| From | To | Task | Status |\n|--|--|--|--|\n| al | bo | Fix \\| it | open, I think |\n")
    >>> [row_id(row) for row in table.rows], table.rows[0].task, table.rows[0].status
    (['active-fix-it-74c6505f'], 'Fix | it', 'open')
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from deedbook.consumers.handoffs.files.syntax.document import is_none, split_title, value_or_none
from deedbook.consumers.handoffs.files.syntax.lines import (
    Blocks,
    Problem,
    is_blank,
    join_lines,
    read_blocks,
    read_lines,
    settled,
    text_of,
    text_problems,
)
from deedbook.ledger.errors import Refused

COLUMNS: Final = ("From", "To", "Task", "Status", "Created", "Done")
slug_max_chars: Final = 60
day_max_chars: Final = 20

_NEEDED: Final = COLUMNS[:4]
_ID: Final = "ID"
# Other names of a column, where the table has no column with the name itself.
_SYNONYMS: Final = {"owner": "To", "assignee": "To", "title": "Task", "description": "Task"}
_needs_text: Final = f"a table of handoffs has {', '.join(_NEEDED)} (also Title for Task, Owner for To)"
# A status is the first word of its cell, after markup or symbols.
_STATUS: Final = re.compile(r"[\W_]*([^\W_](?:[\w-]*[^\W_])?)")


class TableRow(msgspec.Struct, frozen=True):
    """A row: its six cells that have a meaning.

    ``status`` is the first word of its cell, ``status_rest`` the text after it. ``created`` and ``done`` are as
    written (days often have no year), None for ``—``.
    """

    line: int
    sender: str
    to: str
    task: str
    status: str
    status_rest: str
    created: str | None
    done: str | None
    id: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of a row, ignoring case and white space: its ID, or From, To, Task and Created."""
        parts = (self.id,) if self.id else (self.sender, self.to, self.task, self.created or "")
        return tuple(" ".join(unicodedata.normalize("NFC", part).casefold().split()) for part in parts)


class ActiveTable(msgspec.Struct, frozen=True):
    """A file with a table of handoffs: its readable rows, its problems and all its lines."""

    rows: tuple[TableRow, ...]
    problems: tuple[Problem, ...]
    has_mark: bool
    lines: tuple[str, ...]

    @property
    def content(self) -> bytes:
        """The bytes of the file, as they were."""
        return join_lines(self.lines, has_mark=self.has_mark)


def is_active_table(content: bytes) -> bool:
    """Whether a file holds such a table and is no handoff or proposal itself."""
    try:
        _, lines = read_lines(content)
    except Refused:
        return False
    blocks = read_blocks(lines)
    title = next((heading.text for heading in blocks.headings if heading.level == 1), "")
    return split_title(title)[0] is None and any(_headers(lines, blocks))


def parse_table(content: bytes) -> ActiveTable:
    """Return the table of a file and all its bytes. Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT`` without one."""
    has_mark, lines = read_lines(content)
    blocks = read_blocks(lines)
    headers = list(_headers(lines, blocks))
    if not headers:
        message = f"the file has no table of handoffs: {_needs_text}"
        raise Refused("INVALID_FORMAT", message, line=1)
    problems = [*text_problems(lines, has_mark=has_mark)]
    rows: list[TableRow] = []
    first: dict[tuple[str, ...], int] = {}
    in_tables = {index for start, stop in blocks.tables for index in range(start, stop)}
    ends = [*(start for start, _, _ in headers[1:]), len(lines)]
    for (start, stop, columns), end in zip(headers, ends, strict=True):
        for index in range(start + 2, end):
            text, line = text_of(lines[index]), index + 1
            is_appended = text.lstrip().startswith("|") and index not in in_tables and index not in blocks.code
            if is_blank(text) or not (index < stop or is_appended):
                continue
            row = _read_row(text, line, columns)
            if isinstance(row, Problem):
                problems.append(row)
                continue
            rows.append(row)
            if is_appended:
                problems.append(Problem(line, "this row is below the end of its table; it is read as part of it"))
            named = zip(_NEEDED, (row.sender, row.to, row.task, row.status), strict=True)
            problems += [Problem(line, f"this row has no {column}") for column, value in named if is_none(value)]
            if first.setdefault(row.key, line) != line:
                problems.append(Problem(line, f"this row repeats line {first[row.key]}; both stay"))
    return ActiveTable(tuple(rows), settled(problems), has_mark, lines)


def missing_columns(content: bytes) -> str:
    """Return which columns the first possible table of handoffs lacks; empty if there is no such table."""
    _, lines = read_lines(content)
    for start, _ in read_blocks(lines).tables:
        lacking = [column for column in _NEEDED if column not in _columns(lines[start])]
        if lacking and len(lacking) <= len(_NEEDED) // 2:
            return f"its table on line {start + 1} lacks the column {' and '.join(lacking)}: {_needs_text}"
    return ""


def row_id(row: TableRow, source: str = "") -> str:
    """Return the id of a row's handoff: ``active-CREATED-TASK-HASH``, which depends only on the row's ``key``.

    For a row with an ID it is ``active-ID-HASH``, which depends only on the ID and the file ``source``.
    """
    digest = hashlib.sha256("\x1f".join((source, *row.key) if row.id else row.key).encode()).hexdigest()[:8]
    words = _slug(row.id or row.task, slug_max_chars)
    parts = ("active", "" if row.id else _slug(row.created or "", day_max_chars), words, digest)
    return "-".join(part for part in parts if part)


def _slug(text: str, length: int) -> str:
    return re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", text).lower()).strip("-")[:length].strip("-")


def _headers(lines: Sequence[str], blocks: Blocks) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the start, the end and the column names of each table of handoffs."""
    for start, stop in blocks.tables:
        columns = _columns(lines[start])
        if set(_NEEDED) <= set(columns):
            yield start, stop, columns


def _columns(header: str) -> tuple[str, ...]:
    names = {name.casefold(): name for name in (*COLUMNS, _ID)}
    texts = [cell.strip(" \t*_`") for cell in _cells(text_of(header), keep_code=False)]
    columns = [names.get(text.casefold(), text) for text in texts]
    for at, column in enumerate(columns):
        if (name := _SYNONYMS.get(column.casefold())) is not None and name not in columns:
            columns[at] = name
    return tuple(columns)


def _read_row(text: str, line: int, columns: tuple[str, ...]) -> TableRow | Problem:
    cells = _cells(text, keep_code=False)
    values = cells if len(cells) == len(columns) else _cells(text, keep_code=True)
    if len(values) != len(columns):
        return Problem(line, f"this row has {len(cells)} cells where the header has {len(columns)}; it is not read")
    cell = dict(zip(columns, values, strict=True))
    sender, to, task, status = (cell[column] for column in _NEEDED)
    created, done = (value_or_none(cell.get(column, "")) for column in COLUMNS[4:])
    match = None if is_none(status) else _STATUS.match(status)
    status_parts = ("", "") if match is None else (match[1], status[match.end() :])
    return TableRow(line, sender, to, task, *status_parts, created, done, value_or_none(cell.get(_ID, "")) or "")


def _cells(text: str, *, keep_code: bool) -> list[str]:
    """Return the cells of a line, without the empty ends outside the outer pipes."""
    text = text.strip()
    masked = text.replace("\\|", "\0\0")
    masked = _without_code(masked) if keep_code else masked
    pipes = [at for at, character in enumerate(masked) if character == "|"]
    parts = [text[left:right] for left, right in zip([0, *(at + 1 for at in pipes)], [*pipes, None], strict=True)]
    parts = parts[masked.startswith("|") : -1 if masked[1:].endswith("|") else None]
    return [part.strip().replace("\\|", "|") for part in parts]


def _without_code(text: str) -> str:
    """Return a line with masked code: from a run of backticks to the next run of that length (CommonMark 6.1)."""
    runs = list(re.finditer("`+", text))
    behind = Counter(len(run[0]) for run in runs)
    characters = list(text)
    opened: re.Match[str] | None = None
    for run in runs:
        behind[len(run[0])] -= 1
        if opened is None:
            opened = run if behind[len(run[0])] else None
        elif len(opened[0]) == len(run[0]):
            characters[opened.start() : run.end()] = "\0" * (run.end() - opened.start())
            opened = None
    return "".join(characters)
