"""A ledger that is opened, closed, forked, cancelled or left in a hurry loses nothing and leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
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
    """Return what a forked process answers, or the code of the error that it meets."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = str(work())
        except (Refused, Unavailable) as error:
            answer = error.code
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
        assert ledger.ask("sessions.show", id="s1")["task"] == "it"
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
            assert ledger.ask("sessions.show", id="s1")["status"]
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


def test_calls_at_the_same_time_open_one_client_beside_the_loop(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    both = threading.Barrier(2)
    really = Clients.open

    def count(self: Clients, settings: object) -> object:
        client = really(self, settings)  # type: ignore[arg-type]
        opened.append(client)
        return client

    async def work() -> None:
        async with AsyncLedger("kuro", home=alone.home) as ledger:
            ledger._beside, beside = None, ledger._beside  # as behind a server, where it is opened when first needed
            await asyncio.gather(*(ledger.compute(lambda client: (both.wait(60), client.head())) for _ in range(2)))
            assert beside is not None
            clients.close(beside)

    monkeypatch.setattr(Clients, "open", count)
    asyncio.run(work())
    assert len(opened) == 2  # one for the loop, one beside it


def test_a_call_that_goes_on_after_closing_does_not_reach_the_log(alone: Deed) -> None:
    async def work() -> list[BaseException]:
        ledger = AsyncLedger("kuro", home=alone.home)
        await ledger.open()
        calls = [asyncio.create_task(ledger.session(f"s{number}").start()) for number in range(12)]
        await asyncio.sleep(0)
        await ledger.close()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        return [one for one in ended if isinstance(one, BaseException)]

    assert {type(error) for error in asyncio.run(work())} == {Refused}
