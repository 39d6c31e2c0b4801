"""`baton import list`: what was imported, what it stands for, and what was only kept aside (DESIGN §13)."""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.app import App, command_line
from consumers.doors.cli.output import print_table
from consumers.doors.cli.program import Command
from consumers.sdk.text import clean

rows_max = 500


@click.command("list", cls=Command)
@click.option(
    "--kept-aside/--mapped", "kept_aside", default=None, help="Only what stands for nothing here, or for something."
)
@click.option("--kind", metavar="KIND", help="Only what stands for this kind of event, as report.generated.")
@click.option(
    "--format", "read_as", metavar="FORMAT", help="Only what was read as this, as empirica or empirica/handoff."
)
@click.option("--source", metavar="START", help="Only what was found at a place that begins so.")
@click.option("--agent", metavar="NAME", help="Only what this agent imported.")
@click.option("--dirty", is_flag=True, help="Only what has values that could not be read as they were meant.")
@click.option("--limit", type=click.IntRange(1, rows_max), default=50, show_default=True)
@click.option("--cursor", type=int, help="Go on where an earlier page ended.")
@click.pass_obj
def list_(app: App, /, *, limit: int, cursor: int | None, **given: Any) -> None:
    """List imported records in the order of the ledger.

    `baton show ENTRY` shows one with what it says and what is dirty; `original` is the ref of its bytes.
    """
    asked = {
        "kept_aside": given["kept_aside"],
        "mapped": given["kind"],
        "format": given["read_as"],
        "source": given["source"],
        "importer": given["agent"],
        "dirty": given["dirty"],
    }
    found = app.query("records.list", **asked, limit=limit, after=cursor)
    side = None if given["kept_aside"] is None else "kept-aside" if given["kept_aside"] else "mapped"
    options = {
        **({side: True} if side else {}),
        "kind": given["kind"],
        "format": given["read_as"],
        "source": given["source"],
        "agent": given["agent"],
        "dirty": given["dirty"],
        "limit": limit,
        "cursor": found["next"],
    }
    following = None if found["next"] is None else command_line("baton import list", options)

    def text() -> None:
        rows = [
            (one["event_index"], one["mapped_kind"] or "kept aside", one["claimed_at"] or "-",
             one["claimed_author"] or "-", one["importer"], one["dirty"] or "-", one["source"], one["reason"])
            for one in found["records"]
        ]  # fmt: skip
        print_table(("entry", "stands for", "claimed time", "by", "imported by", "dirty", "source", "why"), rows)
        if following is not None:
            click.echo(f"{found['total']} in all; go on with: {clean(following)}")

    app.show("records", found, text, following=following)
