"""`baton key`: session keys that sign for an agent for a time and within a scope."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import print_table
from consumers.doors.cli.program import Group
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.authority import KeyDelegated, KeyRevoked
from ledger.identity import Key, KeyFile, write_session_key

ttl_max = timedelta(days=366)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.group(cls=Group)
def key() -> None:
    """Delegate, revoke and list signing keys."""


@key.command()
@click.option("--ttl", default="12h", show_default=True, help="How long it is valid: 30m, 12h, 7d.")
@click.option("--kind", "kinds", multiple=True, help="A kind it may sign, or a prefix as session.* (default: any).")
@click.option("--stream", "streams", multiple=True, help="A stream it may write, or a prefix (default: any).")
@click.option("--max-events", type=click.IntRange(1), help="How many events it may sign.")
@click.pass_obj
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
@click.pass_obj
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
@click.option("--agent", help="Only the keys of this agent.")
@click.pass_obj
def list_(app: App, agent: str | None) -> None:
    """List signing keys: identity and session keys, with expiry and revocation."""
    keys: list[dict[str, Any]] = app.query("agents.keys", agent=agent)["keys"]
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
