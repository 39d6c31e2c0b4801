"""`deed import thinking`: transcripts become imported reasoning: briefed like any other, and granting nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from blake3 import blake3

from deedbook.consumers.importers.records import Aside, import_records, rehearsed
from deedbook.consumers.importers.transcripts.conversation import Answered, Progress, Unread
from deedbook.consumers.importers.transcripts.files import find_transcripts, read_transcript
from deedbook.consumers.importers.transcripts.importer import TranscriptImport
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.imports import counts_line, print_asides
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.secrets.scanner import check_text
from deedbook.projections.reasoning.memory import ReasoningMemory


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|DIR")
@click.option("--task", default="", help="The task, for transcripts that name none.")
@click.option("--dry-run", is_flag=True, help="Only print what would be imported.")
def thinking(app: App, path: Path, *, task: str, dry_run: bool) -> None:
    """Import the thinking in transcripts: Claude Code sessions, API messages and responses, texts with thinking tags.

    Each response becomes a reasoning that the importing agent owns. It is shown as imported and not validated. Its
    lines are stored byte for byte. Importing again adds only what is new in the file. What is encrypted,
    broken or holds a secret is kept aside with the reason. Of a folder, *.jsonl and *.json files are read, and *.md and
    *.txt files with thinking tags.

    Links between steps are inferred from their words, and marked as inferred. The last line counts the sound ones.
    """
    files = find_transcripts(path)
    seen = Progress(total_bytes=sum(file.stat().st_size for file in files))
    importing = importer(app, seen, task=task, is_dry=dry_run)
    unread: list[Aside] = []
    with progress("importing", shown=not app.as_json) as step:
        for found in read_files(files, path, seen, unread):
            importing.take(found)
            step(seen.done_bytes, seen.total_bytes)
    importing.flush()
    answer = importing.totals.answer() | {
        **{name: getattr(seen, name) for name in ("files", "other_files", "lines", "skipped")},
        "unread": [one.answer() for one in unread],
        "dry_run": dry_run,
    }
    app.show("imported", answer, lambda: _print_answer(answer))


def _faults_of(memory: ReasoningMemory) -> set[str]:
    return {issue.code for issue in ReasoningValidator().validate(memory).issues}


def importer(app: App, seen: Progress, *, task: str = "", is_dry: bool) -> TranscriptImport:
    """Return what imports as the acting agent, or, dry, what only counts."""
    make = partial(TranscriptImport, faults_of=_faults_of, task=task, is_dry=is_dry)
    if is_dry:
        return make(app.settings().agent or "", app.query_with, named_only, rehearsed, seen)
    author = app.author()
    return make(author.name, app.query_with, author.put_blob, partial(import_records, author), seen)


def read_files(files: Sequence[Path], root: Path, seen: Progress, unread: list[Aside]) -> Iterator[Answered | Unread]:
    """Yield what is in the files; of a folder, one that cannot be read costs none of the others."""
    for file in files:
        try:
            yield from read_transcript(file, root, seen)
        except Unavailable as error:
            if file == root:
                raise
            unread.append(Aside(str(file), f"{error.code}: {error.message}"))


def named_only(content: bytes) -> str:
    """Return the ref that a blob would have, refusing what would be refused."""
    check_text(content)
    return "blake3:" + blake3(content).hexdigest()


def _print_answer(answer: dict[str, Any]) -> None:
    print_asides(answer)
    of = f"({answer['lines']} lines in {answer['files']} files, {answer['skipped']} without thinking)"
    click.echo(f"{counts_line(answer)} {of}")
    if answer["mapped"]:
        why = ", ".join(f"{code} {count}" for code, count in answer["unsound_by_issue"].items())
        click.echo(f"{answer['sound']} of {answer['mapped']} hold together" + (f"; the others: {why}" if why else ""))
    if not answer["read"]:
        click.echo("no thinking was found: name a session's .jsonl file, or a text with thinking tags", err=True)
