"""A page of a list as every verb shows it: rows, how many there are in all, and the command that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from consumers.doors.cli.app import command_line
from consumers.doors.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from consumers.doors.cli.app import App


def show_page(
    app: App,
    kind: str,
    answer: dict[str, Any],
    table: tuple[Sequence[str], Iterable[Sequence[object]]],
    command: tuple[str, dict[str, Any]],
    *,
    cursor: str = "cursor",
) -> None:
    """Print a page; ``table`` is its header and rows, ``command`` the verb and options that asked for it.

    ``answer`` has ``total`` and ``next``, which the option ``cursor`` takes to go on.
    """
    verb, options = command
    following = None if answer["next"] is None else command_line(verb, options | {cursor: answer["next"]})

    def text() -> None:
        print_table(*table)
        if following is not None:
            click.echo(f"{answer['total']} in all; go on with --{cursor} {answer['next']}")

    app.show(kind, answer, text, following=following)
