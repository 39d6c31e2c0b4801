"""The board of handoffs on a terminal: columns side by side where they fit, else one list below the other.

Cells are counted, not characters: Chinese takes two. What does not fit is cut with an ellipsis; `--json` has it all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final

from consumers.doors.cli.output import width
from consumers.sdk.text import one_line

column_cells_min: Final = 14
column_cells_max: Final = 40
title_lines_max: Final = 3
gap: Final = "  "

HEADINGS: Final = {"in_progress": "in progress"}


def board_text(columns: list[dict[str, Any]], cells: int) -> Iterator[str]:
    """Yield the lines of the board for a terminal that is ``cells`` wide."""
    shown = [column for column in columns if column["handoffs"]]
    others = [column for column in columns if not column["handoffs"]]
    if shown:
        room = (cells - len(gap) * (len(shown) - 1)) // len(shown)
        yield from (
            _side_by_side(shown, min(room, column_cells_max)) if room >= column_cells_min else _list(shown, cells)
        )
    counted = [f"{_heading(column)} {column['total']}" for column in others if column["total"]]
    if counted:
        yield "not shown: " + ", ".join(counted)
    if not shown and not counted:
        yield "(none)"


def cut(text: str, cells: int) -> str:
    """Return as much of a text as fits, with an ellipsis where something is left out."""
    if width(text) <= cells:
        return text
    kept = ""
    for one in text:
        if width(kept) + width(one) > cells - 1:
            break
        kept += one
    return kept.rstrip() + "…"


def wrap(text: str, cells: int, lines_max: int) -> list[str]:
    """Return a text in at most so many lines, broken at spaces or between wide characters."""
    lines: list[str] = []
    rest = one_line(text)
    while rest and len(lines) < lines_max - 1 and width(rest) > cells:
        head = _head(rest, cells)
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*lines, cut(rest, cells)] if rest else lines


def depends_text(wanted: list[dict[str, Any]], cells: int) -> str:
    """Return the ids that a handoff depends on, shortened; a missing one is said."""
    names = [one["id"] if one["status"] else f"{one['id']} (missing)" for one in wanted]
    return cut(one_line(", ".join(names)), cells)


def _head(text: str, cells: int) -> str:
    kept, taken = 0, 0
    for one in text:
        taken += width(one)
        if taken > cells:
            break
        kept += 1
    kept = max(kept, 1)
    space = text.rfind(" ", 0, kept + 1)
    is_within_word = kept < len(text) and text[kept].isascii() and text[kept - 1].isascii() and text[kept] != " "
    return text[:space] if is_within_word and space > 0 else text[:kept]


def _heading(column: dict[str, Any]) -> str:
    status: str = column["status"]
    return HEADINGS.get(status, status)


def _title(column: dict[str, Any]) -> str:
    return f"{_heading(column)} ({column['total']})"


def _card(handoff: dict[str, Any], cells: int) -> list[str]:
    lines = wrap(handoff["title"] or handoff["id"], cells, title_lines_max)
    done = f" {handoff['tasks_done']}/{handoff['tasks_total']}" if handoff["tasks_total"] else ""
    lines.append(cut(f"→ {handoff['to'] or '?'}{done}", cells))
    if handoff["is_ready"]:
        lines.append("ready")
    elif waits := _waits_for(handoff):
        lines.append(cut(f"waits for {depends_text(waits, cells)}", cells))
    return lines


def _waits_for(handoff: dict[str, Any]) -> list[dict[str, Any]]:
    if handoff["status"] not in ("pending", "approved"):
        return []
    return [one for one in handoff["depends_on"] if one["status"] not in ("completed", "verified")]


def _left(column: dict[str, Any]) -> list[str]:
    left = column["total"] - len(column["handoffs"])
    return [f"and {left} more"] if left else []


def _side_by_side(columns: list[dict[str, Any]], cells: int) -> Iterator[str]:
    stacks = []
    for column in columns:
        stack = [cut(_title(column), cells), "─" * cells]
        for handoff in column["handoffs"]:
            stack += [*_card(handoff, cells), ""]
        stacks.append(stack + _left(column))
    for row in zip_longest(*stacks, fillvalue=""):
        yield gap.join(cell + " " * (cells - width(cell)) for cell in row).rstrip()


def _list(columns: list[dict[str, Any]], cells: int) -> Iterator[str]:
    for column in columns:
        yield cut(_title(column), cells)
        for handoff in column["handoffs"]:
            first, *others = _card(handoff, max(cells - 2, column_cells_min - 2))
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
        yield from _left(column)
        yield ""
