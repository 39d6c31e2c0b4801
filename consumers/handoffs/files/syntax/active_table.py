r"""The cells of one line of a table, and putting a text into one of them.

Cells are divided as GitHub does: at every pipe that no backslash precedes. With ``keep_code`` also the pipes inside
code spans are text.

The table of small handoffs in ``active.md``, row by row.

A table counts if its header has From, To, Task and Status (Created and Done may be there too, and columns of other
names, in any order). A row is a line of the table; lines with pipes that a program appended below a blank line are
rows too.

Where dividing as GitHub does (``table_cells``) gives a wrong number of cells, pipes inside code spans are taken as
text, which is what who wrote them meant. A row whose cells still do not fit the header is a problem and keeps its
bytes; it is never guessed at.

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from consumers.handoffs.files.syntax.document import is_none, split_title
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

_TICKS: Final = re.compile(r"`+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Cell(NamedTuple):
    r"""A cell's text with ``\|`` read as a pipe, and where it stands on its line."""

    text: str
    start: int
    stop: int


def read_cells(text: str, *, keep_code: bool) -> list[Cell]:
    """Return the cells of a line, without the empty ends that the outer pipes make."""
    masked = text.replace("\\|", "\0\0")
    if keep_code:
        characters = list(masked)
        for start, stop in _code_spans(masked):
            characters[start:stop] = "\0" * (stop - start)
        masked = "".join(characters)
    ends = [at for at, character in enumerate(masked) if character == "|"]
    start, stop = len(text) - len(text.lstrip()), len(text.rstrip())
    if ends and ends[0] == start:
        start = ends.pop(0) + 1
    if ends and ends[-1] == stop - 1:
        stop = ends.pop()
    cells = []
    for left, right in zip([start, *(at + 1 for at in ends)], [*ends, stop], strict=True):
        part = text[left:right]
        inner = left + len(part) - len(part.lstrip())
        stripped = part.strip()
        cells.append(
            Cell(
                stripped.replace("\\|", "|"), inner if stripped else left, inner + len(stripped) if stripped else right
            )
        )
    return cells


def _code_spans(text: str) -> list[tuple[int, int]]:
    """Return where code stands: from a run of backticks to the next run of the same length (CommonMark 6.1)."""
    runs = list(_TICKS.finditer(text))
    following: dict[int, int] = {}
    closing: list[int | None] = []
    for at in range(len(runs) - 1, -1, -1):
        length = len(runs[at][0])
        closing.append(following.get(length))
        following[length] = at
    closing.reverse()
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(runs):
        end = closing[at]
        if end is not None:
            spans.append((runs[at].start(), runs[end].end()))
        at = at + 1 if end is None else end + 1
    return spans


def with_cell(line: str, cell: Cell, text: str) -> str:
    """Return a line with another text in one of its cells.

    Raises:
        Refused: ``INVALID_FIELD`` for a text that is more than one line.
    """
    if _CONTROL.search(text):
        raise Refused("INVALID_FIELD", f"{quoted(text)} cannot stand in a cell: it must be one line", field="done")
    written = text.replace("|", "\\|")
    if not cell.text:  # an empty cell may have no room around it
        written = f" {written} "
    return line[: cell.start] + written + line[cell.stop :]


COLUMNS: Final = ("From", "To", "Task", "Status", "Created", "Done")
slug_max_chars: Final = 60
day_max_chars: Final = 20

_NEEDED: Final = COLUMNS[:4]

_WORD: Final = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
_MARKUP: Final = re.compile(r"[\W_]*")
_NOT_SLUG: Final = re.compile(r"[\W_]+")


class TableRow(msgspec.Struct, frozen=True):
    """A row: its cells in the order of the header, and the six that have a meaning.

    ``status`` is the first word of its cell, ``status_rest`` the text after it. ``created`` and ``done`` are as
    written (days often have no year), None for ``—``. ``key`` is what makes two rows the same.
    """

    line: int
    cells: tuple[Cell, ...]
    columns: tuple[str, ...]
    sender: str
    to: str
    task: str
    status: str
    status_rest: str
    created: str | None
    done: str | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """From, To, Task and Created, without differences of case and white space."""
        parts = (self.sender, self.to, self.task, self.created or "")
        folded = (" ".join(unicodedata.normalize("NFC", part).casefold().split()) for part in parts)
        sender, to, task, created = folded
        return sender, to, task, created

    def cell(self, column: str) -> Cell | None:
        """Return the cell of a column of ``COLUMNS``, or None if the table has no such column."""
        return self.cells[self.columns.index(column)] if column in self.columns else None


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


