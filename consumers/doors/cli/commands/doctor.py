"""`baton doctor`: is everything here that Baton needs, and is the ledger in order?"""

from __future__ import annotations

import sqlite3
import stat
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from ledger.config import find_home, present_folder, read_config
from ledger.errors import BatonError, Unavailable
from ledger.home import Home
from ledger.identity import read_key_file
from ledger.lifecycle.authority import ROOT
from ledger.limits import map_alarm_ratio
from ledger.local import LocalClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.client import Client

PACKAGES = ("ledger", "projections", "consumers")


class Check(NamedTuple):
    """One thing that was looked at: whether it is in order, what was found, and what to do if not."""

    name: str
    ok: bool
    found: str
    fix: str = ""


@click.command(cls=Command)
@click.pass_obj
def doctor(app: App) -> None:
    """Check the installation, and the ledger here if there is one; says what to do about what is wrong."""
    home = app.home or find_home(present_folder())
    checks = [*installation_checks(home), *(ledger_checks(app, Home(home)) if home else [])]
    bad = [one for one in checks if not one.ok]
    data = {"checks": [one._asdict() for one in checks], "ok": not bad}

    def text() -> None:
        for one in checks:
            click.secho("ok    " if one.ok else "WRONG ", fg="green" if one.ok else "red", nl=False)
            click.echo(f"{one.name}: {one.found}" + ("" if one.ok else f"\n      {one.fix}"))
        if home is None:
            click.echo("There is no ledger in this folder or above it: `baton init` makes one.")

    if bad and app.as_json:
        raise Unavailable("STORE_UNAVAILABLE", f"{len(bad)} checks failed: {bad[0].fix}", **data)
    app.show("doctor", data, text)
    if bad:
        raise click.exceptions.Exit(Unavailable("STORE_UNAVAILABLE", "").exit_code)


def folder_of(package: str) -> Path | None:
    """Return the folder that a package is imported from."""
    spec = find_spec(package)
    return Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else None


def installation_checks(home: Path | None) -> Iterator[Check]:
    """Yield what can be said of this Python and what is installed in it."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    owners = packages_distributions()
    for package in PACKAGES:
        # An editable installation lists no packages: there it counts that all three lie beside each other.
        found = sorted(set(owners.get(package, [])) or {"baton-ledger"})
        place = folder_of(package)
        is_ours = found == ["baton-ledger"] and place == folder_of("consumers")
        fix = f"another distribution also installs {package}: use an environment of its own for baton-ledger"
        yield Check(f"package {package}", is_ours, f"{', '.join(found)} in {place}", fix)
    yield _server_check(home)
    has_tokens = find_spec("rs_bpe") is not None
    yield Check("tokens", ok=True, found="exact (rs-bpe)" if has_tokens else "estimates: install baton-ledger[tokens]")
    has_mcp = find_spec("mcp") is not None
    yield Check("mcp", ok=True, found="baton mcp can serve" if has_mcp else "none: install baton-ledger[mcp]")
    yield Check("sqlite", sqlite3.sqlite_version_info >= (3, 35), sqlite3.sqlite_version, "use a newer Python build")


def ledger_checks(app: App, home: Home) -> Iterator[Check]:
    """Yield what can be said of the ledger in a folder."""
    try:
        client = LocalClient(app.settings())
    except BatonError as error:
        yield Check("ledger", ok=False, found=error.code, fix=error.message)
        return
    with client:
        head = client.head()
        yield Check("ledger", ok=True, found=f"{head.ledger}, {head.size} entries, in {home.path}")
        used = client.log.tables.used_ratio()
        fix = "raise map_size_bytes in config.toml, with every process of this ledger stopped"
        yield Check("map", used < map_alarm_ratio, f"{used:.1%} of {client.settings.config.map_size_bytes} bytes", fix)
        yield from _key_checks(home)
        yield _gate_check(home, client)
    url = home.bus / "url"
    served = url.read_text("ascii").strip() if url.exists() else "not running (local verbs need none)"
    yield Check("serve", ok=True, found=served)


def gate(home: Home, client: Client) -> tuple[str, list[str]]:
    """Return ``bound`` when root and every reviewer's key is sealed or elsewhere, else ``open`` and whose is not."""
    reviewers = [one.name for one in client.agents() if one.roles & {"reviewer", "human"}]
    unsealed = []
    for name in (ROOT, *reviewers):
        path = home.key_file(name)
        if path.exists() and read_key_file(path).sealed is None:
            unsealed.append(name)
    return ("open" if unsealed else "bound"), unsealed


def _gate_check(home: Home, client: LocalClient) -> Check:
    try:
        state, unsealed = gate(home, client)
    except BatonError as error:
        return Check("gate", ok=False, found=error.code, fix=error.message)
    # An open gate is a choice, and said: it stops mistakes, not malice.
    reason = f": any process of this user can sign as {', '.join(unsealed)}" if unsealed else ""
    return Check("gate", ok=True, found=state + reason)


def _key_checks(home: Home) -> Iterator[Check]:
    files = sorted([*home.keys.glob("*.key"), *home.keys.glob("*.nkey"), *home.keys.glob("*.session")])
    wide = [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    found = f"{len(files)} files" if not wide else f"others can read {', '.join(wide)}"
    yield Check("keys", not wide, found, f"run `chmod 600 {home.keys}/*`")


def _server_check(home: Path | None) -> Check:
    from ledger.bus.server_program import find_server  # noqa: PLC0415 - loads what only this check needs

    try:
        configured = read_config(home).nats_server if home else None
        return Check("nats-server", ok=True, found=str(find_server(Path(configured) if configured else None)))
    except BatonError as error:
        return Check("nats-server", ok=False, found=error.code, fix=error.message)
