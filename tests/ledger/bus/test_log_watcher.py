"""A commit of any process wakes everybody who waits for the log to grow; nothing else wakes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.service.service import LogWatcher

if TYPE_CHECKING:
    import pytest
    from building import Ledger


def test_commit_of_this_process_wakes_all_who_wait_at_once(ledger: Ledger) -> None:
    async def wait() -> list[int]:
        watcher = LogWatcher(ledger.log)  # The watcher does not run here: only look() can wake the waiters.
        watcher.look()
        size = watcher.size
        waiting = [asyncio.create_task(watcher.wait_beyond(size, 20)) for _ in range(3)]
        await asyncio.sleep(0)
        ledger.emit("alice", "session/s1", SessionStarted())
        watcher.look()
        return [after - size for after in await asyncio.gather(*waiting)]

    assert asyncio.run(wait()) == [1, 1, 1]


def test_commit_that_nobody_announces_is_found_by_polling(ledger: Ledger) -> None:
    async def wait() -> int:
        watcher = LogWatcher(ledger.log)
        polling = asyncio.create_task(watcher.run())
        size = await watcher.wait_beyond(0, 20)
        waiting = asyncio.create_task(watcher.wait_beyond(size, 20))
        await asyncio.to_thread(ledger.emit, "alice", "session/s1", SessionStarted())
        after = await waiting
        polling.cancel()
        return after - size

    assert asyncio.run(wait()) == 1


def test_waiting_ends_without_news_and_for_writes_that_add_no_entry(ledger: Ledger) -> None:
    async def wait() -> int:
        watcher = LogWatcher(ledger.log)
        watcher.look()
        size = watcher.size
        with ledger.log.tables.writing() as txn:
            txn.put(b"x", b"a write that adds no entry", db=ledger.log.tables.state)
        watcher.look()
        return await watcher.wait_beyond(size, 0.05) - size

    assert asyncio.run(wait()) == 0


def test_look_that_failed_is_made_up_for_by_the_next(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no reader slot")

    async def wait() -> int:
        watcher = LogWatcher(ledger.log)
        with monkeypatch.context() as patch:
            patch.setattr(ledger.log, "snapshot", fail)
            try:
                watcher.look()
            except RuntimeError:
                assert watcher.size == 0
        watcher.look()
        return watcher.size

    assert asyncio.run(wait()) == ledger.head()[0]
