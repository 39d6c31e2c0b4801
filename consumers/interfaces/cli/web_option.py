"""The option ``--web`` of verbs that show one thing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from deedbook.consumers.interfaces.cli.reader_app import ReadingApp
from deedbook.consumers.interfaces.dashboard.address import Address, path_to, running
from deedbook.ledger.errors import Refused

VerbT = TypeVar("VerbT", bound="Callable[..., Any]")


def web_option(type_: str, argument: str, query: str | None = None) -> Callable[[VerbT], VerbT]:
    """Return the option ``--web``.

    With it, the verb does not show the thing that ``argument`` names, but prints the address of its page in the
    dashboard. ``query`` refuses an id that nothing has.
    """

    def decorate(verb: VerbT) -> VerbT:
        @functools.wraps(verb)
        def show_or_link(app: ReadingApp, *, web: bool, **arguments: Any) -> None:
            if not web:
                verb(app, **arguments)
                return
            here = running_dashboard(app)
            if arguments[argument] is None:
                raise Refused("USAGE", "--web needs an ID")
            if query is not None:
                app.query(query, id=arguments[argument])
            as_of = "" if app.instant is None else f"?as_of={app.instant}"
            url = f"{here.url}{path_to(type_, arguments[argument])}{as_of}"
            app.show("page", {"url": url}, url)

        option: Any = click.option(
            "--web", is_flag=True, help="Print the address of its page in the dashboard instead."
        )
        decorated: VerbT = option(show_or_link)
        return decorated

    return decorate


def running_dashboard(app: ReadingApp) -> Address:
    """Return the address of the ledger's dashboard. Raises Refused: ``NOT_FOUND`` if none is running."""
    if (here := running(app.settings().home)) is None:
        message = f"no dashboard of this ledger is running: start one with `{app.here('deed dashboard')}`"
        raise Refused("NOT_FOUND", message)
    return here
