"""An effect happens once, even if others run the same subscription, and no run ends or waits without saying so."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import queue
import sqlite3
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from calling import Serving

from deedbook import AsyncLedger, Event, Ledger, Refused, Unavailable
from deedbook.consumers.sdk import reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.bus import connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed


wait_max_s: Final = 60.0


@pytest.fixture
def home(alone: Deed) -> Path:
    """A ledger with four events to react to."""
    alone("agent", "add", "kuro")
    with Ledger("kuro", home=alone.home) as ledger:
        for number in range(4):
            ledger.session(f"s{number}").start()
    return alone.home


class Run:
    """A run of one subscription in a thread, whose effect of the first event waits for a signal."""

    def __init__(self, home: Path, store: Path) -> None:
        self.at_work, self.may_go_on = threading.Event(), threading.Event()
        self.error: Unavailable | None = None
        self._thread = threading.Thread(target=self._run, args=(home, store))
        self._thread.start()

    def _run(self, home: Path, store: Path) -> None:
        with Ledger("kuro", home=home) as ledger:

            @ledger.on("session.started")
            def effect(event: Event, db: sqlite3.Connection) -> None:
                db.execute("CREATE TABLE IF NOT EXISTS done (event_index INTEGER)")
                db.execute("INSERT INTO done VALUES (?)", (event.index,))
                self.at_work.set()
                self.may_go_on.wait(wait_max_s)

            try:
                ledger.run("mail", after=-1, until=ledger.client.head().size, store=store)
            except Unavailable as error:
                self.error = error

    def end(self) -> str:
        """Let it continue; return the code of the error that it ended with."""
        self.may_go_on.set()
        self._thread.join(wait_max_s)
        return "" if self.error is None else self.error.code


def effects(store: Path) -> list[int]:
    """Return how often each event had its effect."""
    with sqlite3.connect(store) as db:
        return [count for (count,) in db.execute("SELECT count(*) FROM done GROUP BY event_index")]


def test_a_second_run_is_refused_whatever_link_names_its_store(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "one.db")
    first = Run(home, tmp_path / "one.db")
    assert first.at_work.wait(wait_max_s)
    assert Run(home, tmp_path / "link.db").end() == "STORE_IN_USE"
    assert first.end() == ""
    assert effects(tmp_path / "one.db") == [1] * 4


def test_the_effect_happens_once_when_the_file_of_the_lock_is_removed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events_read, count_attempt = threading.Semaphore(0), Subscriptions.count_attempt

    def count(self: Subscriptions, name: str, index: int) -> int:
        events_read.release()
        return count_attempt(self, name, index)

    monkeypatch.setattr(Subscriptions, "count_attempt", count)
    store = tmp_path / "one.db"
    first = Run(home, store)
    assert first.at_work.wait(wait_max_s)
    (lock,) = tmp_path.glob("one.db.*.lock")
    lock.unlink()
    second = Run(home, store)
    second.may_go_on.set()
    assert all(events_read.acquire(timeout=wait_max_s) for _ in (first, second))  # both have read the first event
    assert "STORE_IN_USE" in {first.end(), second.end()}
    assert effects(store) == [1] * 4


def test_where_files_cannot_be_locked_a_run_says_so(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = Run(home, tmp_path / "one.db")
    assert (run.end(), run.at_work.is_set()) == ("STORE_UNAVAILABLE", False)


def test_a_name_that_is_no_text_is_refused(home: Path) -> None:
    with Ledger("kuro", home=home) as ledger:
        ledger.on("session.started")(lambda _event, _db: None)
        with pytest.raises(Refused, match="USAGE"):
            ledger.run("\udc80")


def test_whoever_interrupts_an_effect_at_the_keyboard_never_makes_a_dead_letter(home: Path) -> None:
    seen: list[int] = []
    interrupts = iter([True] * 7)
    with Ledger("kuro", home=home) as ledger:

        @ledger.on("session.started")
        def effect(event: Event, _db: sqlite3.Connection) -> None:
            if next(interrupts, False):
                raise KeyboardInterrupt
            seen.append(event.index)

        size = ledger.client.head().size
        for _ in range(7):
            with pytest.raises(KeyboardInterrupt):
                ledger.run("mail", after=-1, until=size)
        ledger.run("mail", until=size)
    assert len(seen) == 4


def test_an_effect_that_waits_for_what_somebody_cancelled_has_failed_and_the_run_goes_on(home: Path) -> None:
    seen: list[int] = []

    async def work() -> None:
        async with AsyncLedger("kuro", home=home) as ledger:
            first: list[int] = []

            @ledger.on("session.started")
            async def effect(event: Event, _db: sqlite3.Connection) -> None:
                if not first:
                    first.append(event.index)
                    other = asyncio.create_task(asyncio.sleep(60))
                    other.cancel()
                    await other
                seen.append(event.index)

            await ledger.run("mail", after=-1, until=(await ledger.compute(lambda client: client.head())).size)

    asyncio.run(work())
    assert len(seen) == 4


def test_a_run_that_is_cancelled_ends_its_function_first_and_goes_on_there_later(home: Path) -> None:
    seen: list[int] = []
    ended: list[int] = []

    async def work() -> None:
        async with AsyncLedger("kuro", home=home) as ledger:
            began = asyncio.Event()

            @ledger.on("session.started")
            async def effect(event: Event, _db: sqlite3.Connection) -> None:
                seen.append(event.index)
                began.set()
                try:
                    await asyncio.sleep(0 if len(seen) > 1 else wait_max_s)
                finally:
                    ended.append(event.index)

            size = (await ledger.compute(lambda client: client.head())).size
            running = asyncio.create_task(ledger.run("mail", after=-1, until=size))
            await began.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (ended, ledger._running) == (seen, set())
            await ledger.run("mail", until=size)

    asyncio.run(work())
    assert seen[0] == seen[1]
    assert len(seen) == 5


def test_two_subscriptions_of_one_file_do_not_block_their_event_loop(home: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    async def one(name: str) -> None:
        async with AsyncLedger("kuro", home=home) as ledger:

            @ledger.on("session.started")
            async def effect(_event: Event, db: sqlite3.Connection) -> None:
                db.execute("CREATE TABLE IF NOT EXISTS done (event_index INTEGER)")
                await asyncio.sleep(0.05)
                seen.append(name)

            size = (await ledger.compute(lambda client: client.head())).size
            await ledger.run(name, after=-1, until=size, store=tmp_path / "both.db")

    async def both() -> None:
        await asyncio.gather(one("a"), one("b"))

    begun = time.monotonic()
    asyncio.run(both())
    assert sorted(seen) == ["a"] * 4 + ["b"] * 4
    assert time.monotonic() - begun < 8  # SQLite waits ten seconds for a locked file


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_subscriber_waits_while_its_server_is_gone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 0.1)
    monkeypatch.setattr(connection, "request_time_max_s", 0.1)
    monkeypatch.setattr(reactor, "server_wait_s", 0.05)
    outage, seen = threading.Event(), queue.SimpleQueue[str]()
    ends: list[Callable[[], object]] = []
    warning = reactor.log.warning
    monkeypatch.setattr(reactor.log, "warning", lambda *args, **named: (outage.set(), warning(*args, **named)))

    def see(event: Event, _: sqlite3.Connection) -> None:
        seen.put(event.stream)

    def wait(url: str) -> None:
        with Ledger("kuro", home=home, server=url) as ledger:
            ends.append(ledger.stop)
            ledger.on("session.started")(see)
            ledger.run("mail", after=-1, store=tmp_path / "mail.db")

    async def await_(url: str) -> None:
        async with AsyncLedger("kuro", home=home, server=url) as ledger:
            ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ledger.stop))
            ledger.on("session.started")(see)
            await ledger.run("mail", after=-1, store=tmp_path / "mail.db")

    with Serving(home) as serving:
        url = serving.place.server
        running = threading.Thread(target=(lambda: asyncio.run(await_(url))) if is_async else partial(wait, url))
        running.start()
        assert [seen.get(timeout=wait_max_s) for _ in range(4)] == [f"session/s{number}" for number in range(4)]
    assert outage.wait(wait_max_s)
    with Serving(home, "--port", url.rpartition(":")[2]), Ledger("kuro", home=home, server=url) as ledger:
        ledger.session("after").start()
        assert seen.get(timeout=wait_max_s) == "session/after"
        ends[0]()
        running.join(wait_max_s)
    assert not running.is_alive()
    assert seen.empty()
