"""The folder in a printed command: it must name the ledger of this run where a shell would find another one."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home.location import find_home, present_folder, resolved
from deedbook.ledger.home.trust import quoted_path

_NAMES_LEDGER: Final = re.compile(r" --(home|bundle)\b")
_NEXT_LINE: Final = re.compile(r"(?m)^(  next(?:, for [^:\n]+)?|Next): (deed .*)$")


def in_home(command: str, home: Path | None) -> str:
    """Return a ``deed`` command that asks the ledger in ``home``, the --home of this run.

    It stays as it is if it names a ledger, if there is no --home, or if ``home`` is found in this folder without it.

    >>> in_home("deed next --as dana", Path("a b"))
    "deed --home 'a b' next --as dana"
    """
    if home is None or not command.startswith("deed ") or _NAMES_LEDGER.search(command):
        return command
    with suppress(DeedbookError):  # the working directory is gone
        found = find_home(present_folder())
        if found is not None and resolved(found) == resolved(home):
            return command
    return f"deed --home {quoted_path(home)} {command.removeprefix('deed ')}"


def commands_in_home(answer: Any, home: Path | None) -> None:
    """Change the commands in ``next`` of an answer, or of the details of an error, as ``in_home`` does."""
    if isinstance(answer, dict) and isinstance(answer.get("next"), list):
        answer["next"] = [in_home(command, home) for command in answer["next"]]


def lines_in_home(text: str, home: Path | None) -> str:
    """Return a text whose lines ``next: COMMAND`` are as ``in_home`` returns them."""
    return _NEXT_LINE.sub(lambda line: f"{line[1]}: {in_home(line[2], home)}", text)
