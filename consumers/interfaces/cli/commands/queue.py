"""`deed next`, `deed handoff why`: what waits for an agent, and whom a handoff waits for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from deedbook.consumers.handoffs.operations import next_on, with_commands
from deedbook.consumers.handoffs.unread import COMMAND, line_of, more_of, peek
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.sdk.text import counted, quote_text, sanitize_line
from deedbook.ledger.client.spool import spools

later_max: Final = 3


@click.command(cls=ReadingCommand, looks_back=True)
@click.argument("id_", metavar="ID")
@web_option("handoff", "id_", "handoffs.facts")
def why(app: ReadingApp, id_: str) -> None:
    """Explain why a handoff is not ready, and who must act, or say that it is."""
    answer = app.query("handoffs.why", id=id_)
    following = next_on(answer) if app.bundle is None else []  # nobody can act on a bundle
    answer["next"] = [command for _, command in following]
    answer["waits"] = with_commands({"items": answer["waits"]})["items"]

    def text() -> None:
        echo(quote_text(answer["sentence"]))
        for item in (item for item in answer["waits"] if item["id"] != answer["id"]):
            title, since = sanitize_line(item["title"]), output.when(item["since_ms"])
            output.print_lines(f"  {item['agent']}: {item['action']} {item['id']}  {title}  (since {since})")
        output.print_next(following, app.settings().agent)

    app.show("handoffs.why", answer, text, following=next(iter(answer["next"]), None))


@click.command("next", cls=ReadingCommand, looks_back=True)
@click.option("--all", "is_all", is_flag=True, help="Show what waits for everybody, agent by agent.")
@output.route_options
@output.limit_option()
@click.option("--after", help="Continue after an earlier page.")
def next_(app: ReadingApp, *, is_all: bool, **filters: Any) -> None:
    """Show what waits for the acting agent, most urgent first; without --as, for everybody."""
    agent = None if is_all else app.settings().agent
    answer = app.query("handoffs.next", agent=agent, **filters)
    answer = with_commands(answer, is_asked=not app.as_json and sys.stdin.isatty() and sys.stdout.isatty())
    if any(item["reasoning_refs"] for item in answer["items"]):
        answer = load("cited_reasoning:of_queue")(app, answer, agent)  # `handoff show` prints their briefs
    if agent is not None and app.bundle is None and app.instant is None:
        answer["unread"] = peek(app.query_with, app.settings().home, agent)
    if agent is not None and not answer["items"] and app.bundle is None:
        answer["later"] = app.query("handoffs.list", to=agent, progress="waiting", limit=later_max)
        answer["others"] = app.query("handoffs.next", agent=None, **filters | {"limit": 1, "after": None})["total"]
    spooled = [(name, *spool.counts()) for name, spool in spools(app.settings().home) if agent in (None, name)]
    if spooled := [counts for counts in spooled if any(counts[1:])]:
        answer["spool"] = [dict(zip(("agent", "waiting", "rejected"), counts, strict=True)) for counts in spooled]
        for name, waiting, rejected in spooled:
            what = f"of {name} {waiting} operations wait to be recorded, {rejected} were refused: `deed spool list`"
            echo(what, fg="yellow", err=True)

    def text() -> None:
        print_unread(answer.get("unread"), agent)
        print_items(answer["items"], agent)
        output.print_lines(*_later_text(answer.get("later"), agent))
        if answer.get("others") and not answer["later"]["items"]:
            echo(f"  {counted(answer['others'], 'item')} for others: `deed next --all --as {agent}`")

    output.show_page(app, "handoffs.next", answer, text)


def _later_text(later: dict[str, Any] | None, agent: str | None) -> Iterator[str]:
    """Yield the handoffs to an agent that wait for others, if nothing waits for the agent."""
    items = later["items"] if later else []
    for row in items:
        on = [other["id"] for other in row["depends_on"] if other["status"] not in ("completed", "verified")]
        waits = f", waits for {', '.join(on[:later_max])}" if on and row["status"] in ("pending", "approved") else ""
        state = f"{row['id']} is {row['status'].replace('_', ' ')}{waits}"
        yield f"  later: {sanitize_line(state)} (`deed handoff why {shlex.quote(row['id'])}`)"
    if later and later["total"] > len(items):
        yield f"  and {later['total'] - len(items)} more: `deed handoff list --to {agent}`"


def print_unread(unread: dict[str, Any] | None, agent: str | None) -> None:
    """Print the number of unread lines of others, and the first of them."""
    if not unread or not unread["items"]:
        return
    echo(f"{counted(unread['total'], 'new line')} for you: {COMMAND} --as {agent}")
    for item in unread["items"]:
        output.print_lines(f"  {line_of(item)}")
    output.print_lines(*(f"  {line}" for line in more_of(unread)))


def print_items(items: list[dict[str, Any]], agent: str | None) -> None:
    """Print each item with its command below it; for ``agent`` None, with a heading for each agent."""
    if not items:
        echo("nothing waits for " + ("anybody" if agent is None else agent))
    heading: str | None = None
    for item in items:
        if agent is None and item["agent"] != heading:
            heading = item["agent"]
            echo(heading, bold=True)
        where = f"[{item['status']} → {item['to'] or '?'}]" if item["kind"] == "handoff" else f"[{item['kind']}]"
        since, doubt = output.when(item["since_ms"]), output.marks_cell(item)
        output.print_lines(
            f"{item['action']:8}  {where} {sanitize_line(item['title'])}  (since {since})",
            f"          {sanitize_line(item['why'])}{'  ' if doubt else ''}{doubt}",
        )
        output.print_command(sanitize_line(item["command"]), " " * 10)
        output.print_lines(*(f"          reasoning {citation['said']}" for citation in item.get("reasoning", ())))
