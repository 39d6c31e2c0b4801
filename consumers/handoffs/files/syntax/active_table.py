r"""The table of small handoffs in ``active.md``, row by row.

A table counts if its header has From, To, Task and Status (Created and Done may be there too, and columns of other
names, in any order). Lines with pipes that a program appended below a blank line are rows too.

Cells are divided as GitHub does, at every pipe that no backslash precedes. Where that gives a wrong number of cells,
pipes inside code spans are taken as text. A row whose cells still do not fit is a problem and keeps its bytes.

    >>> table = parse_table(b"| From | To | Task | Status |\n|--|--|--|--|\n| al | bo | Fix \\| it | open, I think |\n")
    >>> [row_id(row) for row in table.rows], table.rows[0].task, table.rows[0].status
    (['active-fix-it-74c6505f'], 'Fix | it', 'open')
    >>> render_table(table, {0: RowChange("done")}).splitlines()[2]
    b'| al | bo | Fix \\| it | done, I think |'
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from consumers.handoffs.files.syntax.document import is_none, split_title, value_or_none
from consumers.handoffs.files.syntax.lines import (
    Blocks,
    Edit,
    Problem,
    apply_edits,
    is_blank,
    join_lines,
    quoted,
    read_blocks,
    read_lines,
    settled,
    text_of,
    text_problems,
)
from ledger.errors import Refused

COLUMNS: Final = ("From", "To", "Task", "Status", "Created", "Done")
slug_max_chars: Final = 60
day_max_chars: Final = 20

_NEEDED: Final = COLUMNS[:4]
_WORD: Final = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
# A status is the first word of its cell, behind markup or signs.
_STATUS: Final = re.compile(rf"([\W_]*)({_WORD.pattern})")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Cell(NamedTuple):
    r"""A text as it stands on its line, with ``\|`` for a pipe, and where."""

    text: str
    start: int
    stop: int


class TableRow(msgspec.Struct, frozen=True):
    """A row: the six cells that have a meaning, and where the status word and the text of Done stand.

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
    places: Mapping[str, Cell]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two rows the same: From, To, Task and Created, but for case and white space."""
        parts = (self.sender, self.to, self.task, self.created or "")
        return tuple(" ".join(unicodedata.normalize("NFC", part).casefold().split()) for part in parts)


class ActiveTable(msgspec.Struct, frozen=True):
    """A file with a table of handoffs: its rows that can be read, what is odd, and every line of it."""

    rows: tuple[TableRow, ...]
    problems: tuple[Problem, ...]
    has_mark: bool
    lines: tuple[str, ...]

    @property
    def content(self) -> bytes:
        """The bytes of the file, as they were."""
        return join_lines(self.lines, has_mark=self.has_mark)


class RowChange(NamedTuple):
    """A new status word and a new text for Done; None leaves the cell as it is."""

    status: str | None = None
    done: str | None = None


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
    """Return the rows of a file, with every byte of it kept.

    Raises:
        Refused: ``TOO_LARGE``, or ``INVALID_FORMAT`` for a file without such a table, with ``line``.
    """
    has_mark, lines = read_lines(content)
    blocks = read_blocks(lines)
    headers = list(_headers(lines, blocks))
    if not headers:
        message = f"the file has no table with the columns {', '.join(_NEEDED)}: add the header, or import another file"
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
                problems.append(Problem(line, "this row stands below the end of its table; it is read as part of it"))
            named = zip(_NEEDED, (row.sender, row.to, row.task, row.status), strict=True)
            problems += [Problem(line, f"this row does not say {column}") for column, value in named if is_none(value)]
            if first.setdefault(row.key, line) != line:
                problems.append(Problem(line, f"this row says the same as line {first[row.key]}; both are kept"))
    return ActiveTable(tuple(rows), settled(problems), has_mark, lines)


def render_table(table: ActiveTable, changes: Mapping[int, RowChange]) -> bytes:
    """Return the file with these cells changed, by the position of the row in ``rows``; the rest keeps its bytes.

    Raises:
        Refused: ``INVALID_FIELD`` for a row, a column or a text that cannot be.
    """
    edits = []
    for position, change in changes.items():
        if not 0 <= position < len(table.rows):
            raise Refused("INVALID_FIELD", f"the table has no row {position}", field="row", position=position)
        row = table.rows[position]
        line = text_of(table.lines[row.line - 1])
        replaced = [_replaced(row, column, text) for column, text in (("Status", change.status), ("Done", change.done))]
        for cell in sorted(filter(None, replaced), reverse=True, key=lambda one: one.start):
            line = line[: cell.start] + cell.text + line[cell.stop :]
        edits.append(Edit(row.line - 1, row.line, (line,)))
    return join_lines(apply_edits(table.lines, edits), has_mark=table.has_mark)


def row_id(row: TableRow) -> str:
    """Return the id of the handoff that a row stands for: the same for the same From, To, Task and Created.

    ``active-CREATED-TASK-HASH``: the task as a slug of at most ``slug_max_chars``, the hash of the whole ``key``.
    """
    digest = hashlib.sha256("\x1f".join(row.key).encode()).hexdigest()[:8]
    parts = ("active", _slug(row.created or "", day_max_chars), _slug(row.task, slug_max_chars), digest)
    return "-".join(part for part in parts if part)


def _slug(text: str, length: int) -> str:
    return re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", text).lower()).strip("-")[:length].strip("-")


def _headers(lines: Sequence[str], blocks: Blocks) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield where each table of handoffs begins and ends, and the columns of it by their names here."""
    names = {name.casefold(): name for name in COLUMNS}
    for start, stop in blocks.tables:
        texts = [cell.text.strip(" \t*_`") for cell in _cells(text_of(lines[start]), keep_code=False)]
        columns = tuple(names.get(text.casefold(), text) for text in texts)
        if set(_NEEDED) <= set(columns):
            yield start, stop, columns


