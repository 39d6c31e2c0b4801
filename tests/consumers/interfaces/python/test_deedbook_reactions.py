"""Python agents react to events: once each, tried again, ended and refused."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from calling import Place
from deedbook_use import awaited, fresh, opened, refusal

from deedbook import AsyncLedger, Event, Ledger
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.session import FindingLogged, SessionStarted


def test_a_function_is_called_once_for_each_event_and_its_effect_commits_with_the_position(
    place: Place, tmp_path: Path
) -> None:
    stream, store = f"session/{fresh()}", tmp_path / "effects.db"
    with opened(place) as ledger:

        @ledger.on(FindingLogged, where=lambda event: event.stream == stream)
        def note(event: Event[FindingLogged], db: sqlite3.Connection) -> None:
            db.execute("CREATE TABLE IF NOT EXISTS notes (finding TEXT)")
            db.execute("INSERT INTO notes VALUES (?)", (event.data.finding,))

        ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"), FindingLogged(finding="b"))
        for _ in range(2):
            ledger.run("notes", after=-1, until=ledger.client.head().size, store=store)
        assert refusal(lambda: ledger.on("finding.loged")).details["near"][0] == "finding.logged"
        assert refusal(lambda: ledger.on(EventData)).code == "UNKNOWN_KIND"
        assert [event.data.finding for event in ledger.events(FindingLogged, stream=stream)] == ["a", "b"]
    with sqlite3.connect(store) as db:
        assert db.execute("SELECT finding FROM notes").fetchall() == [("a",), ("b",)]
    db.close()


def test_coroutines_react_too_and_what_raises_is_tried_again(place: Place, tmp_path: Path) -> None:
    stream, seen = f"session/{fresh()}", list[str]()

    async def react(ledger: AsyncLedger) -> None:
        @ledger.on(FindingLogged, where=lambda event: event.stream == stream)
        async def note(event: Event[FindingLogged], db: sqlite3.Connection) -> None:
            seen.append(event.data.finding)
            await asyncio.sleep(0)
            if len(seen) == 1:
                raise RuntimeError("once")

        await ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"))
        end = [event.index async for event in ledger.events()][-1] + 1
        await ledger.run("notes", after=-1, until=end, store=tmp_path / "effects.db")

    awaited(place, react)
    assert seen == ["a", "a"]


def test_run_ends_when_it_is_stopped_and_a_second_one_of_its_name_is_refused(place: Place, tmp_path: Path) -> None:
    name = fresh("run")
    with opened(place) as ledger, opened(place) as other:
        began = threading.Event()
        stream = f"session/{name}"
        ledger.publish(stream, SessionStarted())

        @ledger.on("session.started")
        def note(event: Event, db: sqlite3.Connection) -> None:
            began.set()

        running = threading.Thread(target=ledger.run, args=(name,), kwargs={"after": -1, "store": tmp_path / "s.db"})
        running.start()
        assert began.wait(30)
        other.on("session.started")(note)
        assert refusal(lambda: other.run(name, store=tmp_path / "s.db")).code == "STORE_IN_USE"
        ledger.stop()
        running.join(30)
        assert not running.is_alive()


def test_closing_from_another_thread_ends_a_run(place: Place, tmp_path: Path) -> None:
    errors: list[BaseException] = []
    for number in range(3):
        ledger = opened(place)
        ledger.on("finding.logged")(lambda _event, _db: None)
        began = threading.Event()

        def work(ledger: Ledger = ledger, began: threading.Event = began, name: str = f"run-{number}") -> None:
            began.set()
            try:
                ledger.run(name, store=tmp_path / f"{name}.db")
            except BaseException as error:  # noqa: BLE001 - nothing may leave this process but its status; it is logged
                errors.append(error)

        running = threading.Thread(target=work)
        running.start()
        began.wait(30)
        ledger.close()
        running.join(30)
        assert not running.is_alive()
    # If the ledger is closed before a run begins, the run raises USAGE.
    assert [getattr(error, "code", error) for error in errors] in ([], ["USAGE"], ["USAGE"] * 2, ["USAGE"] * 3)


def test_following_yields_what_comes_until_it_is_stopped(place: Place) -> None:
    stream = f"session/{fresh()}"
    with opened(place) as ledger, opened(place) as other:
        ledger.publish(stream, SessionStarted(), FindingLogged(finding="first"))
        seen = []
        for event in ledger.follow(FindingLogged, stream=stream, after=-1):
            seen.append(event.data.finding)
            if len(seen) == 2:
                ledger.stop()
            else:
                other.publish(stream, FindingLogged(finding="second"))
        assert seen == ["first", "second"]


def test_a_handler_that_raises_five_times_leaves_a_dead_letter_and_the_next_event_comes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.sdk.reactor.retry_wait_max_s", 0.01)
    stream, seen = f"session/{fresh()}", list[str]()
    with opened(place) as ledger:

        @ledger.on("finding.logged", where=lambda event: event.stream == stream)
        def note(event: Event, _: sqlite3.Connection) -> None:
            seen.append(event.data.finding)
            if event.data.finding == "bad":
                raise ValueError("never")

        accepted = ledger.publish(stream, SessionStarted(), *(FindingLogged(finding=text) for text in ("bad", "good")))
        ledger.run("dead", after=accepted[0].index, until=accepted[-1].index + 1, store=tmp_path / "s.db")
    assert seen == ["bad"] * 5 + ["good"]
    subscriptions = Subscriptions(tmp_path / "s.db")
    assert [letter.error for letter in subscriptions.dead_letters("dead")] == ["ValueError: never"]
    subscriptions.close()


def test_a_function_that_could_never_be_called_rightly_is_refused_before_it_passes_an_event_over(place: Place) -> None:
    async def unawaited(event: Event, db: sqlite3.Connection) -> None:
        raise AssertionError(event, db)

    def without_store(event: Event) -> None:
        raise AssertionError(event)

    misfit: Any = without_store
    with opened(place) as ledger:
        assert "unawaited is a coroutine function" in str(refusal(lambda: ledger.on("handoff.completed")(unawaited)))
        assert "def without_store(event, db)" in str(refusal(lambda: ledger.on("handoff.completed")(misfit)))


def test_a_function_registered_for_no_kind_is_called_for_every_event(place: Place, tmp_path: Path) -> None:
    with opened(place) as ledger:
        begin = ledger.publish(f"session/{fresh()}", SessionStarted(task="a"), FindingLogged(finding="b"))[0].index
        met: list[str] = []

        @ledger.on()
        def note(event: Event, _: sqlite3.Connection) -> None:
            met.append(event.kind)

        ledger.run("all", after=begin - 1, until=begin + 2, store=tmp_path / "all.db")
    assert met == ["session.started", "finding.logged"]


def test_a_function_that_commits_by_itself_is_told_so_in_its_dead_letter(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.sdk.reactor.retry_wait_max_s", 0.01)
    with opened(place) as ledger:
        begin = ledger.session(fresh()).start("it")[0].index

        @ledger.on("session.started")
        def note(_: Event, db: sqlite3.Connection) -> None:
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS met (x)")

        ledger.run("commits", after=begin - 1, until=begin + 1, store=tmp_path / "commits.db")
    with contextlib.closing(Subscriptions(tmp_path / "commits.db")) as kept:
        (letter,) = kept.dead_letters("commits")
    assert "the function ended its transaction" in letter.error
