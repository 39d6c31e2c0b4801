"""`deed handoff`: the table of its verbs. Each operation on a handoff is a verb, too."""

from __future__ import annotations

from typing import Final

import click

from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup, load

VERBS: Final = {
    "why": Lazy("queue:why", "Explain why a handoff is not ready, and who must act, or say that it is."),
    "import": Lazy("handoff_import:import_", "Import handoff files, proposals and active.md tables."),
    "render": Lazy("handoff_files:render", "Print the markdown file of a handoff."),
    "watch": Lazy("handoff_files:watch", "Synchronize a folder of handoff files with the ledger."),
    "check-files": Lazy("handoff_check:check_files", "Check handoff files of a pull request, without a ledger."),
    "graph": Lazy("handoff_graph:graph", "Draw dependencies as a tree."),
    "list": Lazy("handoff_list:list_", "List handoffs, newest first, or show a board."),
    "show": Lazy("handoff_show:show", "Show one handoff: its state and why, tasks, criteria, history."),
}


QUESTION_VERBS: Final = {
    "ask": "`deed ask NAME TEXT --about HANDOFF`",
    "answer": "`deed answer HANDOFF:NUMBER TEXT`",
    "settle": "`deed settle HANDOFF:NUMBER`",
}


class HandoffGroup(LazyGroup):
    """The verbs of the table, and the operations. Help imports the table of operations; a call also its command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return sorted({*super().list_commands(ctx), *load("operation_help:LINES")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb: of ``VERBS``, or of an operation on handoffs."""
        command, name = super().get_command(ctx, cmd_name), self.name_of(cmd_name)
        if command is not None or name not in load("operation_help:LINES"):
            return command
        if name in ("create", "amend"):
            operation: click.Command = load(f"commands.handoffs:{name}")
        else:
            operation = load("commands.handoff_steps:command_of")(name.replace("-", "_"))
        return operation

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was called. Verbs for questions, such as `ask`, are refused with the right command."""
        if args[0] in ("ask", "answer", "settle", "reply"):
            verb = "answer" if args[0] == "reply" else args[0]
            ctx.fail(f"questions have verbs of their own: {QUESTION_VERBS[verb]}")
        return super().resolve_command(ctx, args)

    def help_line(self, ctx: click.Context, name: str) -> str:
        """Return the line of help of a verb."""
        return super().help_line(ctx, name) or str(load("operation_help:LINES")[name])


@click.group(
    cls=HandoffGroup,
    lazy=VERBS,
    aliases={
        "new": "create",
        "start": "claim",
        "close": "complete",
        "link": "create",
        "done": "complete",
    },
)
def handoff() -> None:
    """Hand work over: create, approve, claim, check, complete, verify."""