class RowChange(msgspec.Struct, frozen=True):
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
    title = next((one.text for one in blocks.headings if one.level == 1), "")
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
    others = {index for start, stop in blocks.tables for index in range(start, stop)}
    for position, (start, stop, columns) in enumerate(headers):
        end = headers[position + 1][0] if position + 1 < len(headers) else len(lines)
        for index in range(start + 2, end):
            is_inside = index < stop
            text = text_of(lines[index])
            is_outside_row = text.lstrip().startswith("|") and index not in others and index not in blocks.code
            if is_blank(text) or not (is_inside or is_outside_row):
                continue
            row = _read_row(text, index + 1, columns)
            if isinstance(row, Problem):
                problems.append(row)
            else:
                rows.append(row)
                problems += _row_problems(row, is_inside=is_inside)
    problems += _repeated(rows)
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
        cells: list[tuple[Cell, str]] = []
        if change.status is not None and change.status != row.status:
            cells.append(_status_change(line, row, change.status))
        if change.done is not None and change.done != _cell_of(row, "Done").text:
            cells.append((_cell_of(row, "Done"), change.done))
        for cell, text in sorted(cells, reverse=True, key=lambda one: one[0].start):
            line = with_cell(line, cell, text)
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
    plain = _NOT_SLUG.sub("-", unicodedata.normalize("NFC", text).lower()).strip("-")
    return plain[:length].strip("-")


def _headers(lines: Sequence[str], blocks: Blocks) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield where each table of handoffs begins and ends, and the columns of it by their names here."""
    names = {name.casefold(): name for name in COLUMNS}
    for start, stop in blocks.tables:
        texts = [cell.text.strip(" \t*_`") for cell in read_cells(text_of(lines[start]), keep_code=False)]
        columns = tuple(names.get(text.casefold(), text) for text in texts)
        if set(_NEEDED) <= set(columns):
            yield start, stop, columns


def _read_row(text: str, line: int, columns: tuple[str, ...]) -> TableRow | Problem:
    cells = read_cells(text, keep_code=False)
    if len(cells) != len(columns):
        kept = read_cells(text, keep_code=True)
        if len(kept) != len(columns):
            return Problem(
                line, f"this row has {len(cells)} cells where the header has {len(columns)}; it is kept as it is"
            )
        cells = kept
    values = dict(zip(columns, (cell.text for cell in cells), strict=True))
    status = values["Status"]
    word = _first_word(status)
    created, done = values.get("Created", ""), values.get("Done", "")
    return TableRow(
        line=line,
        cells=tuple(cells),
        columns=columns,
        sender=values["From"],
        to=values["To"],
        task=values["Task"],
        status=word[0] if word else "",
        status_rest=status[word.end() :] if word else "",
        created=None if is_none(created) else created,
        done=None if is_none(done) else done,
    )


def _first_word(text: str) -> re.Match[str] | None:
    """Return the first word of a cell, behind markup or signs; None where the cell says that there is none."""
    if is_none(text):
        return None
    markup = _MARKUP.match(text)
    return _WORD.match(text, markup.end() if markup else 0)


def _status_change(line: str, row: TableRow, status: str) -> tuple[Cell, str]:
    """Return what of the line gives way to a status: the word, or all of a cell without one."""
    if not _WORD.fullmatch(status):
        raise Refused("INVALID_FIELD", f"{quoted(status)} is no status word", field="status")
    cell = _cell_of(row, "Status")
    word = _first_word(line[cell.start : cell.stop])
    if word is None:
        return cell, status
    return Cell(word[0], cell.start + word.start(), cell.start + word.end()), status


def _cell_of(row: TableRow, column: str) -> Cell:
    cell = row.cell(column)
    if cell is None:
        raise Refused("INVALID_FIELD", f"the table has no column {column}", field=column.lower())
    return cell


def _row_problems(row: TableRow, *, is_inside: bool) -> Iterator[Problem]:
    if not is_inside:
        yield Problem(row.line, "this row stands below the end of its table; it is read as part of it")
    for column, text in (("From", row.sender), ("To", row.to), ("Task", row.task), ("Status", row.status)):
        if is_none(text):
            yield Problem(row.line, f"this row does not say {column}")


def _repeated(rows: Sequence[TableRow]) -> Iterator[Problem]:
    first: dict[tuple[str, str, str, str], int] = {}
    for row in rows:
        if row.key in first:
            yield Problem(row.line, f"this row says the same as line {first[row.key]}; both are kept")
        first.setdefault(row.key, row.line)