def _read_row(text: str, line: int, columns: tuple[str, ...]) -> TableRow | Problem:
    cells = _cells(text, keep_code=False)
    kept = cells if len(cells) == len(columns) else _cells(text, keep_code=True)
    if len(kept) != len(columns):
        return Problem(
            line, f"this row has {len(cells)} cells where the header has {len(columns)}; it is kept as it is"
        )
    places = dict(zip(columns, kept, strict=True))
    sender, to, task, status = (places[column].text for column in _NEEDED)
    created, done = (value_or_none(places[column].text) if column in places else None for column in COLUMNS[4:])
    start, stop = places["Status"][1:]
    word = None if is_none(status) else _STATUS.match(text[start:stop])
    if word is None:
        return TableRow(line, sender, to, task, "", "", created, done, places)
    rest = text[start + word.end() : stop].replace("\\|", "|")
    places["Status"] = Cell(word[2], start + word.start(2), start + word.end())
    return TableRow(line, sender, to, task, word[2], rest, created, done, places)


def _replaced(row: TableRow, column: str, text: str | None) -> Cell | None:
    """Return what to write for a cell, and where; None where it says so already."""
    place = row.places.get(column)
    if text is None or (place is not None and text == (row.status if column == "Status" else place.text)):
        return None
    field = column.lower()
    if place is None:
        raise Refused("INVALID_FIELD", f"the table has no column {column}", field=field)
    if column == "Status" and not _WORD.fullmatch(text):
        raise Refused("INVALID_FIELD", f"{quoted(text)} is no status word", field=field)
    if _CONTROL.search(text):
        raise Refused("INVALID_FIELD", f"{quoted(text)} cannot stand in a cell: it must be one line", field=field)
    written = text.replace("|", "\\|")
    # An empty cell may have no room around it.
    return Cell(written if place.text else f" {written} ", place.start, place.stop)


def _cells(text: str, *, keep_code: bool) -> list[Cell]:
    """Return the cells of a line, without the empty ends that the outer pipes make."""
    masked = _without_code(text.replace("\\|", "\0\0")) if keep_code else text.replace("\\|", "\0\0")
    pipes = [at for at, character in enumerate(masked) if character == "|"]
    start, stop = len(text) - len(text.lstrip()), len(text.rstrip())
    if pipes and pipes[0] == start:
        start = pipes.pop(0) + 1
    if pipes and pipes[-1] == stop - 1:
        stop = pipes.pop()
    cells = []
    for left, right in zip([start, *(at + 1 for at in pipes)], [*pipes, stop], strict=True):
        part = text[left:right].strip()
        inner = text.index(part, left) if part else left
        cells.append(Cell(part.replace("\\|", "|"), inner, inner + len(part) if part else right))
    return cells


def _without_code(text: str) -> str:
    """Return a line whose code is masked: from a run of backticks to the next as long (CommonMark 6.1)."""
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
