"""`deed hook`: what a harness runs at an event of its session.

The verb always exits with 0: the exit code 2 of a usage error would block the host. It also runs at every event in
projects without a ledger, so this module imports only the supervisor.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from deedbook.consumers.interfaces.cli.verbs import Options, VerbBase
from deedbook.consumers.interfaces.hooks.supervisor import Call, Work, supervise
from deedbook.ledger.errors import Exit
from deedbook.ledger.home.environment import environment_variable


class _HookVerb(VerbBase):
    """A verb that always exits with 0 and prints no error."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise click.exceptions.Exit(Exit.OK) from error

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        finally:
            ctx.exit(Exit.OK)


@click.command(cls=_HookVerb, hidden=True)
@click.argument("harness")
@click.option("--ask-at-stop", is_flag=True, help="At the end of a turn, ask once if nothing was recorded.")
def hook(options: Options, harness: str, *, ask_at_stop: bool) -> None:
    """Answer one event of a harness: JSON on standard input, at most one JSON object on standard output.

    The exit code is always 0. Errors are written to hooks.log in the ledger's folder.
    """
    agent = options.agent or environment_variable("DEEDBOOK_AGENT") or harness
    supervise(Call(harness, agent, options.home, options.server, ask_at_stop), respond)


def respond(work: Work) -> bytes:
    """Do the work of an event.

    Only the child process imports this, because most processes of the parent do not need it.
    """
    answer: bytes = import_module("deedbook.consumers.interfaces.hooks.responses").respond_to(work)
    return answer
