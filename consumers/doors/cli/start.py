"""What the command line's libraries import and few verbs use: it is imported when it is used.

``click`` imports ``inspect``, and with it much of the compiler, to take the margin off texts of several lines; ``uuid``
asks ``platform`` for the system's name; ``msgspec`` describes types, and has ``typing_extensions`` for names that
``typing`` has. All of it takes longer than Python's own start.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module that is imported when it is asked for something."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


class _Inspect(_Later):
    """Python's ``inspect``, but for what is asked of it for every option of a verb."""

    def cleandoc(self, text: str) -> str:
        """Return the text without its margin."""
        is_one_line = text.isprintable() and not text.startswith(" ")
        return text if is_one_line else str(import_module("inspect").cleandoc(text))


class _Platform(_Later):
    """Python's ``platform``, but for what is asked of it at every start."""

    def system(self) -> str:
        """Return the name of the system."""
        return os.uname().sysname


def import_libraries() -> None:
    """Import ``click`` and ``msgspec``, and leave what anybody else imports as it is."""
    if "msgspec" in sys.modules:
        return
    given: dict[str, Any] = {name: _Later(name) for name in ("msgspec.inspect", "textwrap")}
    given |= {"inspect": _Inspect("inspect"), "platform": _Platform("platform"), "typing_extensions": None}
    instead = {name: module for name, module in given.items() if name not in sys.modules}
    sys.modules.update(instead)
    try:
        import click  # noqa: F401, PLC0415
        import msgspec  # noqa: F401, PLC0415
    finally:
        for name in instead:
            del sys.modules[name]
