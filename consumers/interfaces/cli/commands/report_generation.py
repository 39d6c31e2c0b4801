"""`deed report generate`: makes the report of a session."""

from __future__ import annotations

from typing import Any

import click

from deedbook.consumers.interfaces.cli.app import App, Command, with_contents
from deedbook.consumers.interfaces.cli.commands import session_report as made
from deedbook.consumers.interfaces.cli.output import warn
from deedbook.consumers.interfaces.cli.session_choice import chosen_session


@click.command(cls=Command)
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option(
    "--task-summary", "--summary", metavar="TEXT|@FILE", help="What was done, in 2 or 3 sentences (default: the task)."
)
@click.option("--finding", "findings", multiple=True, help="A finding; give 3 to 5 (default: the session's).")
@click.option("--unknown", "unknowns", multiple=True, help="What is still open (default: the session's).")
@click.option("--context", metavar="TEXT|@FILE", help="What the next session should know (default: the session's).")
@click.option("--artifact", "artifacts", multiple=True, help="A file, commit or page that was made.")
@click.option("--keep", is_flag=True, help="Store each artifact that is a local file as a blob.")
def generate(app: App, /, session_id: str | None, **options: Any) -> None:
    """Make the report of a session that the acting agent owns.

    Missing options are filled from the session's records. Each call adds a version; the latest counts.
    """
    options["artifacts"] = with_contents(app, options["artifacts"]) if options.pop("keep") else options["artifacts"]
    report = made.make_report(app, chosen_session(app, session_id), made.inputs_from(options))
    warn(() if app.as_json else report["warnings"])
    app.show("report", report, lambda: made.print_made(report))
