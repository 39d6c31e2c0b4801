"""What is closed after use: by ``close``, or at the end of a ``with`` or ``async with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Self


class Resource(ABC):
    """The base of whatever holds a file, a connection or threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Give back what is held; closing again does nothing."""


class AsyncResource(ABC):
    """The base of what starts parts one after the other: each says at once how it stops, in ``_parts``.

    They stop in the opposite order, also when a later one could not start.
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
