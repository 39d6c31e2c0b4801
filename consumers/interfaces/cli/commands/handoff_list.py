"""`deed handoff list`: handoffs as rows, or as a board.

The columns of the board are side by side if they fit, else one below the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import Any, Final, get_args

import click

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.lifecycle.handoff_status import Status

cards_default: Final = 20


depends_cells_max: Final = 36


column_cells_min: Final = 14


column_cells_max: Final = 40


@click.command("list", cls=ReadingCommand, looks_back=True)
@click.option("--status", type=click.Choice(get_args(Status)), help="Only this state.")
@click.option("--to", metavar="NAME", help="Only handoffs to this agent.")
@click.option("--from", "sender", metavar="NAME", help="Only handoffs from this agent.")
@click.option("--reviewer", metavar="NAME", help="Only handoffs that this agent reviews.")
@click.option("--ready", is_flag=True, help="Only handoffs that can be claimed now.")
@output.period_options("Only handoffs that changed at or after this time")
@click.option("--board", is_flag=True, help="Show a column for each state.")
@click.option("--over", "is_history", is_flag=True, help="Only imported handoffs that claim to be over.")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Also imported handoffs that claim to be over; with --board also finished handoffs.",
)
@click.option("--limit", type=click.IntRange(1, output.rows_max), help="Rows (default: 50), or cards of a column (20).")
@click.option("--after", type=int, help="Continue after an earlier page.")
def list_(app: ReadingApp, /, *, board: bool, is_all: bool, is_history: bool, **filters: Any) -> None:
    """List handoffs, newest first. Imported handoffs that claim to be over are only counted.

    The list comes from the views, which are not checked: anybody who can write to the folder can change them. `deed
    handoff show ID` and `deed next` read the signed events instead, and `deed verify --views` compares the views with
    them.
    """
    if is_all and is_history:
        raise click.UsageError("--all includes what --over selects: give one of them")
    history = "only" if is_history else "shown" if is_all else "hidden"
    if board:
        _show_board(app, is_all=is_all, history=history, **filters)
    else:
        _show_list(app, history=history, **filters)


def _show_list(app: ReadingApp, /, *, ready: bool, sender: str | None, after: int | None, **filters: Any) -> None:
    answer = app.query("handoffs.list", ready=ready or None, **filters, **{"from": sender}, after=after)
    is_done = ("completed", "verified")  # an earlier request for changes is history then
    rows = [
        (
            handoff["id"],
            f"[{handoff['status']} → {handoff['to'] or '?'}]",
            handoff["title"],
            output.marks_cell(handoff)
            or ("ready" if handoff["is_ready"] else "" if handoff["status"] in is_done else handoff["reason"])
            or _claim_text(handoff),
            f"{handoff['tasks_done']}/{handoff['tasks_total']} tasks done" if handoff["tasks_total"] else "",
            output.cut(_depends_text(handoff["depends_on"]), depends_cells_max),
        )
        for handoff in answer["items"]
    ]
    header = ("id", "status", "title", "why", "tasks", "depends on")

    def text() -> None:
        output.print_table(header, rows)
        output.print_lines(*_history_text(answer["history"]))

    output.show_page(app, "handoffs.list", answer, text)


def _claim_text(handoff: dict[str, Any]) -> str:
    """Return the status that the imported file of a pending handoff claims."""
    is_claim = handoff["status"] == "pending" and handoff["claimed_status"]
    return output.cut(f"claims {handoff['claimed_status']!r}", depends_cells_max) if is_claim else ""


def _history_text(count: int) -> Iterator[str]:
    if count:
        phrase = "1 imported handoff that claims" if count == 1 else f"{count} imported handoffs that claim"
        yield f"left out: {phrase} to be over (`deed handoff list --over`)"


def _show_board(app: ReadingApp, /, *, sender: str | None, is_all: bool, **filters: Any) -> None:
    for option in ("status", "ready", "since", "until", "after"):
        if filters.pop(option):
            raise click.UsageError(f"--{option} needs a list; the board shows every state")
    limit = filters.pop("limit") or cards_default
    answer = app.query("handoffs.board", **filters, **{"from": sender, "all": is_all or None}, limit=limit)

    cells = output.screen_cells()
    lines = (*board_text(answer["columns"], cells), *_history_text(answer["history"]))
    app.show("handoffs.board", answer, lambda: output.print_lines(*lines))


def board_text(columns: list[dict[str, Any]], cells: int) -> Iterator[str]:
    """Yield the lines of the board for a terminal that is ``cells`` wide."""
    filled = [column for column in columns if column["handoffs"]]
    room = (cells + len(output.gap)) // max(1, len(filled)) - len(output.gap)
    fits = room >= column_cells_min
    wide = min(room, column_cells_max) if fits else cells
    for group in filter(None, [filled] if fits else [[column] for column in filled]):
        texts = ([f"{_heading(column)} ({column['total']})", "─" * wide, *_cards(column)] for column in group)
        yield from _side_by_side(texts, wide)
    if counted := [
        f"{_heading(column)} {column['total']}" for column in columns if column["total"] and not column["handoffs"]
    ]:
        yield "not shown: " + ", ".join(counted)
    elif not filled:
        yield "(none)"


def _side_by_side(columns: Iterable[Iterable[str]], cells: int) -> Iterator[str]:
    """Yield the lines of columns of this width.

    A text is broken between words; a word that is too long for a line is broken, too.
    """
    for line in zip_longest(*(chain(*(_wrapped(text, cells) for text in texts)) for texts in columns), fillvalue=""):
        yield output.gap.join(output.padded(cell, cells) for cell in line).rstrip()


def _wrapped(text: str, cells: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and output.width(line) + 1 + output.width(word) > cells:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
        while output.width(line) > cells:
            part = output.fitting(line, cells) or line[0]
            yield part
            line = line[len(part) :]
    yield line


def _depends_text(wanted: list[dict[str, Any]]) -> str:
    return sanitize_line(
        ", ".join(
            dependency["id"] if dependency["status"] else f"{dependency['id']} (missing)" for dependency in wanted
        )
    )


def _heading(column: dict[str, Any]) -> str:
    return str(column["status"]).replace("_", " ")


def _cards(column: dict[str, Any]) -> Iterator[str]:
    for handoff in column["handoffs"]:
        yield sanitize_line(handoff["title"] or handoff["id"])
        done = f" {handoff['tasks_done']}/{handoff['tasks_total']}" if handoff["tasks_total"] else ""
        yield f"→ {handoff['to'] or '?'}{done}"
        waits = [
            dependency for dependency in handoff["depends_on"] if dependency["status"] not in ("completed", "verified")
        ]
        if handoff["is_ready"]:
            yield "ready"
        elif waits and handoff["status"] in ("pending", "approved"):
            yield f"waits for {_depends_text(waits)}"
        if claim := _claim_text(handoff):
            yield claim
        yield ""
    if left := column["total"] - len(column["handoffs"]):
        yield f"and {left} more"
        yield ""
