"""`baton hook`: the command that setup registers, by a name that people can call.

What harnesses call is ``python -P -m consumers.doors.hooks``, which loads less; both answer the same and exit with 0.
"""

from __future__ import annotations

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.hooks.__main__ import respond
from consumers.doors.hooks.harnesses import HARNESSES
from consumers.doors.hooks.supervising import Call, supervise
from ledger.config import environment_variable


@click.command(cls=Command, hidden=True)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
@click.pass_obj
def hook(app: App, harness: str) -> None:
    """Answer one event of a harness: its JSON on standard input, at most one JSON object on standard output.

    Never fails: what goes wrong is written to hooks.log in the ledger's folder.
    """
    supervise(Call(harness, app.agent or environment_variable("BATON_AGENT"), app.home, app.server), respond)
