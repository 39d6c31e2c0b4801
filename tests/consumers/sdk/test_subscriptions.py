"""The store of subscriptions: positions, attempts and dead letters survive the process; it stores nothing else."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.interfaces.cli.commands.watch import watcher_name
from deedbook.consumers.sdk.subscription_store import DeadLetter, SubscriptionStore
from deedbook.consumers.sdk.subscriptions import Subscriptions, open_subscriptions
from deedbook.ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the subscriptions."""
    return tmp_path / "subscribers" / "one.db"


@pytest.fixture
def subscriptions(store: Path | str) -> Iterator[SubscriptionStore]:
    """Open subscriptions, in either store."""
    opened = open_subscriptions(store)
    yield opened
    opened.close()


@pytest.fixture
def in_file(path: Path) -> Iterator[Subscriptions]:
    """Open subscriptions in a file."""
    opened = Subscriptions(path)
    yield opened
    opened.close()


def move(subscriptions: SubscriptionStore, name: str, index: int) -> None:
    """Move a position, as a transaction of its own."""
    with subscriptions.transaction():
        subscriptions.move(name, index)


def test_what_is_remembered_is_there_for_the_next_process(subscriptions: SubscriptionStore, store: Path | str) -> None:
    move(subscriptions, "mail", 7)
    subscriptions.count_attempt("mail", 7)
    subscriptions.bury("other", DeadLetter(3, "blake3:id", "reason"))
    subscriptions.close()
    again = open_subscriptions(store)
    assert (again.position("mail"), again.position("other"), again.position("new")) == (7, 4, None)
    assert again.count_attempt("mail", 7) == 2
    assert again.dead_letters("other") == [DeadLetter(3, "blake3:id", "reason")]
    assert again.dead_letters("mail") == []
    again.close()


def test_file_is_for_its_owner_alone(in_file: Subscriptions, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_moving_on_forgets_the_attempts_behind_and_no_others(subscriptions: SubscriptionStore) -> None:
    for name, index in (("mail", 7), ("mail", 8), ("other", 7)):
        subscriptions.count_attempt(name, index)
    move(subscriptions, "mail", 8)
    attempts = [subscriptions.count_attempt(name, index) for name, index in (("mail", 7), ("mail", 8), ("other", 7))]
    assert attempts == [1, 2, 2]


def test_attempt_that_could_not_begin_is_taken_back(subscriptions: SubscriptionStore) -> None:
    subscriptions.count_attempt("mail", 7)
    subscriptions.count_attempt("mail", 7)
    subscriptions.uncount_attempt("mail", 7)
    assert subscriptions.count_attempt("mail", 7) == 2


def test_transaction_that_raises_leaves_nothing(subscriptions: SubscriptionStore) -> None:
    move(subscriptions, "mail", 1)
    with contextlib.suppress(KeyboardInterrupt), subscriptions.transaction():
        subscriptions.move("mail", 2)
        raise KeyboardInterrupt
    assert subscriptions.position("mail") == 1


def test_effect_that_ends_the_transaction_itself_is_told_as_what_it_raised(subscriptions: SubscriptionStore) -> None:
    def effect() -> None:
        with subscriptions.transaction() as db:
            db.execute("ROLLBACK")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        effect()


def test_position_in_one_ledger_is_none_in_another(subscriptions: SubscriptionStore) -> None:
    assert subscriptions.start_at("mail", 7, "one") == 7
    assert subscriptions.start_at("mail", 0, "one") == 7
    with pytest.raises(Refused) as refused:
        subscriptions.start_at("mail", 0, "two")
    assert refused.value.code == "WRONG_LEDGER"
    move(subscriptions, "mail", 9)
    assert subscriptions.start_at("mail", 0, "one") == 9


def test_reason_of_a_dead_letter_may_hold_any_text(subscriptions: SubscriptionStore) -> None:
    subscriptions.bury("mail", DeadLetter(3, "blake3:id", "zero \0 and 今天"))
    (letter,) = subscriptions.dead_letters("mail")
    assert letter.error.endswith(" and 今天")


def test_dead_letter_that_is_none_cannot_be_forgotten(subscriptions: SubscriptionStore) -> None:
    subscriptions.bury("mail", DeadLetter(3, "blake3:id", "reason"))
    subscriptions.unbury("mail", 3)
    assert subscriptions.dead_letters("mail") == []
    with pytest.raises(Refused) as refused:
        subscriptions.unbury("mail", 3)
    assert refused.value.code == "NOT_FOUND"


def test_two_processes_share_one_store(subscriptions: SubscriptionStore, store: Path | str) -> None:
    other = open_subscriptions(store)
    move(subscriptions, "mail", 1)
    assert other.position("mail") == 1
    assert [subscriptions.count_attempt("mail", 1), other.count_attempt("mail", 1)] == [1, 2]
    other.close()


def test_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(Unavailable) as refused:
        Subscriptions(path)
    assert (refused.value.code, refused.value.details["path"]) == ("STORE_UNAVAILABLE", str(path))


def test_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Unavailable) as refused:
        Subscriptions(tmp_path / "file" / "one.db")
    assert refused.value.code == "STORE_UNAVAILABLE"


def test_full_store_is_said_to_be_full_and_keeps_what_it_had(in_file: Subscriptions) -> None:
    (pages,) = in_file.db.execute("PRAGMA page_count").fetchone()
    in_file.db.execute(f"PRAGMA max_page_count = {pages + 8}")

    def bury_many() -> None:
        for index in range(10_000):
            in_file.bury("mail", DeadLetter(index, "blake3:id", "x" * 1000))

    with pytest.raises(Unavailable) as refused:
        bury_many()
    assert refused.value.code == "STORE_FULL"
    assert 0 < len(in_file.dead_letters("mail")) == in_file.position("mail")


def test_locked_store_is_unavailable(in_file: Subscriptions, path: Path) -> None:
    in_file.db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as refused:
        in_file.count_attempt("mail", 1)
    assert refused.value.code == "STORE_UNAVAILABLE"
    other.close()


def test_watcher_is_the_same_for_the_same_agent_kinds_and_command() -> None:
    name = watcher_name("kuro", ("handoff.completed", "handoff.approved"), "notify")
    assert name == watcher_name("kuro", ("handoff.approved", "handoff.completed", "handoff.approved"), "notify")
    assert name == "watch-778505274dffa517"  # part of a file's name: must not change
    others = [
        watcher_name("kuro", ("handoff.completed",), "notify"),
        watcher_name("mika", ("handoff.completed", "handoff.approved"), "notify"),
        watcher_name("kuro", ("handoff.completed", "handoff.approved"), None),
        watcher_name("kuro", ("handoff.completed", "handoff.approved"), "notify me"),
    ]
    assert len({name, *others}) == 5


def test_a_new_file_is_opened_by_many_at_once(tmp_path: Path) -> None:
    def opened(path: Path, barrier: threading.Barrier) -> None:
        barrier.wait()
        Subscriptions(path).close()

    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            barrier = threading.Barrier(4)
            opening = [pool.submit(opened, tmp_path / f"{number}.db", barrier) for _ in range(4)]
            assert [one.result() for one in opening] == [None] * 4
