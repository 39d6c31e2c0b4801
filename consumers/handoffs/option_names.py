"""Replaces options in messages by arguments, for interfaces that have no options.

A message may tell its reader to add something, and names the option of the command line: ``--lease-minutes``. The
Python interface says ``lease_minutes=`` instead. Whole commands (`` `deed …` ``) and quoted texts stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

from deedbook.consumers.handoffs.operations import OPERATIONS

_ARGUMENTS: Final = [argument for operation in OPERATIONS.values() for argument in operation.arguments]
# Several operations may share an option. The first one decides its argument: ``create`` is first, so ``--task`` means
# ``tasks``.
_NAMES: Final = {argument.option: argument.name for argument in reversed(_ARGUMENTS)} | {
    "--as": "agent",
    "--passphrase-fd": "passphrase",
}
_FLAGS: Final = {argument.option for argument in _ARGUMENTS if argument.form == "flag"} | {"--fail-open"}
_OPTION: Final = re.compile(r"(`deed [^`]*`|'[^']*'|\"[^\"]*\")|(?<![\w-])(--[a-z][a-z-]*)(?: ([A-Z]+\b))?")


def with_arguments(message: str) -> str:
    """Return a message with arguments instead of options.

    >>> with_arguments("name what to tick: --task N, --criterion N, or --all")
    'name what to tick: tasks=N, criteria=N, or all_open=True'
    >>> with_arguments("add --as NAME, run `deed init --trial`, or write '--to'")
    "add agent=NAME, run `deed init --trial`, or write '--to'"
    """

    def argument_of(found: re.Match[str]) -> str:
        literal, option, value = found.groups()
        if literal is not None:
            return str(literal)
        name = _NAMES.get(option, option.removeprefix("--").replace("-", "_"))
        return f"{name}={'True' if option in _FLAGS else value or ''}"

    return _OPTION.sub(argument_of, message)
