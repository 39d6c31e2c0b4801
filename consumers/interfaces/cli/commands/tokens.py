"""`deed token`: manages the tokens for the use of this ledger over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.durations import parse_ttl
from deedbook.consumers.interfaces.cli.output import print_table, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.web.tokens import Role, Token, Tokens, state_of
from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import convert, schema_error
from deedbook.ledger.home import trust


@click.group(cls=Group)
def token() -> None:
    """Manage tokens with which programs use the ledger over HTTP (`deed serve --web`)."""


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(get_args(Role)),
    default="reader",
    show_default=True,
    help="Read everything; read and write; or read only /metrics.",
)
@click.option(
    "--expires", metavar="TIME", default="30d", show_default=True, help="How long the token is valid: 12h, 30d."
)
def create(app: App, name: str, role: Role, expires: str) -> None:
    """Create a token for the agent NAME, and print it once. With --role metrics, NAME may be any label.

    Use it so: `curl -H "Authorization: Bearer TOKEN" http://127.0.0.1:8080/v1`. A writer's token also carries what
    the agent's keys signed (`POST /v1/entries`). It ends when the agent is removed or its key is revoked.
    """
    client, tokens = _opened(app)
    with client.log.snapshot() as snapshot:
        agent = snapshot.agent(name)
    if agent is None and role == "metrics":
        _check_label(name)
    elif agent is None or agent.removed_index is not None:
        raise Refused("AGENT_UNKNOWN", f"no agent {name} is registered: `deed agent list` shows those there are")
    created, text = tokens.create(name, role, now_ms() + parse_ttl(expires) // timedelta(milliseconds=1))
    data = _described(created, "valid") | {"token": text}
    app.show("token", data, text)
    if not app.as_json:
        echo(f"{created.id} is a token of {name} ({role}) until {when(created.expires_ms)}; not shown again", err=True)


@token.command("list")
def list_(app: App) -> None:
    """List tokens: agent, rights, and whether they are valid."""
    client, tokens = _opened(app)
    with client.log.snapshot() as snapshot:
        data = [_described(stored, state_of(stored, snapshot)) for stored in tokens.present()]
    rows = [(row["id"], row["agent"], row["role"], row["state"], when(row["expires_ms"])) for row in data]
    header = ("id", "agent", "role", "state", "expires")
    app.show("tokens", {"tokens": data, "total": len(data)}, lambda: print_table(header, rows))


@token.command()
@click.argument("name", metavar="ID|NAME")
def revoke(app: App, name: str) -> None:
    """Revoke a token by its id, or all tokens of an agent."""
    gone = [revoked.id for revoked in _opened(app)[1].revoke(name)]
    app.show("tokens_revoked", {"revoked": gone}, f"revoked: {', '.join(gone)}")


def _check_label(name: str) -> None:
    """Refuse a label that could not be an agent's name. Raises Refused: ``INVALID_FIELD``."""
    try:
        convert(name, Name)
    except msgspec.ValidationError as error:
        raise schema_error(error, "NAME") from error


def _opened(app: App) -> tuple[LocalClient, Tokens]:
    client: LocalClient = app.local_client()
    trust.demand(client.settings.home, client)  # somebody else who made the folder would know its tokens
    return client, Tokens(client.settings.home)


def _described(stored: Token, state: str) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in stored.__struct_fields__ if name != "digest"} | {"state": state}
