"""An agent's connection to a server, in a thread of its own, for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from deedbook.ledger.bus.connection import Addresses, AsyncConnection, Greet, ReadSeeds, close_wait_max_s
from deedbook.ledger.errors import Unavailable


class Connection:
    """An ``AsyncConnection`` in a thread of its own, for callers without an event loop; threads may share it."""

    def __init__(
        self,
        server: str,
        agent: str,
        seed: str,
        greet: Greet | None = None,
        *,
        may_be_absent: bool = False,
        read_seeds: ReadSeeds = list,
        addresses: Addresses | None = None,
    ) -> None:
        """Connect to ``server`` as ``agent``. The arguments are those of ``AsyncConnection``.

        With ``may_be_absent`` an absent server is no error here: the next request connects. Raises Refused:
        ``BUS_DENIED``; as ``read_seeds``. Unavailable: ``BUS_UNAVAILABLE``.
        """
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()  # a request during a close is either sent before it or refused
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="deedbook-bus", daemon=True)
        self._thread.start()
        self._inner = AsyncConnection(
            server, agent, seed, greet, may_be_absent=may_be_absent, read_seeds=read_seeds, addresses=addresses
        )
        try:
            self._run(self._inner.open())
        except BaseException:
            self._stop_loop()
            raise

    @property
    def server(self) -> str:
        """The address of the node that answers now."""
        return self._inner.server

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
        """Close the connection; pending requests fail. Closing again does nothing."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            closed = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        closed.result()
        self._stop_loop()

    async def _close(self) -> None:
        await self._inner.close()
        # Closing failed the pending requests. Let their coroutines and the tasks that nats-py left behind end.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            _, late = await asyncio.wait(others, timeout=close_wait_max_s)
            for task in late:  # otherwise the thread that waits for this task would wait for ever
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=close_wait_max_s)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._closing:
            if self._is_closed:
                work.close()
                raise Unavailable("BUS_UNAVAILABLE", "this client was closed: open a new one")
            answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        return answer.result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
