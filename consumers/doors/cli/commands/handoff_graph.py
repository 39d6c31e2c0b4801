"""`baton handoff graph`: who waits for whom, as a tree, as Mermaid or as DOT."""

from __future__ import annotations

from shlex import join
from typing import Any

import click

from consumers.doors.cli.app import App, command_line
from consumers.doors.cli.graph_text import FORMATS
from consumers.doors.cli.program import Command

lines_max = 500


@click.command(cls=Command)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--dependents", is_flag=True, help="Who waits for ID, instead of what it waits for.")
@click.option("--format", "form", type=click.Choice(sorted(FORMATS)), default="tree", show_default=True)
@click.option("--all", "is_all", is_flag=True, help="Without ID: finished handoffs as well.")
@click.option("--limit", type=click.IntRange(1, lines_max), default=200, show_default=True, help="Lines of the tree.")
@click.option("--cursor", type=click.IntRange(0), help="Go on where an earlier page ended.")
@click.pass_obj
def graph(app: App, /, id_: str | None, *, form: str, dependents: bool, is_all: bool, **given: Any) -> None:
    """Draw what ID waits for, or all open handoffs and who waits for whom.

    The critical path is the longest chain of unfinished handoffs, in the order in which they must be done.
    """
    if dependents and id_ is None:
        raise click.UsageError("--dependents needs an ID")
    asked = {"id": id_, "dependents": dependents or None, "all": is_all or None}
    answer = app.query("handoffs.graph", **asked, limit=given["limit"], after=given["cursor"])

    def text() -> None:
        for line in FORMATS[form](answer):
            click.echo(line)

    options = {"dependents": dependents, "all": is_all, "limit": given["limit"], "cursor": answer["next"]}
    following = None if answer["next"] is None else next_page(answer["id"], options)
    app.show("graph", answer, text, following=following)


def next_page(name: str | None, options: dict[str, Any]) -> str:
    """Return the command of the next page; an id that looks like an option stands behind `--`."""
    words = [] if name is None else ["--", name] if name.startswith("-") else [name]
    return " ".join([command_line("baton handoff graph", options), *([join(words)] if words else [])])
