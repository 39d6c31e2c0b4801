"""A ledger that is opened, closed, forked, cancelled or left in a hurry loses nothing and leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from deedbook import AsyncLedger, Ledger, Refused, Unavailable
from deedbook.consumers.sdk.clients import Clients, clients

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    from deedbook import Event


@pytest.fixture
def alone(alone: Deed) -> Deed:
    """A ledger of the test's own, with an agent."""
    alone("agent", "add", "kuro")
    return alone


def in_a_fork(work: Callable[[], object]) -> str:
    """Return the answer of a forked process, or the code of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = str(work())
        except (Refused, Unavailable) as error:
            answer = error.code
        except StopIteration:  # a coroutine that ended
            answer = "StopIteration"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def open_folders(shared: Clients) -> int:
    """Return how many folders are open in this process."""
    return len(shared._clients)


def test_a_program_that_changes_its_folder_keeps_its_ledger(
    alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(alone.home.parent)
    (tmp_path / "elsewhere").mkdir()
    before = open_folders(clients)
    with Ledger("kuro", home=alone.home.name) as ledger:
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.session("s1").start("it")
        ledger.on("session.started")(lambda _event, _db: None)
        ledger.run("mail", after=-1, until=1)
        assert ledger.session("s1").show().task == "it"
    assert not list((tmp_path / "elsewhere").iterdir())
    assert open_folders(clients) == before


def test_a_ledger_is_closed_although_a_link_in_its_path_leads_elsewhere_by_now(alone: Deed, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(alone.home)
    before = open_folders(clients)
    with Ledger("kuro", home=link):
        link.unlink()
        link.symlink_to(tmp_path)
    assert open_folders(clients) == before


def test_a_fork_neither_uses_nor_ends_what_was_open(alone: Deed) -> None:
    with Ledger("kuro", home=alone.home) as ledger:
        ledger.session("s1").start()
        assert in_a_fork(lambda: ledger.session("s2").start()) == "USAGE"
        assert in_a_fork(ledger.close) == "None"
        assert in_a_fork(lambda: Ledger("kuro", home=alone.home)) == "STORE_UNAVAILABLE"
        for _ in range(3):
            assert ledger.sessions.show(id="s1").status
            ledger.session("s1").finding("still here")
    assert in_a_fork(lambda: Ledger("kuro", home=alone.home).client.head().size) != "STORE_UNAVAILABLE"


def test_an_error_after_stop_is_told_and_one_after_close_is_a_stop(alone: Deed) -> None:
    with Ledger("kuro", home=alone.home) as ledger:
        ledger.session("s1").start()

        @ledger.on("session.started")
        def away(_event: Event, _db: sqlite3.Connection) -> None:
            ledger.stop()
            raise Unavailable("STORE_FULL", "no space left")

        with pytest.raises(Unavailable, match="STORE_FULL"):
            ledger.run("mail", after=-1)


def test_an_async_ledger_that_is_opened_again_reacts_again(alone: Deed) -> None:
    seen: list[int] = []
    ledger = AsyncLedger("kuro", home=alone.home)
    ledger.on("session.started")(lambda event, _db: seen.append(event.index))

    async def once(name: str) -> None:
        async with ledger:
            (accepted,) = await ledger.session(name).start()
            await ledger.run("mail", after=-1, until=accepted.index + 1)

    asyncio.run(once("s1"))
    asyncio.run(once("s2"))
    assert len(seen) == 2


def test_opening_that_is_cancelled_leaves_nothing_open(alone: Deed) -> None:
    async def give_up(turns: int) -> None:
        ledger = AsyncLedger("kuro", home=alone.home)
        opening = asyncio.create_task(ledger.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        await ledger.close()

    before = open_folders(clients)
    for turns in range(4):
        asyncio.run(give_up(turns))
    assert open_folders(clients) == before


def test_closing_waits_for_the_calls_that_began(alone: Deed) -> None:
    async def work() -> int:
        ledger = AsyncLedger("kuro", home=alone.home)
        await ledger.open()
        calls = [asyncio.create_task(ledger.session(f"s{number}").start()) for number in range(12)]
        await asyncio.sleep(0)
        late = asyncio.create_task(ledger.session("late").start())
        await ledger.close()
        assert [len(accepted) for accepted in await asyncio.gather(*calls)] == [1] * 12
        with pytest.raises(Refused, match="not open"):
            await late
        return open_folders(clients)

    before = open_folders(clients)
    assert asyncio.run(work()) == before
    with Ledger("kuro", home=alone.home) as ledger:
        assert len(list(ledger.events("session.started"))) == 12


def test_a_fork_of_a_program_with_an_async_ledger_is_refused(alone: Deed) -> None:
    async def work() -> tuple[str, str]:
        async with AsyncLedger("kuro", home=alone.home) as ledger:
            await ledger.session("s1").start()
            return in_a_fork(lambda: ledger.get(0).send(None)), in_a_fork(lambda: ledger.close().send(None))

    refused, closed = asyncio.run(work())
    assert refused == "USAGE"
    assert closed == "StopIteration"
