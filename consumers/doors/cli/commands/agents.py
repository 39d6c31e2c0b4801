"""`baton agent`: who may write to the ledger."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, get_args

import click
import msgspec

from consumers.doors.cli.app import App
from consumers.doors.cli.output import print_fields, print_table
from consumers.doors.cli.program import Group
from ledger.author import Draft
from ledger.config import check_name
from ledger.connect import open_client
from ledger.errors import Refused, Unavailable
from ledger.events.authority import AgentRegistered, Role
from ledger.home import Home, new_bus_key, public_bus_key
from ledger.identity import Key, open_key, read_key_file, write_key
from ledger.lifecycle.authority import ROOT

let_in_wait_max_s = 5.0
let_in_poll_s = 0.05


@click.group(cls=Group)
def agent() -> None:
    """Register and list agents."""


@agent.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="May be given more than once.")
@click.option("--ai-id", default="", help="A label without authority, as claude-sonnet-4.5.")
@click.option("--unprotected", is_flag=True, help="Leave the key unsealed, although any process can read it.")
@click.pass_obj
def add(app: App, name: str, roles: tuple[str, ...], ai_id: str, *, unprotected: bool) -> None:
    """Make keys for a new agent and register it; signed by the root key, or by the admin given with --as.

    The key of a human is sealed with a passphrase: asked on a terminal, or read from --passphrase-fd, and so is any
    key made with --passphrase-fd. When the signing key is sealed too, its passphrase is the next line there.
    """
    check_name(name)
    roles = roles or ("agent",)
    home = app.ledger_home()
    client = app.client()
    passphrase = new_passphrase(app, name, roles, unprotected=unprotected)
    key = _identity_key(home, client.ledger, name, passphrase)
    nkey = _bus_key(home, name)
    registered = AgentRegistered(
        name=name,
        key=key.public.hex(),
        proof=key.prove_possession(client.ledger, name),
        roles=list(roles),  # type: ignore[arg-type]  # click has checked each against Role
        nkey=nkey,
        ai_id=ai_id,
    )
    accepted = app.author(app.settings().agent or ROOT).emit(Draft(stream=f"agent/{name}", data=registered))[0]
    wait_until_let_in(app, home, name)
    data = {"name": name, "roles": list(roles), "key": key.public.hex(), "nkey": nkey, "index": accepted.index}

    def text() -> None:
        click.echo(f"{name} is registered at entry {accepted.index} as {', '.join(roles)}")
        click.echo(f"  key file  {home.key_file(name)}{'  (sealed)' if passphrase else ''}")

    app.show("agent", data, text)


@agent.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List the registered agents."""
    agents = [
        {"name": one.name, "roles": sorted(one.roles), "key": one.key, "ai_id": one.ai_id}
        for one in app.client().agents()
    ]
    rows = [(one["name"], ", ".join(one["roles"]) or "-", one["key"][:16], one["ai_id"]) for one in agents]
    app.show("agents", {"agents": agents}, lambda: print_table(("name", "roles", "key", "ai_id"), rows))


@agent.command()
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show one agent and its keys."""
    found: dict[str, Any] = app.query("agents.show", name=name)
    app.show("agent", found, lambda: print_fields(found))


def wait_until_let_in(app: App, home: Home, name: str) -> None:
    """Wait until the ledger's server, if one runs, lets a new agent in, so that the next command can be the agent's."""
    settings = app.settings()
    url = settings.server
    with contextlib.suppress(OSError):
        url = url or (home.bus / "url").read_text("ascii").strip()
    if url is None:
        return
    newcomer = msgspec.structs.replace(settings, server=url, agent=name)
    deadline = time.monotonic() + let_in_wait_max_s
    while time.monotonic() < deadline:
        try:
            open_client(newcomer).close()
        except Refused:
            time.sleep(let_in_poll_s)
        except Unavailable:
            return  # the server is gone: the next one knows the agent from its start
        else:
            return


def new_passphrase(app: App, name: str, roles: tuple[str, ...], *, unprotected: bool) -> str | None:
    """Return the passphrase for a new key; None for one that may lie unsealed.

    Raises:
        Refused: ``USAGE`` when a human's key would lie unsealed and nobody said that it may.
    """
    wants_seal = app.passphrase_fd is not None or "human" in roles
    if unprotected or not wants_seal:
        return None
    passphrase = app.read_passphrase(f"New passphrase for {name}: ", confirm=True)
    if not passphrase:
        where = "at the prompt" if sys.stdin.isatty() else "with --passphrase-fd"
        raise Refused("USAGE", f"the key of a human is sealed: give a passphrase {where}, or say --unprotected")
    return passphrase


def _identity_key(home: Home, ledger: str, name: str, passphrase: str | None) -> Key:
    # A key file without an agent is what a refused or killed `agent add` leaves: it is used, not thrown away.
    path = home.key_file(name)
    if path.exists():
        is_sealed = read_key_file(path).sealed is not None
        return open_key(path, passphrase if is_sealed else None)
    key = Key.generate()
    write_key(path, key, ledger=ledger, name=name, passphrase=passphrase)
    return key


def _bus_key(home: Home, name: str) -> str:
    path = home.nkey_file(name)
    return public_bus_key(home.bus_seed(name)) if path.exists() else new_bus_key(path)
