"""Converts arguments of operations (``sdk.operations``) into parameters of the command line, and reads their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import read_text
from deedbook.consumers.interfaces.cli.verbs import ExtraWords, ListOption
from deedbook.consumers.sdk.operations import Argument
from deedbook.ledger.errors import Refused

_PERCENTAGE: Final = re.compile(r"(\d{1,3}(?:\.\d+)?) ?%?")
percent: Final = 100


class _Share(click.FloatRange):
    """A number from 0 to 1. A percentage is refused with the number that it means."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises click.BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            match = _PERCENTAGE.fullmatch(str(value))
            if match is not None and 0 <= float(match[1]) <= percent:
                self.fail(f"{error.message.rstrip('.')}: write {float(match[1]) / percent:g}", param, ctx)
            raise


def parameters(arguments: Iterable[Argument]) -> list[click.Parameter]:
    """Return the parameters of the command line for these arguments."""
    return [_parameter(argument) for argument in arguments]


def _parameter(argument: Argument) -> click.Parameter:
    if not argument.option.startswith("-"):
        return click.Argument([argument.name], metavar=argument.option)
    type_: click.ParamType[Any] | None = click.Choice(argument.choices) if argument.choices else None
    if argument.form in ("number", "numbers"):
        type_ = click.IntRange(argument.least, argument.most)
    elif argument.form == "share":
        type_ = _Share(0, 1)
    return (ListOption if argument.form in ("names", "numbers") else click.Option)(
        [argument.option, argument.name],
        type=type_,
        multiple=argument.is_list,
        is_flag=argument.form == "flag",
        **({"default": argument.default} if argument.default else {}),  # click would take None as a default value
        show_default=True,
        required=argument.is_needed,
        metavar={"number": "N", "numbers": "N,N…"}.get(argument.form, argument.metavar),
        help=f"{argument.words or ''}{' May be given more than once.' * argument.is_list}".strip(),
    )


def seal_option(what: str = "its texts", more: str = "") -> click.Option:
    """Return the option ``--seal``; its help names ``what`` it seals, and ends with ``more``."""
    words = f"Encrypt {what} with the key of this subject, which `deed erase SUBJECT` can destroy.{more}"
    return click.Option(["--seal"], metavar="SUBJECT", help=words)


def values_of(arguments: Iterable[Argument], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that were given, lists as lists; texts may come from files."""
    known = {argument.name: argument for argument in arguments}
    values: dict[str, Any] = {}
    for name, value in options.items():
        argument = known.get(name)
        if value in (None, ()) or (value is False and argument is not None and not argument.is_needed):
            continue
        if argument is not None and argument.takes_file:
            value = read_text(value, argument.option)  # noqa: PLW2901
        values[name] = list(value) if isinstance(value, tuple) else value
    return values


def id_and(arguments: Sequence[str], what: str) -> tuple[str | None, str]:
    """Return the id, if there is one, and WHAT from the arguments ``[ID] WHAT``."""
    if not arguments:
        raise Refused("USAGE", f"give {what}: an ID may come before it")
    if len(arguments) > 2:
        message = f"{what} was read as {len(arguments)} arguments"
        raise ExtraWords(click.get_current_context(), [], list(arguments), message)
    return arguments[0] if len(arguments) == 2 else None, arguments[-1]
