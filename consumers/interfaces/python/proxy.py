"""The methods of an object that blocks, awaited: each call runs in a thread, in the context of its caller.

``AsyncLedger`` and its nouns and queries are such proxies of ``Ledger``. Arguments, types and docstring of a method are
written once, in the blocking class; ``awaited`` copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from deedbook.consumers.interfaces.python.near_names import Spelled

P = ParamSpec("P")
R = TypeVar("R")


class AsyncProxy(Spelled):
    """The base of a class whose methods call those of an object that blocks."""

    async def _call(self, method: Callable[..., R], *args: Any, **named: Any) -> R:
        """Call a method of the object in a thread, and return its result."""
        raise NotImplementedError


class AsyncPart(AsyncProxy):
    """A proxy of an object that is made of the ledger for each call: a noun, or a family of queries."""

    def __init__(self, owner: AsyncProxy, make: Callable[[Any], Any]) -> None:
        self._owner, self._make = owner, make

    async def _call(self, method: Callable[..., R], *args: Any, **named: Any) -> R:
        return await self._owner._call(lambda ledger: method(self._make(ledger), *args, **named))  # noqa: SLF001 - its base


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method of an ``AsyncProxy`` that calls ``method`` in a thread."""

    @wraps(method)
    async def call(self: AsyncProxy, /, *args: P.args, **named: P.kwargs) -> R:
        return await self._call(method, *args, **named)

    return call
