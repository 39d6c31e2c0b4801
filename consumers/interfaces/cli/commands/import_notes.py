"""`deed import empirica`: reads, maps and stores the git notes of Empirica."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from deedbook.consumers.importers.empirica.importer import import_notes, read_notes, rehearsed
from deedbook.consumers.importers.empirica.notes import DEFAULT_REFS, Repository
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.imports import (
    SEAL,
    counts_line,
    print_unmapped,
    sealed_import,
    show_sealed,
)
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.ledger.errors import Refused

FETCH: Final = "git fetch origin 'refs/notes/*:refs/notes/*'"


@click.command(cls=Command, params=[SEAL])
@click.option(
    "--git",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="REPO",
    help="A folder in the repository (default: the current one).",
)
@click.option(
    "--refs",
    "roots",
    multiple=True,
    default=(DEFAULT_REFS,),
    show_default=True,
    metavar="REFS",
    help="A prefix of the notes' refs, such as refs/remotes/origin/notes/empirica. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Read and map only; write nothing.")
def empirica(app: App, *, folder: Path, roots: tuple[str, ...], dry_run: bool, seal: str | None) -> None:
    """Import the git notes of Empirica: reports, checkpoints, findings, unknowns, dead ends, mistakes, goals.

    Every note is stored byte for byte and shown as imported, with the agent and the time that it claims. It grants no
    rights. Invalid values are left out and listed as dirty. Notes that this ledger wrote are skipped. A second run
    adds nothing.
    """
    author = None if dry_run else app.author()
    sealed = None if seal is None else sealed_import(app, seal)
    put_blob = None if author is None else author.put_blob if sealed is None else sealed.put_blob
    try:
        with progress("reading", is_shown=not app.as_json) as step:
            importer = None if author is None else author.name
            notes = read_notes(
                Repository(folder), roots, app.query_with, put_blob=put_blob, importer=importer, step=step
            )
    except Refused as refusal:
        if refusal.code == "NOT_FOUND":
            refusal.message += " with --git REPO"
        raise
    if seal is not None and sealed is not None and author is not None:
        show_sealed(app, seal, sealed.import_records([note.record for note in notes.records]))
        return
    if author is None:
        done = rehearsed(notes)
    else:
        with progress("importing", is_shown=not app.as_json) as step:
            done = import_notes(author, notes, step)
    answer = done.answer() | {"dry_run": dry_run} | ({"would_add": len(notes.records)} if dry_run else {})
    app.show("imported", answer, lambda: _print_imported(answer))


def _print_imported(answer: dict[str, Any]) -> None:
    rows = [
        (kind, counts["read"], counts["mapped"], counts["unmapped"], counts["dirty"])
        for kind, counts in answer["by_kind"].items()
    ]
    print_table(("notes", "read", "mapped", "unmapped", "dirty values"), rows)
    print_unmapped(answer)
    if answer["own"]:
        echo(f"{answer['own']} notes are this ledger's own, and were not read back")
    if answer["dirty"]:
        echo(f"{answer['dirty']} values are dirty: `deed import list --dirty` shows where")
    if not (answer["read"] or answer["own"] or answer["unread"]):
        echo(f"no notes were found: a clone has none before `{FETCH}`", err=True)
    echo(counts_line(answer))
