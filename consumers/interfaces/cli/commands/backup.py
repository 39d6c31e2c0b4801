"""`deed backup`, `restore`: a ledger as one file that anybody can verify, and a ledger made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.audit import missing_blobs_text
from deedbook.consumers.interfaces.cli.output import when
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.sdk.erased_entries import erased_in_copies
from deedbook.ledger.bundle.backup import SUFFIX, count_left_out, key_files, newest_backup, write_backup
from deedbook.ledger.bundle.restore import RestoreResult, replacing_command
from deedbook.ledger.bundle.restore import restore as put_back
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import CHAINS_FILE, new_home, present_folder, read_file
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.log.reader import LogReader
from deedbook.ledger.service.server import unserved
from deedbook.ledger.trust.history import head_text
from deedbook.ledger.trust.store import TrustStore

returned_shown_max: Final = 20
_AUTHORITY: Final = frozenset({"agent", "ledger", "subject"})
"""The families of streams whose events say who may sign, and what is erased."""


@click.command(cls=Command)
@click.argument("target", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--keys", "with_keys", is_flag=True, help="Include the keys, sealed with a passphrase of this backup.")
def backup(app: App, target: Path, *, with_keys: bool) -> None:
    """Write log, blobs and settings to FILE, or to a new file in the folder DIR, while the ledger is in use.

    The file is a bundle: `deed verify --bundle FILE` checks it, `deed restore FILE` restores the ledger from it. If
    FILE exists, it is replaced only if it is an earlier backup of this ledger and has nothing that the new one lacks.
    """
    client = app.local_client()

    home, passphrase = app.ledger_home(), None
    if with_keys:
        passphrase = app.read_passphrase("New passphrase of the backup: ", confirm=True)
        if not passphrase:
            names = ", ".join(path.name for path in key_files(home) if not _is_sealed(path))
            message = f"{names} would be unprotected in the backup: give a passphrase with --passphrase-fd N"
            raise Refused("KEY_LOCKED", message)
    path = target
    if target.is_dir():
        # Each backup is a separate file, so a failed backup does not destroy earlier ones.
        path = target / f"deedbook-{client.ledger[:12]}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%fZ')}{SUFFIX}"
    with progress("backing up", is_shown=not app.as_json) as step:
        manifest, missing = write_backup(client, home, path, passphrase=passphrase, progress=step)
    data = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "ledger": manifest.ledger,
        "size": manifest.size,
        "tree_head": manifest.root,
        "blobs": len(manifest.blobs),
        "blobs_left_out": count_left_out(client),
        "missing_blobs": missing,
        "files": sorted(manifest.files),
    }
    text = [f"{manifest.size} entries and {len(manifest.blobs)} blobs in {path}, tree head {manifest.root}"]
    text += missing_blobs_text(missing)
    if left_out := data["blobs_left_out"]:
        text.append(f"not in it, for no event refers to them: {left_out} blobs")
    if manifest.files:
        text.append(f"with {', '.join(sorted(manifest.files))}")
    if not with_keys:
        text.append("Keys are not in it: keep a copy of keys/ elsewhere, or call this with --keys.")
    app.show("backup", data, text, following=f"deed verify --bundle {path}")


def _is_sealed(path: Path) -> bool:
    return path.suffix == ".key" and read_key_file(path).sealed is not None


@click.command(cls=Command)
@click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace a log of the same ledger. The old log is kept beside it.")
@click.option("--root", help="The root key's fingerprint: refuse the backup of another ledger.")
@click.option("--accept", type=click.Choice(["PARTIAL"]), help="Restore a backup that lacks blobs without them.")
def restore(app: App, source: Path, root: str | None, accept: str | None, *, replace: bool) -> None:
    """Restore a ledger from a backup, or from any export of a whole log.

    If you name a folder, its newest backup is used. The ledger is restored to .deedbook, or to --home DIR.

    Everything is verified and replayed first. Existing settings and keys stay. The keys of a backup made with --keys
    need its passphrase: you type it on the terminal, or --passphrase-fd gives it.
    """
    if app.server is not None:
        raise Refused("USAGE", "restore writes to a folder of this machine: run it without --server")

    home = Home(app.home or new_home(present_folder()))
    path = newest_backup(source) if source.is_dir() else source
    descriptor = 3 if app.passphrase_fd is None else app.passphrase_fd
    reads_passphrase = f"--passphrase-fd {descriptor} {descriptor}<FILE"
    with unserved(home.bus), progress("restoring", is_shown=not app.as_json) as step:
        restored = put_back(
            path,
            home,
            replace=replace,
            accept_partial=accept is not None,
            root=root,
            passphrase=lambda: app.read_passphrase("Passphrase of the keys in the backup (empty: without them): "),
            options="" if app.passphrase_fd is None else reads_passphrase,
            progress=step,
        )
    notes, following = _what_follows(home)
    notes += [
        f"{copy.location} holds this ledger, too: write to only one of the two. See 'Two copies' in the runbook"
        for copy in TrustStore.of_folder(restored.ledger, home.path).copies()
    ]
    with LogReader(home.path) as log, log.snapshot() as snapshot:
        returned = erased_in_copies(restored.ledger, home.path, snapshot.entry)
    if returned:
        some = " ".join(map(str, returned[:returned_shown_max])) + (" …" if len(returned) > returned_shown_max else "")
        count = f"{len(returned)} entr{'ies' if len(returned) > 1 else 'y'}"
        command = app.here(f"deed redact {some}")
        notes.append(f"this log has the texts of {count} again that were erased: `{command}` erases them anew")
    notes += _lost_notes(restored)
    if missing := restored.missing_blobs:
        notes.append(f"{len(missing)} blobs that entries need are missing, first {missing[0]}: the ledger is PARTIAL")
    if not _is_trusted(home):
        notes.append("what the settings here run or send waits until you trust them; `deed verify` does not")
        following = "deed trust" if following.startswith("deed verify") else following
    following = app.here(following)
    if not key_files(home) and not restored.has_sealed_keys:
        notes.append("no keys are here, so nobody can sign: copy keys/ here, or restore a backup made with --keys")
    if restored.has_sealed_keys:
        again = replacing_command(path, home.path, reads_passphrase)
        notes.append(f"the keys in the backup were not restored: `{again}` adds those that are missing here")
    data: dict[str, Any] = {"home": str(home.path), "file": str(path)} | restored._asdict()
    data |= {"returned": returned, "notes": notes}
    last = when(restored.accepted_ms)
    text = [f"ledger {restored.ledger} in {home.path}: {restored.size} entries, the last of {last}"]
    text.append(f"tree head {restored.tree_head}; {restored.blobs} blobs")
    if restored.files:
        text.append(f"put in place: {', '.join(restored.files)}")
    if restored.kept:
        text.append(f"left as they were: {', '.join(restored.kept)}")
    if restored.replaced is not None:
        text.append(f"the log before, of {restored.present_size or 'unknown'} entries, lies in {restored.replaced}")
    text += [*(f"note: {note}" for note in notes), f"Next: {following}"]
    app.show("restored", data, text, following=following)


def _lost_notes(restored: RestoreResult) -> Iterator[str]:
    """Yield a note on the entries that only the replaced log has, with those about agents, keys and erasures."""
    if restored.replaced is None or restored.present_size <= restored.size:
        return
    kinds = dict[str, int]()
    with LogReader(Path(restored.replaced)) as log, log.snapshot() as snapshot:
        for index in range(restored.size, restored.present_size):
            event = read_event(index, snapshot.entry(index))
            if event.stream.partition("/")[0] in _AUTHORITY:
                kinds[event.kind] = kinds.get(event.kind, 0) + 1
    named = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    undone = f"; so these have no effect here: {named}" if named else ""
    count = restored.present_size - restored.size
    entries = f"the {count} entries" if count > 1 else "the entry"
    yield f"{entries} from {restored.size} on of the log before {'are' if count > 1 else 'is'} not in this one{undone}"


def _is_trusted(home: Home) -> bool:
    try:
        trust.actions_of(read_settings(home=home.path))
        trust.check_chains(home.path, read_file(home.path, CHAINS_FILE))
    except DeedbookError:
        return False
    return True


def _what_follows(home: Home) -> tuple[list[str], str]:
    """Return the state of the restored log, its stream and this user's trust stores, and the next commands.

    Without a server program the stream cannot be read; then the next `serve` compares them.
    """

    async def look() -> tuple[list[str], str]:
        async with load(".node.recovery:Recovery")(read_settings(home=home.path), is_dry=True) as recovery:
            notes = [
                f"readers at {record.location} saw {head_text(record.trusted.size, record.trusted.root)}: they refuse "
                "this log until `deed recover`"
                for record in recovery.contradicted()
            ]
            history = await recovery.lost()
            if history is None:
                return notes, "deed recover --accept-loss" if notes else "deed verify --views"
            missing_note = f"the log stream holds {history.missing} acknowledged entries that this log lacks"
            return [
                missing_note,
                *notes,
            ], "deed recover --accept-loss" if history.is_fork else "deed recover --from-stream"

    try:
        return asyncio.run(look())
    except DeedbookError as error:
        return [f"the log stream was not asked: {error.message}"], "deed verify --views"
