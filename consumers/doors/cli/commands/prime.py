"""`baton prime`: what an agent should know before it starts, in at most so many tokens (seed 004)."""

from __future__ import annotations

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.hooks.priming import budget_min_tokens, budget_tokens
from consumers.doors.hooks.priming import prime as primed
from consumers.sdk.text import clean
from ledger.config import present_session

budget_max_tokens = 100_000


@click.command(cls=Command)
@click.option("--task", metavar="TEXT", help="What you are about to do: dead ends of similar tasks come first.")
@click.option(
    "--budget",
    type=click.IntRange(budget_min_tokens, budget_max_tokens),
    default=budget_tokens,
    show_default=True,
    help="At most so many tokens.",
)
@click.pass_obj
def prime(app: App, *, task: str | None, budget: int) -> None:
    """Print how to work with Baton, dead ends of similar tasks, what waits for you, and the last session.

    Only whole items are printed; what found no room is named at the end, with the command that shows it.
    """
    agent = app.settings().agent
    session = present_session()
    made = primed(
        app.query_with,
        app.client().get_blob,
        agent=agent,
        session=None if session is None else session.removeprefix("session/"),
        task=task,
        budget=budget,
    )
    data = made._asdict() | {"budget": budget, "agent": agent}
    app.show("primed", data, lambda: click.echo(clean(made.text), nl=False))
