"""`baton notes`: handoff reports as git notes and files beside the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import print_table, progress, when
from consumers.doors.cli.program import Group
from consumers.sdk.text import clean
from consumers.sessions.copies import repair
from consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from consumers.sessions.places import project_of, text_of
from consumers.sessions.remotes import Transfer, fetch, push
from ledger.errors import Exit, Refused


@click.group(cls=Group, aliases={"ls": "list", "pull": "fetch", "repair": "sync"})
def notes() -> None:
    """Keep handoff reports as git notes (and files) too; all are made from the ledger, and made again when lost."""


@notes.command()
def sync(app: App) -> None:
    """Write every report that the git notes or files lack or have otherwise; exit code 7 when one cannot be written.

    What another tool or person wrote is never lost: a note stays in the history of its ref, a file as it is.
    """
    project = project_of(app.settings())
    with progress("writing reports", shown=not app.as_json) as step:
        repaired = repair(app.query_with, project, step)

    def text() -> None:
        for label, places in (("", repaired.told), ("skipped: ", repaired.skipped), ("FAILED: ", repaired.failed)):
            print_lines(label, [f"{copy.location or copy.store}: {copy.reason}" for copy in places])
        click.echo(
            f"{repaired.reports} reports: {repaired.written} places written, {repaired.unchanged} as they should be, "
            f"{len(repaired.skipped)} skipped, {len(repaired.failed)} failed"
        )

    app.show("reports_synced", repaired.answer(), text)
    if repaired.failed:
        click.get_current_context().exit(Exit.UNAVAILABLE)


@notes.command()
@click.argument("session")
@click.option("--markdown", is_flag=True, help="The whole report as markdown, not the compressed JSON.")
def show(app: App, session: str, *, markdown: bool) -> None:
    """Show a session's report as the git notes have it, wherever HEAD is; SESSION is an id or the start of one.

    Anybody who can push can write notes; `baton report show` answers from the signed ledger.
    """
    kept = notes_of(app)
    name = kept.find(session)
    ref = (MARKDOWN_NOTES if markdown else JSON_NOTES) + name
    content = kept.read(ref)
    if content is None:
        raise Refused("NOT_FOUND", f"there is no note {ref}: `baton notes sync` writes it", ref=ref)
    report = None if markdown else parsed(content)
    data = {"session_id": text_of(name), "ref": ref, "content": content, "report": report}
    app.show("note", data, lambda: click.echo(clean(content)))


@notes.command("list")
def list_(app: App) -> None:
    """List the sessions that have git notes, the last written first."""
    listed = [row._asdict() for row in notes_of(app).listed()]

    def text() -> None:
        rows = [
            (row["ref"] if row["session_id"] is None else row["session_id"], when(row["written_ms"]),
             "yes" if row["has_markdown"] else "no", row["commit"][:12])
            for row in listed
        ]  # fmt: skip
        print_table(("session", "written", "markdown", "commit"), rows)

    app.show("notes", {"notes": listed, "total": len(listed)}, text)


@notes.command("push")
@click.argument("remote", required=False)
def push_(app: App, remote: str | None) -> None:
    """Push all notes to REMOTE (default: origin, or the only one), merging what others pushed; never by force."""
    _show_transfer(app, "notes_pushed", push(notes_of(app), remote))


@notes.command("fetch")
@click.argument("remote", required=False)
def fetch_(app: App, remote: str | None) -> None:
    """Fetch the notes of REMOTE (default: origin, or the only one) and merge them; local notes are never lost."""
    _show_transfer(app, "notes_fetched", fetch(notes_of(app), remote))


def notes_of(app: App) -> Notes:
    """Return the notes of the project."""
    project = project_of(app.settings())
    if project.git is None:
        raise Refused("NOT_FOUND", f"this project keeps no git notes: {project.no_git}")
    notes = Notes(project.git)
    notes.check()
    return notes


def _show_transfer(app: App, kind: str, transfer: Transfer) -> None:
    def text() -> None:
        print_lines("", transfer.told)
        print_lines("FAILED: ", transfer.failed)
        counts = f"{len(transfer.new)} new, {len(transfer.updated)} updated, {len(transfer.merged)} merged"
        click.echo(f"{clean(transfer.remote)}: {counts}")

    app.show(kind, transfer._asdict(), text)
    if transfer.failed:
        click.get_current_context().exit(Exit.UNAVAILABLE)


def print_lines(before: str, lines: Sequence[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        click.echo(clean(before + line), err=True)


def parsed(content: str) -> Any:
    """Return the JSON of a note; None when it is none, as another tool's may be."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
