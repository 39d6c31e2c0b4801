"""`baton project`: run the projection workers by hand."""

from __future__ import annotations

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import print_table, progress
from consumers.doors.cli.program import Command
from projections.reader import Reader
from projections.views import VIEWS

NAMES = [view.name for view in VIEWS]


@click.command(cls=Command)
@click.option("--view", "views", multiple=True, help="Only this view; may be given more than once.")
@click.option("--rebuild", is_flag=True, help="Fold the whole log again into fresh tables.")
@click.pass_obj
def project(app: App, views: tuple[str, ...], *, rebuild: bool) -> None:
    """Bring the views up to date with the log, or rebuild them from it; prints each view's position and digest."""
    reader = Reader(app.local_client(), app.settings())
    try:
        with progress("folding", shown=not app.as_json) as step:
            if rebuild:
                position = reader.rebuild(list(views) or NAMES, progress=lambda done: step(*done))
            else:
                position = reader.catch_up(progress=lambda done: step(*done))
        digests = {name: reader.runner.digest(name) for name in views or NAMES}
    finally:
        reader.close()
    rows = [(name, position, digest[:16]) for name, digest in digests.items()]
    data = {"position": position, "digests": digests}
    app.show("views", data, lambda: print_table(("view", "position", "digest"), rows))
