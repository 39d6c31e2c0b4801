"""`deed decisions`: lists the decisions in force, or shows one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from deedbook.consumers.handoffs.decisions import project_path
from deedbook.consumers.interfaces.cli.output import list_page, page_options, period_options, when
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import quote_text
from deedbook.ledger.errors import Refused

path_option = click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="A file or folder, such as src/api.py or src/**. Repeatable."
)


@click.command(cls=ReadingCommand, looks_back=True)
@click.argument("id_", metavar="[ID]", required=False)
@path_option
@click.option("--all", "is_all", is_flag=True, help="Also decisions that were replaced or withdrawn.")
@click.option("--contract", is_flag=True, default=None, help="Only contracts: decisions on which other parts rely.")
@click.option("--author", metavar="NAME", help="Only decisions of this agent.")
@period_options("Only decisions made at or after this time")
@page_options()
def decisions(app: ReadingApp, id_: str | None, paths: tuple[str, ...], *, is_all: bool, **filters: Any) -> None:
    """List the decisions in force, newest first, or show one.

    With --path FILE: the decisions about this file, and about the folders that contain it. With --path FOLDER: also
    the decisions about files and folders in it.
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
    filters["paths"] = of_project(app, paths) or None
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


def of_project(app: ReadingApp, paths: tuple[str, ...]) -> list[str]:
    """Return paths typed here as paths of the project."""
    project = app.settings().home.parent
    return [project_path(path, project, Path.cwd()) for path in paths]
