"""`deed project`: updates the views, once or as a worker that follows the log."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.signals import stopped_by_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.ledger.client.event_stream import poll_wait_s
from deedbook.ledger.errors import Unavailable
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    import threading


follow_wait_min_s: Final = 0.2
follow_wait_max_s: Final = 5.0


@click.command(cls=Command)
@click.option("--view", "views", cls=ListOption, help="Only this view. May be given more than once.")
@click.option("--rebuild", is_flag=True, help="Build the tables again from the whole log.")
@click.option(
    "--follow",
    is_flag=True,
    help="Update the views until SIGINT or SIGTERM. If several such workers run, they take turns.",
)
@click.option(
    "--store", metavar="URL", help="Update views in PostgreSQL: postgresql://USER@HOST/DATABASE, without a password."
)
def project(app: App, views: tuple[str, ...], store: str | None, *, rebuild: bool, follow: bool) -> None:
    """Update the views from the log, or rebuild them, and print each view's position and digest.

    Views are the tables that answer queries. They are made from the log alone. With --follow the command continues to
    run and updates the views with each new entry. It then prints the new position, and problems on standard error. With
    --json each line of output is one JSON document.
    """
    if follow and (rebuild or views):
        raise click.UsageError("--follow cannot rebuild: rebuild first, then follow")
    names = list(views) or [view.name for view in VIEWS]
    stop = stopped_by_signals() if follow else None
    with Reader(app.local_client(), app.settings(), store=store) as reader:
        if stop is not None:
            _follow(app, reader, stop)
            return
        with progress("folding", is_shown=not app.as_json) as step:
            fold = partial(reader.rebuild, names) if rebuild else reader.catch_up
            position = fold(progress=lambda done: step(*done))
        digests = {name: reader.runner.digest(name) for name in names}
    rows = [(name, position, digest[:16]) for name, digest in digests.items()]
    data = {"position": position, "digests": digests}
    app.show("views", data, lambda: print_table(("view", "position", "digest"), rows))


def _follow(app: App, reader: Reader, stop: threading.Event) -> None:
    """Update the views with new entries until ``stop``. Entries that another worker has handled are skipped."""
    position, wait_s, trouble = -1, follow_wait_min_s, ""
    while not stop.is_set():
        try:
            if (reached := reader.catch_up()) != position or trouble:
                position, wait_s, trouble = reached, follow_wait_min_s, ""
                app.show("views_position", {"position": reached}, f"folded up to {reached}")
                sys.stdout.flush()
            reader.client.entries(position, limit=1, wait_s=poll_wait_s)
        except Unavailable as error:
            if error.message != trouble:
                echo(f"{error.code}: {error.message}", err=True)
            trouble = error.message
            stop.wait(wait_s)
            wait_s = min(2 * wait_s, follow_wait_max_s)
