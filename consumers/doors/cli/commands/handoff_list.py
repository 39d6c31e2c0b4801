"""`baton handoff list` and `show`: where all stand, as rows or as a board, and everything about one."""

from __future__ import annotations

from typing import Any, get_args

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.board_text import board_text, depends_text
from consumers.doors.cli.handoff_text import print_handoff
from consumers.doors.cli.output import show_page
from consumers.doors.cli.program import Command
from ledger.lifecycle.handoff import Status

rows_max = 500
cards_default = 20
depends_cells_max = 36


@click.command("list", cls=Command)
@click.option("--status", type=click.Choice(get_args(Status)), help="Only those in this state.")
@click.option("--to", metavar="NAME", help="Only those for this agent.")
@click.option("--from", "sender", metavar="NAME", help="Only those from this agent.")
@click.option("--reviewer", metavar="NAME", help="Only those this agent reviews.")
@click.option("--ready", is_flag=True, help="Only those that can be claimed now.")
@click.option("--board", is_flag=True, help="A column for each state, as wide as the terminal allows.")
@click.option("--all", "is_all", is_flag=True, help="With --board: show what is over, too, and not its number alone.")
@click.option("--limit", type=click.IntRange(1, rows_max), help="Rows (default: 50), or cards of a column (20).")
@click.option("--cursor", type=int, help="Go on where an earlier page ended.")
@click.pass_obj
def list_(app: App, /, *, board: bool, **given: Any) -> None:
    """List handoffs, newest first."""
    if board:
        show_board(app, **given)
    elif given.pop("is_all"):
        raise click.UsageError("--all goes with --board: a list shows every state")
    else:
        show_list(app, **given)


@click.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--history", is_flag=True, help="Every event, who signed it with which key, and whether that holds.")
@click.pass_obj
def show(app: App, id_: str, *, history: bool) -> None:
    """Show one handoff: its state and why, tasks, criteria, history."""
    from consumers.doors.cli import signed_history  # noqa: PLC0415 - a list needs no keys

    found = app.query("handoffs.show", id=id_)
    found["gate"] = signed_history.gate_of(app)
    if history:
        found["history"] = signed_history.signed_history(app, found)

    def text() -> None:
        print_handoff(found)
        if history:
            signed_history.print_history(found["history"])
        click.echo(f"\ngate: {found['gate'] or 'not to be seen from here (ask `baton doctor` beside the ledger)'}")

    app.show("handoff", found, text)


def show_list(app: App, /, *, ready: bool, sender: str | None, cursor: int | None, **given: Any) -> None:
    """Print a page of handoffs as rows."""
    answer = app.query("handoffs.list", ready=ready or None, **given, **{"from": sender}, after=cursor)
    rows = [
        (
            one["id"],
            f"[{one['status']} → {one['to']}]",
            one["title"],
            f"{one['tasks_done']}/{one['tasks_total']} tasks done" if one["tasks_total"] else "",
            depends_text(one["depends_on"], depends_cells_max),
            "ready" if one["is_ready"] else _reason(one),
        )
        for one in answer["handoffs"]
    ]
    header = ("id", "status", "title", "tasks", "depends on", "")
    options = {**given, "from": sender, "ready": ready}
    show_page(app, "handoffs", answer, (header, rows), ("baton handoff list", options))


def _reason(one: dict[str, Any]) -> str:
    """Return why it stands where it does; what was asked of it before it was completed is past."""
    return "" if one["status"] in ("completed", "verified") else one["reason"] or ""


def show_board(app: App, /, *, sender: str | None, is_all: bool, **given: Any) -> None:
    """Print the board: a column for each state, with as many cards as asked for and the true total."""
    for option in ("status", "ready", "cursor"):
        if given.pop(option):
            raise click.UsageError(f"--{option} goes with a list: the board shows every state at once")
    import shutil  # noqa: PLC0415 - loads the archivers, which a list does not need

    limit = given.pop("limit") or cards_default
    answer = app.query("handoffs.board", **given, **{"from": sender, "all": is_all or None}, limit=limit)

    def text() -> None:
        for line in board_text(answer["columns"], shutil.get_terminal_size().columns):
            click.echo(line)

    app.show("board", answer, text)
