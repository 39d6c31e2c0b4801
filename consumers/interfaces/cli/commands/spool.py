"""`deed spool`: stores the operations of an agent while no server answers, sends them later, and lists refused ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.client.spool import Spool, SpoolEntry, spools
from deedbook.ledger.errors import Exit, Refused
from deedbook.ledger.home import trust

if TYPE_CHECKING:
    from deedbook.ledger.client.remote import RemoteClient


@click.group(cls=Group)
def spool() -> None:
    """List, send or drop what --spool stored while no server answered. It is not recorded yet."""


@spool.command("list")
def list_(app: App) -> None:
    """List waiting submissions in order, and refused ones with the reason, of all agents or of --as."""
    settings = app.settings()
    data = [
        _described(name, entry)
        for name, agent_spool in spools(settings.home)
        if settings.agent in (None, name)
        for entry in agent_spool.entries()
    ]
    rows = [
        (
            row["number"],
            row["agent"],
            row["state"],
            ", ".join(f"{e['kind']} {e['stream']}" for e in row["events"]),
            row["refusal"]["message"] if row["refusal"] else "",
        )
        for row in data
    ]

    header = ("number", "agent", "state", "what", "why")
    app.show("spool", {"kept": data, "total": len(data)}, lambda: print_table(header, rows))
    if not data and not app.as_json:
        echo("nothing waits, and nothing was refused")


@spool.command()
def send(app: App) -> None:
    """Send waiting submissions of --as in order; exit code 4 if some were refused (see `list`)."""
    if app.settings().server is None:
        raise Refused("USAGE", "the ledger is in this folder, so nothing waits; for a remote ledger add --server")
    client = cast("RemoteClient", app.client())
    trust.demand(app.settings().home, client)
    outcome = client.spool.send(client.send)
    text = f"{counted(outcome.recorded, 'submission')} recorded, {outcome.rejected} refused"
    app.show("spool_sent", outcome._asdict(), text)
    if outcome.rejected:
        raise click.exceptions.Exit(Exit.CONFLICT)


@spool.command()
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=click.IntRange(1))
@click.option("--rejected", "is_rejected", is_flag=True, help="Delete every refused submission; give no NUMBER then.")
def drop(app: App, *, numbers: tuple[int, ...], is_rejected: bool) -> None:
    """Delete submissions of the agent --as from the spool: name their numbers, or give --rejected.

    They were never recorded in the ledger.
    """
    if bool(numbers) == is_rejected:
        raise Refused("USAGE", "name what to drop: numbers, or --rejected")
    own_spool = Spool(app.settings().home, app.acting())
    dropped = list(numbers) or [entry.number for entry in own_spool.entries() if entry.refusal is not None]
    for number in dropped:
        own_spool.drop(number)
    app.show("spool_dropped", {"dropped": dropped}, f"{counted(len(dropped), 'submission')} given up")


def _described(agent: str, entry: SpoolEntry) -> dict[str, Any]:
    heads = [msgspec.json.decode(body) for body in entry.submission.bodies] if entry.submission else []
    events = [{name: head[name] for name in ("kind", "stream", "at", "data")} for head in heads]
    state = "waiting" if entry.refusal is None else "rejected"
    return {"number": entry.number, "agent": agent, "state": state, "events": events, "refusal": entry.refusal}
