"""`baton init`: a new ledger in a folder."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from ledger.bundle.layout import fingerprint
from ledger.config import new_home, present_folder, read_config
from ledger.home import Home, create_ledger
from ledger.identity import read_key_file
from ledger.lifecycle.authority import ROOT


@click.command(cls=Command)
@click.option("--origin", help="The name on the ledger's checkpoints, as example.org/team (default: host and folder).")
@click.option("--sealed", is_flag=True, help="Seal the root key with a passphrase (asked, or --passphrase-fd).")
@click.pass_obj
def init(app: App, origin: str | None, *, sealed: bool) -> None:
    """Make a new ledger in .baton of this folder (or in --home DIR or BATON_HOME itself).

    Makes a root key, a checkpoint key and a node key, and entry 0 that names them. The folder is kept out of git.
    """
    path = app.home or new_home(present_folder())
    home = Home(path)
    origin = origin or default_origin(path)
    passphrase = None
    if sealed:
        passphrase = app.read_passphrase("New passphrase of the root key: ", confirm=True)
        if not passphrase:
            raise click.UsageError("--sealed needs a passphrase: from a terminal or --passphrase-fd")
    ledger = create_ledger(home, origin=origin, map_size=read_config(path).map_size_bytes, passphrase=passphrase)
    root = read_key_file(home.key_file(ROOT)).public
    data = {
        "home": str(path),
        "ledger": ledger,
        "origin": origin,
        "root": root,
        "root_fingerprint": fingerprint(bytes.fromhex(root)),
    }

    def text() -> None:
        click.echo(f"A new ledger {ledger} in {path}")
        click.echo(f"  origin  {origin}")
        click.echo(f"  root    {data['root_fingerprint']}")
        click.echo("Give that fingerprint to auditors: `baton verify --root FINGERPRINT` holds the ledger against it.")
        click.echo("Next: baton agent add NAME --role agent")

    app.show("ledger", data, text)


def default_origin(path: Path) -> str:
    """Return a name for a ledger's checkpoints from this host and the folder's name."""
    parts = (socket.gethostname() or "localhost", path.absolute().parent.name or "ledger")
    return "/".join(re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in parts)
