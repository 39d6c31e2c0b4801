"""Groups of commands that import a command's module only when it is called, and options that every command takes.

A start of the command line should cost little more than a start of Python: the help of a group is printed from its
table, without importing any command.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from consumers.doors.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Callable


help_width_max = 150


class Lazy(NamedTuple):
    """Where a command is: ``module:attribute`` under ``consumers.doors.cli.commands``, and its one line of help."""

    target: str
    help: str


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.ensure_object(App), name, value)

    return callback


def common_options() -> list[click.Option]:
    """Return the options that stand before or after any verb."""
    return [
        click.Option(
            ["--home"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The ledger's folder itself (default: .baton of the nearest parent, or BATON_HOME).",
            expose_value=False,
            callback=_remember("home"),
        ),
        click.Option(
            ["--server"],
            metavar="URL",
            help="Ask the ledger behind this server, as nats://127.0.0.1:4222 (or BATON_SERVER).",
            expose_value=False,
            callback=_remember("server"),
        ),
        click.Option(
            ["--as"],
            metavar="NAME",
            help="The agent who acts (or BATON_AGENT).",
            expose_value=False,
            callback=_remember("agent"),
        ),
        click.Option(
            ["--passphrase-fd"],
            type=click.IntRange(0),
            help="Read the passphrase of a sealed key from this file descriptor.",
            expose_value=False,
            callback=_remember("passphrase_fd"),
        ),
        click.Option(
            ["--json", "json_"],
            is_flag=True,
            help="Print one JSON document.",
            expose_value=False,
            callback=_remember("as_json"),
        ),
    ]


class Command(click.Command):
    """A verb, with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Add the common options after the verb's own."""
        super().__init__(*args, **kwargs)
        self.params += common_options()


class Group(click.Group):
    """A group of verbs that are imported when called; an unknown one names the nearest."""

    command_class = Command

    def __init__(
        self, *args: Any, lazy: dict[str, Lazy] | None = None, aliases: dict[str, str] | None = None, **kwargs: Any
    ) -> None:
        """Take the table of lazily imported verbs and of other names for them."""
        super().__init__(*args, **kwargs)
        self.params += common_options()
        self._lazy = lazy or {}
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb, importing it now."""
        name = self._aliases.get(cmd_name, cmd_name)
        found = self._lazy.get(name)
        if found is None:
            return super().get_command(ctx, name)
        module, _, attribute = found.target.partition(":")
        command: click.Command = getattr(import_module(f"consumers.doors.cli.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was called; an unknown one is refused with the nearest names."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = self._nested(ctx, name) or self._near(ctx, name)
            hint = f": did you mean {' or '.join(f'`{ctx.command_path} {one}`' for one in names)}?" if names else ""
            ctx.fail(f"there is no verb {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def _nested(self, ctx: click.Context, name: str) -> list[str]:
        """Return the verbs of this group's own groups that are called ``name``: `claim` is `handoff claim`."""
        groups = [(one, self.get_command(ctx, one)) for one in self.list_commands(ctx)]
        found = [
            (one, group._aliases.get(name, name))  # noqa: SLF001 - of this very class
            for one, group in groups
            if isinstance(group, Group) and group.get_command(ctx, name) is not None
        ]
        return [f"{one} {verb}" for one, verb in found]

    def _near(self, ctx: click.Context, name: str) -> list[str]:
        """Return the verbs of this group that are written much like ``name``."""
        import difflib  # noqa: PLC0415 - only for a verb that does not exist

        near = difflib.get_close_matches(name, [*self.list_commands(ctx), *self._aliases], n=3, cutoff=0.65)
        return list(dict.fromkeys(self._aliases.get(one, one) for one in near))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the verbs with their help from the table, importing nothing."""
        rows = []
        for name in self.list_commands(ctx):
            found = self._lazy.get(name)
            command = None if found else super().get_command(ctx, name)
            rows.append((name, found.help if found else command.get_short_help_str(help_width_max) if command else ""))
        if rows:
            with formatter.section("Verbs"):
                formatter.write_dl(rows)
