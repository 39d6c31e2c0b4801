"""`deed handoff render` and `watch`: handoffs as markdown files."""

from __future__ import annotations

import hashlib
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

import click

from deedbook.consumers.handoffs.files.folder import Folder
from deedbook.consumers.handoffs.files.mapping import file_name, file_now, marked, template_of
from deedbook.consumers.handoffs.files.signed import ROOT_FILE, is_signed_folder, pin_root
from deedbook.consumers.handoffs.files.sync import Notice, SyncContext, SyncStore
from deedbook.consumers.handoffs.files.syntax.active_table import is_active_table, parse_table
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.watcher import Watcher
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.output import warn
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.signals import stopped_by_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.consumers.sdk.text import quote_text
from deedbook.ledger.errors import Exit, Refused
from deedbook.ledger.system.files import absent


@click.command(cls=Command, looks_back=True, names_sealed=False)
@click.argument("id_", metavar="ID", required=False)
@click.option(
    "--from-file", type=click.Path(path_type=Path), help="Parse this file and print it back: no ledger needed."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead.")
def render(app: App, id_: str | None, from_file: Path | None, out: Path | None) -> None:
    """Print the markdown file of a handoff as the ledger has it.

    With --out an existing file is replaced only if its name is that of the handoff's file, ID.md.
    """
    if (id_ is None) == (from_file is None):
        raise Refused("USAGE", "give the ID of a handoff, or --from-file FILE")
    if from_file is not None:
        content, name = _printed_back(from_file)
    else:
        handoff = app.query("handoffs.show", id=id_)
        content = file_now(handoff, template_of(handoff, app.client().get_blob))
        name = file_name(handoff["id"])
        if out is None or not is_signed_folder(out.parent):  # in such a folder, a file says only what is signed
            content = marked(app.query_with, handoff, content)
    if out is not None:
        if out.exists() and out.name != name and read_file(out) != content:
            raise Refused("FILE_EXISTS", f"{out} exists and is not {name}: name another file", path=str(out))
        write_file(out, content)
        app.show("rendered", {"file": name, "path": str(out), "size": len(content)}, str(out))
    elif app.as_json:
        app.show("rendered", {"file": name, "content": content.decode()}, ())
    else:
        sys.stdout.buffer.write(content)


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--once", is_flag=True, help="Synchronize once, and stop.")
@click.option("--all", "is_everything", is_flag=True, help="Also write files of finished handoffs.")
@click.option("--signed", "is_signed", is_flag=True, help="Also write a signed file beside each, for `check-files`.")
@click.option("--sign", metavar="ID", help="Show the file of ID, ask, and sign what approves its handoff; then stop.")
@logs
def watch(app: App, folder: Path, sign: str | None, *, once: bool, is_everything: bool, is_signed: bool) -> None:
    """Synchronize a folder of handoff files with the ledger, both ways, as the acting agent.

    Each handoff gets a file, except those from a table. When you save a file, the edits that the acting agent may make
    are signed. Edits that only somebody else may make (such as another agent's ticks) stay in the file. The status of a
    review, such as approved, is replaced by the ledger's, with a remark beside it. Both are listed with the command to
    run, again with every pass; with --once the exit code is then 5. If file and ledger both changed, the ledger's
    version is written to ID.ledger.md.

    A human's signature approves a handoff that names no reviewer. Anybody who can write the file could write it, so
    such a file is listed, too: --sign shows it on a terminal, asks, and signs exactly what it showed.

    --signed writes a signed file ID.deed.json beside each file, and once the file ROOT, which pins this ledger's root.
    Commit them: `deed handoff check-files` then checks the files in a clone without a ledger. A folder with a file ROOT
    always gets signed files.
    """
    if sign is not None and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise Refused("USAGE", "--sign shows a file to a person and asks: run it on a terminal")
    _refuse_no_folder(folder)
    settings, author = app.settings(), app.author()
    is_signed = is_signed or is_signed_folder(folder)
    if is_signed and pin_root(folder, app.client()):
        tell(app, Notice("written", ROOT_FILE, "it pins the root of this ledger: commit it to the base branch"))
    name = hashlib.sha256(f"{folder.resolve()}\0{author.name}".encode()).hexdigest()[:16]
    with closing(SyncStore(settings.home / "subscribers" / f"files-{name}.db")) as store:
        if folder.resolve() == settings.home.resolve().parent and not store.ids() and not app.as_json:
            warn(
                [
                    f"{folder} is the project's folder and gets a file for each handoff; `deed handoff watch handoffs` \
after `mkdir handoffs` keeps them apart"
                ]
            )
        store.begin(folder.resolve())
        reviewer = settings.config.default_reviewer
        confirm = partial(_confirm, author.name, sign)
        context = SyncContext(
            folder, author, app.query_with, store, lambda notice: tell(app, notice), reviewer, confirm, is_signed
        )
        if sign is not None:
            Folder(context).reconcile(sign.removesuffix(".md"))
            return
        files = Folder(context)
        watcher = Watcher(files, context, is_everything=is_everything, erase=partial(_erase, app))
        with progress("reading the folder", is_shown=not app.as_json) as step:
            failures = watcher.reconcile(step)
        if once and failures:
            raise failures[0]
        if once and not (is_everything or store.ids() or app.as_json):
            echo("no handoff is open, so no file was written: --all also writes finished ones", err=True)
        if once and files.left_undone:
            raise click.exceptions.Exit(Exit.GATED)
        if not once:
            watcher.run(stopped_by_signals())


def _refuse_no_folder(folder: Path) -> None:
    if folder.is_file():
        raise Refused("USAGE", f"{folder} is a file: name its folder, {folder.parent}", path=str(folder))
    if not folder.exists():
        raise absent(folder, f"there is no folder {folder}\n  next: {join(['mkdir', '-p', str(folder)])}")


def _erase(app: App) -> bool:
    followed = app.follow_redactions()
    for line in followed.lines:
        tell(app, Notice("erased", "", line))
    return followed.is_done


def _confirm(name: str, signed_id: str | None, id_: str, content: bytes) -> bool:
    """Show a file that ``--sign`` names, and ask whether to sign it. No other file is signed."""
    if signed_id is None or signed_id.removesuffix(".md") != id_:
        return False
    echo(quote_text(content.decode("utf-8", "replace")))
    return click.confirm(f"\nSign this as {name}, which approves {id_}?", default=False, err=True)


def tell(app: App, notice: Notice) -> None:
    """Print what happened to a file: as one line, or with --json as one document."""
    if app.as_json:
        app.line({"what": notice.what, "id": notice.id, "text": notice.text, **notice.details})
    else:
        echo(f"{notice.what:<10} {notice.id}  {notice.text}")
    sys.stdout.flush()


def _printed_back(path: Path) -> tuple[bytes, str]:
    content = read_file(path)
    if content is None:
        raise absent(path)
    read: Any = parse_table(content) if is_active_table(content) else parse(content)
    return read.content, path.name
