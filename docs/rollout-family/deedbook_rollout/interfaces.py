"""`deed rollout`. The other interfaces need nothing of their own."""

import click

from deedbook.consumers.interfaces.cli.app import Group
from deedbook.consumers.interfaces.cli.output import list_page, page_options
from deedbook.ledger.client.author import Draft
from deedbook_rollout.events import RolloutStarted


@click.group(cls=Group)
def rollout():
    """Record rollouts, and list them."""


@rollout.command()
@click.argument("name")
@click.argument("service")
def start(app, name, service):
    """Say that you begin to roll out a service."""
    (entry,) = app.author().emit(Draft(stream=f"rollout/{name}", data=RolloutStarted(service=service)))
    app.show("rollout_started", {"id": name, "index": entry.index}, f"rollout/{name}: entry {entry.index}")


@rollout.command("list", looks_back=True)
@page_options()
def list_(app, **filters):
    """List rollouts, newest first."""
    list_page(app, "rollout.list", filters, dict)
