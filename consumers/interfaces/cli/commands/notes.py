"""`deed notes`: handoff reports as git notes and files beside the ledger.

Reading, fetching and pushing notes needs no ledger: in any clone this is git alone, and nothing proves that a note is
genuine. Beside a ledger, each note is compared with its signed events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.output import print_table, when
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import counted
from deedbook.consumers.sessions.copies import repair
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from deedbook.consumers.sessions.remotes import Transfer, check_runs_nothing, fetch, push
from deedbook.consumers.sessions.settings import Project, project_of, text_of
from deedbook.ledger.errors import Exit, Refused, Unavailable
from deedbook.ledger.home.location import present_folder


@click.group(cls=Group, aliases={"ls": "list", "pull": "fetch", "repair": "sync"})
def notes() -> None:
    """Copy reports to git notes and files. They are made from the ledger, and can be made again."""


@notes.command()
def sync(app: App) -> None:
    """Write reports that are missing or different in git notes and files; exit code 7 if one fails.

    Notes of other tools stay in the history of their ref. Files of other people are not changed.
    """
    project = project_of(app.settings())
    with progress("writing reports", is_shown=not app.as_json) as step:
        repaired = repair(app.query_with, project, step)

    def text() -> None:
        for label, places in (("", repaired.told), ("skipped: ", repaired.skipped), ("FAILED: ", repaired.failed)):
            print_lines(label, [f"{copy.location or copy.store}: {copy.reason}" for copy in places])
        echo(
            f"{counted(repaired.reports, 'report')}: {repaired.written} places written, {repaired.unchanged} as they "
            f"should be, {len(repaired.skipped)} skipped, {len(repaired.failed)} failed"
        )

    exit_code = Exit.UNAVAILABLE if repaired.failed else Exit.OK
    app.show("reports_synced", repaired.answer(), text, exit_code=exit_code)


@notes.command()
@click.argument("session")
@click.option("--markdown", is_flag=True, help="The whole report as markdown, not the compressed JSON.")
def show(app: App, session: str, *, markdown: bool) -> None:
    """Show a session's report from the git notes. SESSION is an id or its beginning.

    Anybody who can push can write notes. If there is a ledger, this says whether a signed event backs the report.
    """
    notes, has_ledger = notes_of(app)
    name = notes.find(session)
    ref = (MARKDOWN_NOTES if markdown else JSON_NOTES) + name
    content = notes.read(ref)
    if content is None:
        raise Refused("NOT_FOUND", f"there is no note {ref}: `deed notes sync` writes it", ref=ref)
    report = None if markdown else _parsed(content)
    data = {"session_id": text_of(name), "ref": ref, "content": content, "report": report}
    data |= (signed := _signed(app, text_of(name), content, has_ledger=has_ledger))

    def text() -> None:
        print_lines("", [signed["signed_as"]])
        echo(content)

    app.show("note", data, text)


@notes.command("list")
def list_(app: App) -> None:
    """List sessions with git notes, newest first, and whether a signed event backs each."""
    notes, has_ledger = notes_of(app)
    listed = []
    rows = notes.listed()
    contents = notes.contents(rows) if has_ledger else [None] * len(rows)
    with progress("checking notes", is_shown=has_ledger and not app.as_json) as step:
        for number, (row, content) in enumerate(zip(rows, contents, strict=True), 1):
            signed = _signed(app, row.session_id, content, has_ledger=has_ledger)
            has_ledger = signed["signed"] is not None  # after a failure, it is not queried again for every note
            listed.append(row._asdict() | signed)
            step(number, len(rows))

    def text() -> None:
        rows = [
            (
                row["ref"] if row["session_id"] is None else row["session_id"],
                when(row["written_ms"]),
                "yes" if row["has_markdown"] else "no",
                row["commit"][:12],
                _SIGNED[row["signed"]],
            )
            for row in listed
        ]
        print_table(("session", "written", "markdown", "commit", "signed"), rows)

    app.show("notes", {"notes": listed, "total": len(listed)}, text)


@notes.command("push")
@click.argument("remote", required=False)
def push_(app: App, remote: str | None) -> None:
    """Merge and push all notes to REMOTE (default: origin, or the only one), never by force."""
    notes, is_trusted = _trusted_notes(app)
    with progress("pushing notes", is_shown=not app.as_json):
        transfer = push(notes, remote, is_trusted=is_trusted)
    _show_transfer(app, "notes_pushed", transfer)


@notes.command("fetch")
@click.argument("remote", required=False)
def fetch_(app: App, remote: str | None) -> None:
    """Fetch the notes of REMOTE (default: origin, or the only one) and merge them with local notes."""
    notes, _ = _trusted_notes(app)
    with progress("fetching notes", is_shown=not app.as_json):
        transfer = fetch(notes, remote)
    _show_transfer(app, "notes_fetched", transfer)


_SIGNED: Final = {True: "yes", False: "NO", None: "not checked"}


def notes_of(app: App) -> tuple[Notes, bool]:
    """Return the notes of the project, or without a ledger those of this repository; and whether a ledger exists."""
    has_ledger = True
    try:
        project = project_of(app.settings())
    except Unavailable as error:
        if error.code != "NO_LEDGER":
            raise
        project, has_ledger = Project(git=present_folder()), False
    if project.git is None:
        raise Refused("NOT_FOUND", f"this project keeps no git notes: {project.no_git}")
    notes = Notes(project.git, is_own=has_ledger)
    notes.check()
    return notes, has_ledger


def _trusted_notes(app: App) -> tuple[Notes, bool]:
    """Return the notes to push or fetch, and whether a ledger exists. Without trust, no setting may run a program."""
    notes, has_ledger = notes_of(app)
    if not has_ledger:
        check_runs_nothing(notes)
        notes = Notes(notes.git.folder)
    return notes, has_ledger


def _signed(app: App, session: str | None, content: str | None, *, has_ledger: bool) -> dict[str, Any]:
    """Return whether a note agrees with a signed event; ``signed`` is None without a ledger."""
    if not has_ledger:
        return {"signed": None, "signed_as": "unsigned here: there is no ledger to hold this note against"}
    try:
        versions = app.query("reports.show", id=session or "")["versions"]
        for version in reversed(versions):
            report = app.query("reports.show", id=session, version=version["report_id"])["report"]
            texts = {report[name].rstrip("\n") for name in ("compressed_json", "markdown")}
            if report["session_id"] == session and (content or "").rstrip("\n") in texts:
                later = ", of which there are later versions" if version != versions[-1] else ""
                entry = f"entry {version['event_index']}{later}"
                return {"signed": True, "signed_as": f"signed by {report['author']}: {entry}"}
    except Refused as refusal:
        if refusal.code not in {"NOT_FOUND", "REF_AMBIGUOUS"}:
            raise
    except Unavailable as error:
        return {"signed": None, "signed_as": f"not compared with the ledger, which does not answer: {error.message}"}
    return {"signed": False, "signed_as": "NOT SIGNED: no event of the ledger here says what this note says"}


def _show_transfer(app: App, kind: str, transfer: Transfer) -> None:
    def text() -> None:
        print_lines("", transfer.told)
        print_lines("FAILED: ", transfer.failed)
        counts = f"{len(transfer.new)} new, {len(transfer.updated)} updated, {len(transfer.merged)} merged"
        echo(f"{transfer.remote}: {counts}")

    app.show(kind, transfer._asdict(), text, exit_code=Exit.UNAVAILABLE if transfer.failed else Exit.OK)


def print_lines(before: str, lines: Sequence[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        echo(before + line, err=True)


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
