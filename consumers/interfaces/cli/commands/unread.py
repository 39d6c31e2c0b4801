"""`deed unread`: lists events of others that concern this agent and that it has not read yet."""

from __future__ import annotations

from typing import Any

import click

from deedbook.consumers.handoffs.unread import COMMAND, peek, read_next
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import quote_text


@click.command(cls=ReadingCommand)
@click.option("--peek", "peeks", is_flag=True, help="Show them, and show them again the next time.")
@output.limit_option(what="Lines at a time.")
def unread(app: ReadingApp, *, peeks: bool, limit: int) -> None:
    """Show once what others signed that concerns you: on your handoffs and questions, and every decision.

    The position of each agent is stored in the ledger's folder on this machine.
    """
    agent = app.acting()
    app.query("agents.show", id=agent)  # a misspelled name gets no position
    answer = (peek if peeks else read_next)(app.query_with, app.settings().home, agent, limit)
    items, left = answer["items"], answer["total"] - len(answer["items"])
    following = COMMAND if left else None

    def text() -> None:
        for item in items:
            print_line(item)
        if not items:
            echo("nothing is new")
        elif left:
            echo(f"{left} more: {COMMAND}")

    app.show("handoffs.unread", answer | {"left": left}, text, following=following)


def print_line(item: dict[str, Any]) -> None:
    """Print one new line: the time, the handoff, decision or question, the agent, and the event."""
    time, mark = output.when(item["accepted_ms"]), output.marks_cell(item)
    echo(f"{time}  {item['id']}: {item['author']} {quote_text(item['text'])} {mark}".rstrip())
