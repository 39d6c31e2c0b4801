"""An agent's connection to a server for callers without an event loop: in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from deedbook.ledger.bus.connection import AsyncConnection, Greet, close_wait_max_s
from deedbook.ledger.errors import Unavailable


class Connection:
    """An ``AsyncConnection`` in a thread of its own, for callers without an event loop; threads may share it."""

    def __init__(
        self, server: str, agent: str, seed: str, greet: Greet | None = None, *, may_be_away: bool = False
    ) -> None:
        """Connect to ``server`` as ``agent``, whose bus key has the nkey ``seed``; ``greet`` as for the other one.

        Where it ``may_be_away``, the next request connects. Raises Refused: ``BUS_DENIED``. Unavailable:
        ``BUS_UNAVAILABLE``.
        """
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()  # whoever asks while another thread closes is heard before that, or refused
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="deedbook-bus", daemon=True)
        self._thread.start()
        self._inner = AsyncConnection(server, agent, seed, greet, may_be_away=may_be_away)
        try:
            self._run(self._inner.open())
        except BaseException:
            self._stop_loop()
            raise

    def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """Return the answer, as ``AsyncConnection.request`` does."""
        answer: dict[str, Any] = self._run(self._inner.request(subject, payload, headers, wait_s=wait_s))
        return answer

    def greet_again(self) -> None:
        """Do what ``AsyncConnection.greet_again`` does."""
        self._run(self._inner.greet_again())

    def close(self) -> None:
        """Close the connection; requests that wait fail. Closing again does nothing."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            closed = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        closed.result()
        self._stop_loop()

    async def _close(self) -> None:
        await self._inner.close()
        # Closing failed the requests that wait; let their coroutines, and what nats-py left behind, come to their end.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            _, late = await asyncio.wait(others, timeout=close_wait_max_s)
            for task in late:  # else the thread that waits for it would wait for ever
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=close_wait_max_s)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._closing:
            if self._is_closed:
                work.close()
                raise Unavailable("BUS_UNAVAILABLE", "this client was closed")
            answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        return answer.result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
