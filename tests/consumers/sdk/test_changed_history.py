"""Subscriptions over a log that was set back: no event is skipped."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from building import Ledger

from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.trust import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def grow(ledger: Ledger, *names: str) -> None:
    """Append an event for each name."""
    for name in names:
        ledger.emit("alice", f"session/{name}", SessionStarted())


@pytest.fixture
def consume(tmp_path: Path) -> Callable[[Ledger], list[str]]:
    """Return a function that lets one subscription read to the log's end, and returns the names of its sessions."""

    def go_on(ledger: Ledger) -> list[str]:
        names: list[str] = []
        subscriptions = Subscriptions(tmp_path / "subscriber.db")
        with ledger.client() as client:
            reactor = Reactor(client, subscriptions, "s", wait_s=0.01)
            reactor.on("session.started")(lambda event, _: names.append(event.name))
            reactor.start_at(0)
            try:
                reactor.run(threading.Event(), until=client.head().size)
            finally:
                subscriptions.close()
        return names

    return go_on


@pytest.fixture
def put_back(ledger: Ledger, tmp_path: Path, memory_of_readers: Path) -> Iterator[Callable[[], Ledger]]:
    """Return a function that puts back the log with `old1` and `old2`, where no reader trusts a later head."""
    grow(ledger, "old1", "old2")
    database = ledger.home.path / "log" / "data.mdb"
    shutil.copyfile(database, tmp_path / "older.mdb")
    opened: list[Ledger] = []

    def restore() -> Ledger:
        ledger.close()
        shutil.copyfile(tmp_path / "older.mdb", database)
        shutil.rmtree(memory_of_readers)
        opened.append(Ledger(ledger.home.path))
        return opened[0]

    yield restore
    for again in opened:
        again.close()


def test_a_subscription_does_not_go_on_in_another_past(
    ledger: Ledger, put_back: Callable[[], Ledger], consume: Callable[[Ledger], list[str]]
) -> None:
    grow(ledger, "old3", "old4")
    assert consume(ledger) == ["old1", "old2", "old3", "old4"]
    older = put_back()
    grow(older, "new1", "new2", "new3")

    with pytest.raises(Corrupted, match="HISTORY_CHANGED"):
        consume(older)
    with pytest.raises(Corrupted, match="HISTORY_CHANGED"):
        consume(older)


def test_an_epoch_leads_a_subscription_back_and_no_new_event_is_passed_over(
    ledger: Ledger, put_back: Callable[[], Ledger], consume: Callable[[Ledger], list[str]]
) -> None:
    assert consume(ledger) == ["old1", "old2"]
    for name in ("old3", "old4"):
        grow(ledger, name)
        assert consume(ledger) == [name]
    size, root = ledger.head()
    older = put_back()
    grow(older, "new1")
    older.emit("root", "ledger", HistoryReset(abandoned_size=size, abandoned_root=root.hex(), reason="r"))
    grow(older, "new2")

    assert consume(older) == ["new1", "new2"]
    assert consume(older) == []
    grow(older, "new3")
    assert consume(older) == ["new3"]


def test_a_subscription_that_saw_the_log_once_may_meet_events_again_and_misses_none(
    ledger: Ledger, put_back: Callable[[], Ledger], consume: Callable[[Ledger], list[str]]
) -> None:
    grow(ledger, "old3", "old4")
    consume(ledger)
    size, root = ledger.head()
    older = put_back()
    older.emit("root", "ledger", HistoryReset(abandoned_size=size, abandoned_root=root.hex(), reason="r"))
    grow(older, "new1", "new2", "new3")

    assert consume(older) == ["new1", "new2", "new3"]


def test_what_a_subscription_remembers_of_a_long_log_stays_small(
    ledger: Ledger, consume: Callable[[Ledger], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent_heads_min = 8
    monkeypatch.setattr(history, "recent_heads_min", recent_heads_min)
    for number in range(3 * recent_heads_min):
        grow(ledger, f"s{number}")
        assert consume(ledger) == [f"s{number}"]

    subscriptions = Subscriptions(tmp_path / "subscriber.db")
    heads = subscriptions.past("s").heads
    subscriptions.close()
    assert len(heads) <= 2 * recent_heads_min + ledger.head()[0] // history.head_stretch_entries + 1
    assert heads[-1].size == ledger.head()[0]
