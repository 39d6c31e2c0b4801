"""The pages about the command line, from the commands themselves: one page for each section of ``deed --help``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from page_parts import code, plain, table

from deedbook.consumers.interfaces.cli.program import ALIASES, SECTIONS, deed

if TYPE_CHECKING:
    from collections.abc import Iterator


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    context = click.Context(deed, info_name="deed")
    for section, verbs in SECTIONS.items():
        lines = [f"# Command line: {section.lower()}", "", "Generated from the commands: `--help` prints the same.", ""]
        for name, alias in sorted((verb, alias) for alias, verb in ALIASES.items() if verb in verbs):
            lines.append(f"`deed {alias}` is `deed {name}`.")
        for name in verbs:
            command = deed.get_command(context, name)
            if command is not None:
                lines += _command(command, click.Context(command, info_name=name, parent=context), 2)
        yield f"command-line/{section.lower().replace(' ', '-')}", "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield from ("", f"{'#' * level} {context.command_path}", "")
    for paragraph in (command.help or "").replace("\b\n", "").split("\n\n"):
        yield from (plain(paragraph), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _command(inner, click.Context(inner, info_name=name, parent=context), level + 1)
        return
    pieces = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{context.command_path} {pieces}", "```", "")
    yield from table(("option", "meaning"), _options(command, context))


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for option in command.get_params(context):
        if isinstance(option, click.Option) and "--help" not in option.opts:
            record = option.get_help_record(context)
            if record is not None:
                yield code(record[0]), plain(record[1])
