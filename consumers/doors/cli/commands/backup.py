"""`baton backup` and `restore`: a ledger as one file that anybody can verify, and a ledger made of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import progress, when
from consumers.doors.cli.program import Command
from ledger import trust
from ledger.config import CHAINS_FILE, new_home, present_folder, read_file, read_settings
from ledger.errors import BatonError, Refused

if TYPE_CHECKING:
    from ledger.bundle.restore import Restored
    from ledger.home import Home


@click.command(cls=Command)
@click.argument("target", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--keys", "with_keys", is_flag=True, help="Also the keys, sealed with a passphrase for this backup.")
def backup(app: App, target: Path, *, with_keys: bool) -> None:
    """Write log, blobs and settings to FILE, or to a new file in the folder DIR, while the ledger is in use.

    The file is a bundle: `baton verify --bundle FILE` checks it, `baton restore FILE` makes the ledger of it again.
    """
    client = app.local_client()
    from ledger.bundle.backup import SUFFIX, count_left_out, key_files, write_backup  # noqa: PLC0415 - loads what only bundles need

    home, passphrase = app.ledger_home(), None
    if with_keys:
        passphrase = app.read_passphrase("New passphrase of the backup: ", confirm=True)
        if not passphrase:
            names = ", ".join(path.name for path in key_files(home) if not _is_sealed(path))
            message = f"{names} would lie open in the backup: give a passphrase for it with --passphrase-fd N"
            raise Refused("KEY_LOCKED", message)
    path = target
    if target.is_dir():
        # Each backup is a file of its own: one that fails takes none of those before it along.
        path = target / f"baton-{client.ledger[:12]}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%fZ')}{SUFFIX}"
    with progress("backing up", shown=not app.as_json) as step:
        manifest = write_backup(client, home, path, passphrase=passphrase, progress=step)
    data = {
        "file": str(path), "bytes": path.stat().st_size, "ledger": manifest.ledger, "size": manifest.size,
        "tree_head": manifest.root, "blobs": len(manifest.blobs), "blobs_left_out": count_left_out(client),
        "files": sorted(manifest.files),
    }  # fmt: skip

    def text() -> None:
        click.echo(f"{manifest.size} entries and {len(manifest.blobs)} blobs in {path}, tree head {manifest.root}")
        if left_out := data["blobs_left_out"]:
            click.echo(f"not in it, for no event refers to them: {left_out} blobs")
        if manifest.files:
            click.echo(f"with {', '.join(sorted(manifest.files))}")
        if not with_keys:
            click.echo("Keys are not in it: keep a copy of keys/ elsewhere, or call this with --keys.")

    app.show("backup", data, text, following=f"baton verify --bundle {path}")


def _is_sealed(path: Path) -> bool:
    from ledger.identity import read_key_file  # noqa: PLC0415 - loads keys

    return path.suffix == ".key" and read_key_file(path).sealed is not None


@click.command(cls=Command)
@click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Put it in the place of a log of the same ledger, which is kept aside.")
@click.option("--root", help="The root key's fingerprint: refuse the backup of another ledger.")
def restore(app: App, source: Path, root: str | None, *, replace: bool) -> None:
    """Make the ledger of a backup (of a folder: its newest), or of any export of a whole log, in .baton or --home DIR.

    Everything is verified and replayed before anything is put in place. Settings and keys that are there stay.
    """
    if app.server is not None:
        raise Refused("USAGE", "restore makes a ledger in a folder of this machine: call it without --server")
    from ledger.bundle.backup import newest_backup  # noqa: PLC0415 - loads what only bundles need
    from ledger.bundle.restore import restore as put_back  # noqa: PLC0415 - as above
    from ledger.bus.server import unserved  # noqa: PLC0415 - as above
    from ledger.home import Home  # noqa: PLC0415 - loads keys

    home = Home(app.home or new_home(present_folder()))
    path = newest_backup(source) if source.is_dir() else source
    with unserved(home.bus), progress("restoring", shown=not app.as_json) as step:
        restored = put_back(
            path,
            home,
            replace=replace,
            root=root,
            passphrase=lambda: app.read_passphrase("Passphrase of the keys in the backup (empty: without them): "),
            progress=step,
        )
    notes, following = _what_follows(home)
    if not _is_trusted(home):
        notes.append("what the settings here run or send waits until you trust them; `baton verify` does not")
        following = "baton trust" if following.startswith("baton verify") else following
    following = app.here(following)
    if restored.has_sealed_keys:
        notes.append("keys are in the backup: restore it again where there are none, with --passphrase-fd N")
    data: dict[str, Any] = {"home": str(home.path), "file": str(path)} | restored._asdict() | {"notes": notes}
    app.show("restored", data, lambda: _print(home, restored, notes, following), following=following)


def _print(home: Home, restored: Restored, notes: list[str], following: str) -> None:
    last = when(restored.accepted_ms)
    click.echo(f"ledger {restored.ledger} in {home.path}: {restored.size} entries, the last of {last}")
    click.echo(f"tree head {restored.tree_head}; {restored.blobs} blobs")
    if restored.files:
        click.echo(f"put in place: {', '.join(restored.files)}")
    if restored.kept:
        click.echo(f"left as they were: {', '.join(restored.kept)}")
    if restored.replaced is not None:
        click.echo(f"the log before, of {restored.present_size or 'unknown'} entries, lies in {restored.replaced}")
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"Next: {following}")


def _is_trusted(home: Home) -> bool:
    try:
        trust.actions_of(read_settings(home=home.path))
        trust.check_chains(home.path, read_file(home.path, CHAINS_FILE))
    except BatonError:
        return False
    return True


def _what_follows(home: Home) -> tuple[list[str], str]:
    """Return what is to be known of the restored log, beside its stream and what readers here remember, and what next.

    Without a server program the stream cannot be asked; then the next `serve` compares.
    """
    from consumers.doors.node.recovery import Recovery  # noqa: PLC0415 - loads the bus
    from ledger.history import shown  # noqa: PLC0415 - beside it

    async def look() -> tuple[list[str], str]:
        async with Recovery(read_settings(home=home.path), is_dry=True) as recovery:
            notes = [
                f"what was read at {one.place} was {shown(one.trusted.size, one.trusted.root)}: its readers refuse "
                "this log until `baton recover`"
                for one in recovery.contradicted()
            ]
            history = await recovery.lost()
            if history is None:
                return notes, "baton recover --accept-loss" if notes else "baton verify --views"
            held = f"the log stream holds {history.missing} acknowledged entries that this log lacks"
            return [held, *notes], "baton recover --accept-loss" if history.is_fork else "baton recover --from-stream"

    try:
        return asyncio.run(look())
    except BatonError as error:
        return [f"the log stream was not asked: {error.message}"], "baton verify --views"
