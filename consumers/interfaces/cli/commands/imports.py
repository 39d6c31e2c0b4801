"""`deed import`: imports records of other tools, which are stored unchanged and shown as imported; and lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from deedbook.consumers.importers.records import Counts
from deedbook.consumers.importers.sealed import SealedImport
from deedbook.consumers.interfaces.cli.app import App, Command, Group
from deedbook.consumers.interfaces.cli.arguments import seal_option
from deedbook.consumers.interfaces.cli.output import page_options, print_table, show_page
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import Lazy

lines_max: Final = 20


@click.group(
    "import",
    cls=Group,
    lazy={
        "empirica": Lazy(
            "import_notes:empirica", "Import git notes of Empirica: reports, checkpoints, findings, goals."
        ),
        "handoffs": Lazy(
            "handoff_import:import_", "Import handoffs in markdown: v1 and v2 files, proposals, active.md."
        ),
        "thinking": Lazy(
            "import_thinking:thinking", "Import transcripts with thinking blocks, such as those of Claude Code."
        ),
        "list": Lazy("imports:list_", "List imported records, mapped and unmapped."),
    },
    aliases={"ls": "list", "notes": "empirica", "transcript": "thinking"},
)
def import_() -> None:
    """Import records of other tools. Originals are stored, shown as imported, and grant no rights.

    A second run adds nothing. A record that cannot be mapped is stored as unmapped with the reason, and counted.
    """


@click.command("list", cls=Command, looks_back=True)
@click.option("--unmapped", is_flag=True, help="Only records that could not be mapped.")
@click.option("--source", default="", metavar="START", help="Only records whose source begins with this text.")
@click.option("--dirty", is_flag=True, help="Only records with values that could not be read.")
@page_options()
def list_(app: App, /, *, limit: int, after: int | None, **filters: Any) -> None:
    """List imported records in the order of the ledger.

    `deed show ENTRY`, with the number in the column `entry`, prints the data of one record. There, `original` is the
    reference of the imported bytes, and `dirty` has the values that could not be read.
    """
    page = app.query("records.list", **filters, limit=limit, after=after)
    rows = [
        (
            record["event_index"],
            record["mapped_kind"] or "unmapped",
            record["claimed_at"] or "-",
            record["claimed_author"] or "-",
            record["importer"],
            record["dirty"] or "-",
            record["source"],
            record["reason"],
        )
        for record in page["items"]
    ]
    header = ("entry", "stands for", "claimed time", "by", "imported by", "dirty", "source", "why")
    show_page(app, "records.list", page, lambda: print_table(header, rows))


SEAL: Final = seal_option("the originals", " They are then only stored: no records are made from them.")


def sealed_import(app: App, subject: str) -> SealedImport:
    """Return an importer that seals the originals, as the acting agent."""
    return SealedImport(app.author(), app.query_with, app.sealer(subject))


def show_sealed(app: App, subject: str, counts: Counts) -> None:
    """Print the result of a sealed import."""
    answer = counts.answer() | {"subject": subject}
    text = f"{counts.read} read: {counts.added} sealed for {subject}, {counts.read - counts.added} in the ledger before"
    app.show("imported", answer, text)


def print_unmapped(answer: Mapping[str, Any]) -> None:
    """Print the first unmapped and unread records of an import, and the command that lists the rest."""
    for what, records, total, rest in (
        ("unmapped", answer["unmapped_records"], answer["unmapped"], "`deed import list --unmapped` shows all"),
        ("not read", answer["unread"], len(answer["unread"]), "--json has all"),
    ):
        for record in records[:lines_max]:
            echo(f"{what}: {record['source']}: {record['reason']}", err=True)
        if total > lines_max:
            echo(f"{what}: {total - lines_max} more; {rest}", err=True)


def counts_line(answer: Mapping[str, Any]) -> str:
    """Return the counts of an import in one line."""
    new = (
        f"{answer.get('would_add', answer['added'])} new in the ledger{', if signed' if answer.get('dry_run') else ''}"
    )
    read = f"{answer['read']} read: {answer['mapped']} mapped, {answer['unmapped']} stored unmapped"
    return f"{read}, {answer['lost'] or 'none'} lost; {new}"
