"""`baton next` (also `ready`): what waits for you, the most urgent first, and the command with which it goes on."""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.app import App, command_line
from consumers.doors.cli.output import when
from consumers.doors.cli.program import Command
from consumers.handoffs.acts import with_commands
from consumers.sdk.text import one_line

rows_max = 500


@click.command("next", cls=Command)
@click.option("--all", "is_all", is_flag=True, help="What waits for everybody, agent by agent.")
@click.option("--limit", type=click.IntRange(1, rows_max), default=50, show_default=True)
@click.option("--cursor", help="Go on where an earlier page ended.")
@click.pass_obj
def next_(app: App, *, is_all: bool, limit: int, cursor: str | None) -> None:
    """Show what waits for the acting agent, most urgent first; without --as, for everybody."""
    agent = None if is_all else app.settings().agent
    answer = with_commands(app.query("handoffs.next", agent=agent, limit=limit, after=cursor))
    options = {"all": is_all, "as": agent, "limit": limit, "cursor": answer["next"]}
    following = None if answer["next"] is None else command_line("baton next", options)

    def text() -> None:
        print_items(answer["items"], agent)
        if following is not None:
            click.echo(f"{answer['total']} in all; go on with `{following}`")

    app.show("next", answer, text, following=following)


def print_items(items: list[dict[str, Any]], agent: str | None) -> None:
    """Print each item with its command below it; ``agent`` None: under a heading for each agent."""
    if not items:
        click.echo("nothing waits for " + ("anybody" if agent is None else agent))
    shown: str | None = None
    for item in items:
        if agent is None and item["agent"] != shown:
            shown = item["agent"]
            click.secho(shown, bold=True)
        where = f"[{item['status']} → {item['to'] or '?'}]" if item["kind"] == "handoff" else "[review]"
        click.echo(f"{item['action']:8}  {where} {one_line(item['title'])}  (since {when(item['since_ms'])})")
        click.echo(f"          {one_line(item['why'])}")
        click.echo(f"          {one_line(item['command'])}")
