"""`deed prime`: the first text for an agent, or the page for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.interfaces.hooks.page import agents_page, budget_max_tokens, budget_min_tokens, budget_tokens
from deedbook.ledger.errors import Refused
from deedbook.ledger.home import trust
from deedbook.ledger.home.environment import present_session

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.cli.app import App


@click.command(cls=ReadingCommand, looks_back=True)
@click.option("--task", metavar="TEXT", help="Your next task: its dead ends and reasonings come first.")
@click.option(
    "--budget",
    type=click.IntRange(budget_min_tokens, budget_max_tokens),
    default=budget_tokens,
    show_default=True,
    help="The maximum number of tokens.",
)
@click.option("--page", is_flag=True, help="Print the page for agents instead: how to work with Deedbook.")
def prime(app: ReadingApp, *, task: str | None, budget: int, page: bool) -> None:
    """Print a text for an agent that begins to work: open work, dead ends, the last session, and more.

    Items name the command to continue with. The text contains only complete items. It ends with the number of items
    that did not fit into the budget, and the commands that show them.
    """
    if page:
        app.show("page", {"text": agents_page()}, agents_page().splitlines())
        return
    _print_primed(app.whole(), task, budget)


def _print_primed(app: App, task: str | None, budget: int) -> None:
    agent = app.settings().agent
    require_trust(app)
    session = present_session()
    brief = load(".hooks.prime:prime")(
        app.query_with,
        app.client().get_blob,
        load("..sdk.quotation:origin_of")(app.client()),
        agent=agent,
        session=None if session is None else session.removeprefix("session/"),
        task=task,
        budget=budget,
        home=app.settings().home if app.instant is None else None,
    )
    data = brief._asdict() | {"budget": budget, "agent": agent}
    app.show("primed", data, lambda: echo(brief.text, nl=False))


def require_trust(app: App) -> None:
    """Refuse an untrusted folder.

    The message does not contain the path, because a stranger may have chosen it to mislead agents.
    """
    try:
        trust.demand(app.settings().home)
        trust.demand(app.settings().home, app.client())
    except Refused as refusal:
        raise Refused(refusal.code, trust.UNTRUSTED) if refusal.code == "NOT_TRUSTED" else refusal from None
