"""Shared by the tests of `deedbook.Ledger` and `deedbook.AsyncLedger`: opening one, unique names, refusals."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from deedbook import AsyncLedger, DeedbookError, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from calling import Place

_numbers = itertools.count(1)


def fresh(what: str = "it") -> str:
    """Return a name that no other test uses."""
    return f"{what}-{next(_numbers)}"


def opened(place: Place, agent: str | None = "kuro") -> Ledger:
    """Open a ledger as somebody."""
    return Ledger(agent, home=place.home, server=place.server)


def awaited(place: Place, work: Callable[[AsyncLedger], Coroutine[Any, Any, Any]], agent: str | None = "kuro") -> Any:
    """Run something on an async ledger."""

    async def run() -> Any:
        async with AsyncLedger(agent, home=place.home, server=place.server) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def refusal(action: Callable[[], object]) -> DeedbookError:
    """Return the error of an action."""
    with pytest.raises(DeedbookError) as failed:
        action()
    return failed.value
