"""`baton review`: what waits for a human, and the human's answer (seed 001, "Runtime Flow")."""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.app import App, read_text
from consumers.doors.cli.commands.events import fields_of
from consumers.doors.cli.output import show_page, when
from consumers.doors.cli.program import Group
from consumers.sdk.text import clean
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.review import ReviewAnswered, Verdict

rows_max = 500


@click.group(cls=Group, aliases={"next": "list", "close": "answer"})
def review() -> None:
    """See what agents may not decide alone, and answer it, as a human."""


@review.command("list")
@click.option("--status", type=click.Choice(["open", "answered", "all"]), default="open", show_default=True)
@click.option("--author", help="Only what this agent asked.")
@click.option("--limit", type=click.IntRange(1, rows_max), default=50, show_default=True)
@click.option("--cursor", type=int, help="Go on where an earlier page ended.")
@click.pass_obj
def list_(app: App, status: str, author: str | None, limit: int, cursor: int | None) -> None:
    """List requests, those that have waited longest first."""
    wanted = None if status == "all" else status
    answer = app.query("reviews.list", status=wanted, author=author, limit=limit, after=cursor)
    rows = [
        (one["id"], one["verdict"] or one["status"], when(one["requested_ms"]), one["author"], one["rule"],
         one["question"])
        for one in answer["reviews"]
    ]  # fmt: skip
    header = ("id", "status", "asked", "by", "rule", "question")
    options = {"status": status, "author": author, "limit": limit}
    show_page(app, "reviews", answer, (header, rows), ("baton review list", options))


@review.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def show(app: App, id_: str) -> None:
    """Show one request: what is asked, on which grounds, and the answer."""
    found = app.query("reviews.show", id=id_)
    app.show("review", found, lambda: print_review(found))


@review.command()
@click.argument("id_", metavar="ID")
@click.option("--approve", "verdict", flag_value="approved", help="Let the agent act.")
@click.option("--reject", "verdict", flag_value="rejected", help="Do not let it act.")
@click.option("--comment", metavar="TEXT|@FILE", help="Why.")
@click.pass_obj
def answer(app: App, id_: str, verdict: Verdict | None, comment: str | None) -> None:
    """Answer a request. Signed with a human's identity key, which is never delegated."""
    if verdict is None:
        raise Refused("USAGE", "say --approve or --reject")
    name = app.query("reviews.show", id=id_)["id"]
    data = ReviewAnswered(verdict=verdict, comment=read_text(comment, "--comment"))
    accepted = app.author().emit(Draft(stream=f"review/{name}", data=data))[0]
    answered = {"id": name, "status": "answered", "verdict": verdict, "accepted": fields_of(accepted)}
    app.show("review", answered, lambda: click.echo(f"{name} is {verdict} (entry {accepted.index})"))


def print_review(found: dict[str, Any]) -> None:
    """Print a request with its grounds and answer."""
    click.secho(clean(found["question"]), bold=True)
    click.echo(f"{found['id']}  [{found['status']}]  asked by {found['author']} {when(found['requested_ms'])}")
    if found["task"]:
        click.echo(f"  task: {clean(found['task'])}")
    click.echo(f"  rule: {found['rule']}")
    for reason in found["reasons"]:
        click.echo(f"  - {clean(reason)}")
    if found["reasoning_ref"]:
        click.echo(f"  reasoning: {found['reasoning_ref']}")
    if found["snapshot_id"]:
        click.echo(f"  snapshot: {found['snapshot_id']}")
    if found["verdict"]:
        said = f": {found['comment']}" if found["comment"] else ""
        click.echo(f"{found['verdict']} by {found['answered_by']}{clean(said)}")
