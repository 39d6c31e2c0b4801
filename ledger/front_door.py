"""Front doors that open nothing: a package's names stand once, and are loaded when first asked for.

The names are those of the imports under ``if TYPE_CHECKING:``, which a type checker reads as they stand (``as`` says
that the name is offered) and nobody runs; ``__getattr__, __dir__ = front_door(__name__)`` follows under ``else:``,
because a type checker that sees a ``__getattr__`` takes every misspelt name for one that is there. They are read from
the package's source, by its own loader, at the first question: so it works from a zip, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any


def front_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package that offers what it imports for type checkers."""

    @cache
    def offered() -> dict[str, str]:
        return _type_checking_imports(package)

    def load(name: str) -> Any:
        if name == "__all__":  # what ``from package import *`` asks for
            return sorted(offered())
        # ``from package import module`` asks here first: that costs a look at a folder, and not the whole source.
        if PathFinder.find_spec(f"{package}.{name}", sys.modules[package].__path__) or name not in offered():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(offered()[name]), name)

    def names() -> list[str]:
        own = {name for name, value in vars(sys.modules[package]).items() if _is_own(package, name, value)}
        return sorted({*offered(), *own})

    return load, names


def _is_own(package: str, name: str, value: Any) -> bool:
    """Whether a name is the package's own, not something that it imports for itself."""
    if value is front_door:
        return False
    return name.startswith("_") or f"{package}.{name}" in sys.modules or getattr(value, "__module__", "") == package


def _type_checking_imports(package: str) -> dict[str, str]:
    """Return the module of each name that the package's source imports as itself under ``if TYPE_CHECKING:``."""
    import ast  # noqa: PLC0415 - only who asks for a name reads the source

    # The loader of a folder or a zip file has the source; an installation without sources offers submodules only.
    loader: Any = sys.modules[package].__loader__
    return {
        alias.name: statement.module
        for block in ast.parse(loader.get_source(package) or "").body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
        if alias.asname == alias.name
    }
