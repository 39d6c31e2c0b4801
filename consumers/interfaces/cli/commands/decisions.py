"""`deed decide`, `deed decisions`, `deed withdraw`: decisions about files."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click
from msgspec.structs import asdict

from deedbook.consumers.handoffs.decision_drafts import drafts_of, withdrawal
from deedbook.consumers.handoffs.decisions import line_of, project_path, standing
from deedbook.consumers.interfaces.cli.app import App, Command, read_text
from deedbook.consumers.interfaces.cli.output import list_page, page_options, period_options, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import quote_text
from deedbook.ledger.errors import Refused

_PATH = click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="A file or folder, such as src/api.py or src/**. Repeatable."
)


@click.command(cls=Command)
@click.argument("text", metavar="TEXT|@FILE")
@_PATH
@click.option("--contract", is_flag=True, help="Other parts rely on it: who changes these files asks first.")
@click.option("--why", metavar="TEXT|@FILE", help="The reason.")
@click.option("--supersedes", multiple=True, metavar="ID", help="A decision that this one replaces. Repeatable.")
@click.option("--id", "id_", metavar="ID", help="Its id (default: the first words of the text).")
def decide(app: App, text: str, paths: tuple[str, ...], **options: Any) -> None:
    """Tell every agent of the ledger what was decided, about which files, and why.

    Only the author of a decision, a reviewer or a human may replace or withdraw it.
    """
    text, options["why"] = read_text(text, "TEXT"), read_text(options["why"], "--why")
    here = _of_project(app, paths)
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


@click.command(cls=Command, looks_back=True)
@click.argument("id_", metavar="[ID]", required=False)
@_PATH
@click.option("--all", "is_all", is_flag=True, help="Also those that were replaced or withdrawn.")
@click.option("--contract", is_flag=True, default=None, help="Only contracts.")
@click.option("--author", metavar="NAME", help="Only those of this agent.")
@period_options("Only those made since")
@page_options()
def decisions(app: App, id_: str | None, paths: tuple[str, ...], *, is_all: bool, **filters: Any) -> None:
    """List the decisions in force, newest first, or show one.

    --path lists those about a file, a folder it is in, or files in the folder.
    """
    if id_ is not None:
        try:
            decision = app.query("decisions.show", id=id_)
        except Refused as refusal:
            if refusal.code != "NOT_FOUND" or not ("/" in id_ or Path(id_).exists()):
                raise
            hint = f"did you mean `deed decisions --path {quote(id_)}`?"
            raise Refused(refusal.code, f"there is no decision {id_}: {hint}", **refusal.details) from refusal
        app.show("decisions.show", decision, lambda: print_decision(decision))
        return
    filters["paths"] = _of_project(app, paths) or None
    filters["status"] = None if is_all else "standing"
    list_page(
        app,
        "decisions.list",
        filters,
        lambda row: {
            "id": row["id"],
            **({"status": row["status"]} if is_all else {}),
            "made": when(row["made_ms"]),
            "by": row["author"],
            "kind": "contract" if row["contract"] else "decision",
            "about": ", ".join(row["paths"]),
            "text": row["text"],
        },
    )


@click.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT|@FILE", help="Why it is no longer in force.")
def withdraw(app: App, id_: str, reason: str) -> None:
    """Withdraw a decision. To replace it by another one, use `deed decide --supersedes ID`."""
    name, draft = withdrawal(app.query_with, id_, read_text(reason, "--reason"))
    (accepted,) = app.author().emit(draft)
    app.show("decision", {"id": name, "accepted": [asdict(accepted)]}, f"{name} is withdrawn (entry {accepted.index})")


def print_decision(decision: dict[str, Any]) -> None:
    """Print one decision."""
    echo(quote_text(decision["text"]), bold=True)
    kind = "contract" if decision["contract"] else "decision"
    echo(f"{decision['id']}  [{decision['status']}]  {kind} by {decision['author']} {when(decision['made_ms'])}")
    for path in decision["paths"]:
        echo(f"  about {quote_text(path)}")
    for other in decision["supersedes"]:
        echo(f"  it replaces {other}")
    if decision["why"]:
        echo(f"  why: {quote_text(decision['why'])}")
    if decision["ended_by"]:
        how = f"replaced by {decision['superseded_by']}" if decision["superseded_by"] else "withdrawn"
        reason = quote_text(f": {decision['reason']}") if decision["reason"] else ""
        echo(f"  {how} by {decision['ended_by']} {when(decision['ended_ms'])}{reason}")


def _of_project(app: App, paths: tuple[str, ...]) -> list[str]:
    project = app.settings().home.parent
    return [project_path(path, project, Path.cwd()) for path in paths]
