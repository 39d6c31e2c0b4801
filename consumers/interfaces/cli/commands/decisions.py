"""`deed decide`, `deed withdraw`: decisions about files."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import asdict

from deedbook.consumers.handoffs.decision_drafts import drafts_of, withdrawal
from deedbook.consumers.handoffs.decisions import line_of, standing
from deedbook.consumers.interfaces.cli.app import App, Command, read_text
from deedbook.consumers.interfaces.cli.commands.decision_list import of_project, path_option
from deedbook.consumers.interfaces.cli.terminal import echo


@click.command(cls=Command)
@click.argument("text", metavar="TEXT|@FILE")
@path_option
@click.option(
    "--contract",
    is_flag=True,
    help="Other parts rely on this decision: agents must ask before they change these files.",
)
@click.option("--why", metavar="TEXT|@FILE", help="The reason.")
@click.option("--supersedes", multiple=True, metavar="ID", help="A decision that this one replaces. Repeatable.")
@click.option("--id", "id_", metavar="ID", help="Its id (default: the first words of the text).")
def decide(app: App, text: str, paths: tuple[str, ...], **options: Any) -> None:
    """Tell every agent of the ledger what was decided, about which files, and why.

    Only the author of a decision, a reviewer or a human may replace or withdraw it.
    """
    text, options["why"] = read_text(text, "TEXT"), read_text(options["why"], "--why")
    here = of_project(app, paths)
    beside = [row for row in standing(app.query_with, here)["items"] if row["id"] not in options["supersedes"]]
    name, drafts = drafts_of(app.query_with, text, paths=here, **options)
    accepted = app.author().emit(*drafts)
    replaced = [draft.stream.partition("/")[2] for draft in drafts[1:]]
    answer = {"id": name, "accepted": [asdict(entry) for entry in accepted], "supersedes": replaced, "beside": beside}

    def show() -> None:
        echo(f"{name} stands (entry {accepted[0].index})")
        for other in replaced:
            echo(f"  it replaces {other}")
        for row in beside:
            echo(f"  another decision about these files: {line_of(row)}")

    app.show("decision", answer, show)


@click.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT|@FILE", help="Why it is no longer in force.")
def withdraw(app: App, id_: str, reason: str) -> None:
    """Withdraw a decision. To replace it by another one, use `deed decide --supersedes ID`."""
    name, draft = withdrawal(app.query_with, id_, read_text(reason, "--reason"))
    (accepted,) = app.author().emit(draft)
    app.show("decision", {"id": name, "accepted": [asdict(accepted)]}, f"{name} is withdrawn (entry {accepted.index})")
