"""`deed import thinking`: turns the thinking in transcripts into imported reasonings.

An imported reasoning gets briefs like any other, and grants no rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from deedbook.consumers.importers.records import Unmapped, blob_ref, import_records, rehearsed
from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse, UnreadItem
from deedbook.consumers.importers.transcripts.files import find_transcripts, read_transcript
from deedbook.consumers.importers.transcripts.importer import TranscriptImport
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.imports import SEAL, counts_line, print_unmapped, sealed_import
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.ledger.errors import Unavailable
from deedbook.projections.reasoning.memory import ReasoningMemory


@click.command(cls=Command, params=[SEAL])
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|DIR")
@click.option("--task", default="", help="The task, for transcripts that name none.")
@click.option("--dry-run", is_flag=True, help="Only print what would be imported.")
def thinking(app: App, path: Path, *, task: str, dry_run: bool, seal: str | None) -> None:
    """Import the thinking in transcripts: Claude Code sessions, API messages and responses, texts with thinking tags.

    Each response becomes a reasoning that the importing agent owns. It is shown as imported and not validated. Its
    lines are stored byte for byte. Importing again adds only the new parts of the file. A response that is encrypted,
    broken or contains a secret is stored as unmapped with the reason. In a folder, the command reads *.jsonl and *.json
    files, and *.md and *.txt files with thinking tags. Markdown exports of SpecStory and cctrace are read by message.

    The import infers links between steps from their words and marks them as inferred. The last line of the output says
    how many graphs are sound.
    """
    files = find_transcripts(path)
    reading = Progress(total_bytes=sum(file.stat().st_size for file in files))
    importing = importer(app, reading, task=task, is_dry=dry_run, seal=seal)
    unread: list[Unmapped] = []
    with progress("importing", is_shown=not app.as_json) as step:
        for item in read_files(files, path, reading, unread):
            importing.take(item)
            step(reading.done_bytes, reading.total_bytes)
    importing.flush()
    answer = importing.totals.answer() | {
        **{name: getattr(reading, name) for name in ("files", "other_files", "lines", "skipped")},
        "unread": [record.answer() for record in unread],
        "dry_run": dry_run,
    }
    app.show("imported", answer, lambda: _print_answer(answer))


def _faults_of(memory: ReasoningMemory) -> set[str]:
    report = ReasoningValidator().validate(memory)
    return {issue.code for issue in report.issues} or ({"UNLINKED"} if report.counts().inferences_unlinked else set())


def importer(app: App, reading: Progress, *, task: str = "", is_dry: bool, seal: str | None = None) -> TranscriptImport:
    """Return the importer that acts as the acting agent, or, in a dry run, only counts."""
    make = partial(TranscriptImport, faults_of=_faults_of, task=task, is_dry=is_dry)
    if is_dry:
        return make(app.settings().agent or "", app.query_with, blob_ref, rehearsed, reading)
    author = app.author()
    if seal is not None:
        sealed = sealed_import(app, seal)
        return make(author.name, app.query_with, sealed.put_blob, sealed.import_records, reading)
    return make(author.name, app.query_with, author.put_blob, partial(import_records, author), reading)


def read_files(
    files: Sequence[Path], root: Path, reading: Progress, unread: list[Unmapped]
) -> Iterator[TranscriptResponse | UnreadItem]:
    """Yield the items in the files. In a folder, an unreadable file does not stop the reading of the others."""
    for file in files:
        try:
            yield from read_transcript(file, root, reading)
        except Unavailable as error:
            if file == root:
                raise
            unread.append(Unmapped(str(file), f"{error.code}: {error.message}"))


def _print_answer(answer: dict[str, Any]) -> None:
    print_unmapped(answer)
    of = f"({answer['lines']} lines in {answer['files']} files, {answer['skipped']} without thinking)"
    echo(f"{counts_line(answer)} {of}")
    if answer["mapped"]:
        why = ", ".join(f"{code} {count}" for code, count in answer["unsound_by_issue"].items())
        echo(f"{answer['sound']} of {answer['mapped']} hold together" + (f"; the others: {why}" if why else ""))
    if not answer["read"]:
        echo("no thinking was found: name a session's .jsonl file, or a text with thinking tags", err=True)
