"""`baton agent`: who may write to the ledger. `baton key`: session keys that sign for a time and within a scope."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import click
import msgspec

from consumers.doors.cli.app import App
from consumers.doors.cli.output import print_fields, print_table
from consumers.doors.cli.program import Group
from consumers.sdk.service import register_agent
from ledger.author import Draft
from ledger.client import open_client
from ledger.config import check_name
from ledger.errors import Refused, Unavailable
from ledger.events.authority import KeyDelegated, KeyRevoked, Role
from ledger.home import Home
from ledger.identity import Key, KeyFile, write_session_key
from ledger.lifecycle.authority import ROOT

let_in_wait_max_s: Final = 5.0
let_in_poll_s: Final = 0.05
ttl_max: Final = timedelta(days=366)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.group(cls=Group)
def agent() -> None:
    """Register and list agents."""


@agent.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="May be given more than once.")
@click.option("--ai-id", default="", help="A label without authority, as claude-sonnet-4.5.")
@click.option("--unprotected", is_flag=True, help="Leave the key unsealed, although any process can read it.")
def add(app: App, name: str, roles: tuple[Role, ...], ai_id: str, *, unprotected: bool) -> None:
    """Make keys for a new agent and register it; signed by the root key, or by the admin given with --as.

    The key of a human is sealed with a passphrase: asked on a terminal, or read from --passphrase-fd, and so is any
    key made with --passphrase-fd. When the signing key is sealed too, its passphrase is the next line there.
    """
    check_name(name)
    roles = roles or ("agent",)
    home = app.ledger_home()
    author = app.author(app.settings().agent or ROOT)
    passphrase = new_passphrase(app, name, roles, unprotected=unprotected)
    registered, accepted = register_agent(author, home, name, roles, ai_id=ai_id, passphrase=passphrase)
    wait_until_let_in(app, home, name)
    data = {
        "name": name, "roles": list(roles), "key": registered.key, "nkey": registered.nkey, "index": accepted.index
    }  # fmt: skip

    def text() -> None:
        click.echo(f"{name} is registered at entry {accepted.index} as {', '.join(roles)}")
        click.echo(f"  key file  {home.key_file(name)}{'  (sealed)' if passphrase else ''}")

    app.show("agent", data, text)


@agent.command("list")
def list_(app: App) -> None:
    """List the registered agents."""
    found = app.client().agents()
    agents = [{"name": one.name, "roles": sorted(one.roles), "key": one.key, "ai_id": one.ai_id} for one in found]
    rows = [(one["name"], ", ".join(one["roles"]) or "-", one["key"][:16], one["ai_id"]) for one in agents]
    app.show("agents", {"agents": agents}, lambda: print_table(("name", "roles", "key", "ai_id"), rows))


@agent.command()
@click.argument("name")
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


def new_passphrase(app: App, name: str, roles: tuple[Role, ...], *, unprotected: bool) -> str | None:
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


@click.group(cls=Group)
def key() -> None:
    """Delegate, revoke and list signing keys."""


@key.command()
@click.option("--ttl", default="12h", show_default=True, help="How long it is valid: 30m, 12h, 7d.")
@click.option("--kind", "kinds", multiple=True, help="A kind it may sign, or a prefix as session.* (default: any).")
@click.option("--stream", "streams", multiple=True, help="A stream it may write, or a prefix (default: any).")
@click.option("--max-events", type=click.IntRange(1), help="How many events it may sign.")
def delegate(app: App, ttl: str, kinds: tuple[str, ...], streams: tuple[str, ...], max_events: int | None) -> None:
    """Make a session key for the acting agent (--as) and write it to keys/NAME.session.

    From now on the agent's events are signed with it, until it expires; approvals never are.
    """
    name = app.acting()
    home, client = app.ledger_home(), app.client()
    session = Key.generate()
    until = datetime.now(UTC) + parse_ttl(ttl)
    expires_at = until.isoformat(timespec="seconds").replace("+00:00", "Z")
    delegated = KeyDelegated(
        key=session.public.hex(),
        proof=session.prove_possession(client.ledger, name),
        expires_at=expires_at,
        kinds=list(kinds),
        streams=list(streams),
        max_events=max_events,
    )
    accepted = app.author().emit(Draft(stream=f"agent/{name}", data=delegated))[0]
    path = home.session_file(name)
    content = KeyFile(
        ledger=client.ledger,
        name=name,
        public=session.public.hex(),
        seed=session.seed.hex(),
        expires_at=expires_at,
        kinds=list(kinds),
        streams=list(streams),
    )
    write_session_key(path, content)
    data = {"name": name, "key": content.public, "expires_at": expires_at, "file": str(path), "index": accepted.index}
    app.show("key", data, lambda: click.echo(f"{path} signs for {name} until {expires_at} (entry {accepted.index})"))


@key.command()
@click.argument("public_key")
@click.option("--reason", default="no reason given", show_default=True)
def revoke(app: App, public_key: str, reason: str) -> None:
    """Revoke a key, by its public half in hex or an unambiguous beginning of it. Signed by its owner or an admin."""
    found = [one for one in app.query("agents.keys")["keys"] if one["key"].startswith(public_key.lower())]
    if len(found) != 1:
        code = "REF_AMBIGUOUS" if found else "NOT_FOUND"
        raise Refused(code, f"{len(found)} keys begin with {public_key}", candidates=[one["key"] for one in found])
    data = KeyRevoked(key=found[0]["key"], reason=reason)
    accepted = app.author().emit(Draft(stream=f"agent/{found[0]['agent']}", data=data))[0]
    answer = {"key": data.key, "agent": found[0]["agent"], "index": accepted.index}
    app.show("key", answer, lambda: click.echo(f"revoked {data.key[:16]}… of {answer['agent']} at {accepted.index}"))


@key.command("list")
@click.option("--agent", "name", help="Only the keys of this agent.")
def list_keys(app: App, name: str | None) -> None:
    """List signing keys: identity and session keys, with expiry and revocation."""
    keys: list[dict[str, Any]] = app.query("agents.keys", agent=name)["keys"]
    rows = [
        (one["agent"], one["sort"], one["key"][:16], one["state"], one["expires_at"] or "", one["revoked_index"] or "")
        for one in keys
    ]
    header = ("agent", "sort", "key", "state", "expires", "revoked at")
    app.show("keys", {"keys": keys}, lambda: print_table(header, rows))


def parse_ttl(text: str) -> timedelta:
    """Return the duration in ``text``, as 90s, 30m, 12h or 7d.

    Raises:
        Refused: ``USAGE``.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    ttl = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not timedelta() < ttl <= ttl_max:
        raise Refused("USAGE", f"{text!r} is no time up to {ttl_max.days} days: write 30m, 12h or 7d")
    return ttl
