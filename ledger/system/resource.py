"""Resources: objects that are closed after use, with ``close`` or by a ``with`` or ``async with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Self


class Resource(ABC):
    """The base of classes that hold a file, a connection or threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release everything; a second call does nothing."""


class AsyncResource(ABC):
    """The base of classes that start parts one after another. Each part registers its stop in ``_parts`` at once.

    The parts stop in reverse order, also if a later part cannot start.
    """

    def __init__(self) -> None:
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._parts.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    @abstractmethod
    async def _start(self) -> None:
        """Start the parts."""
