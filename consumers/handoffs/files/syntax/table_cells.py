r"""The cells of one line of a table, and putting a text into one of them.

Cells are divided as GitHub does: at every pipe that no backslash precedes. With ``keep_code`` also the pipes inside
code spans are text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from consumers.handoffs.files.syntax.lines import quoted
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
