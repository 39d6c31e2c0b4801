"""A store has one notifier at a time. An unusable store stops the notifier, and nothing is recorded by half."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from notifying import Notifying, wait_until
from waits import wait_for
from webhook_receiver import Receiver

from deedbook.consumers.handoffs.notifier.store import NotifierStore
from deedbook.consumers.handoffs.notifier.worker import NotifierWorker
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path


def test_second_notifier_on_one_store_is_refused(scripted: Notifying) -> None:
    ended = threading.Event()
    worker = NotifierWorker(scripted.client, scripted.answer, scripted.path, [])
    thread = threading.Thread(target=worker.run, args=(ended,))
    asked = scripted.answer.asked
    thread.start()
    try:
        wait_until(lambda: scripted.answer.asked > asked)
        with pytest.raises(Unavailable) as refused:
            scripted.catch_up()
    finally:
        ended.set()
        thread.join()
    assert refused.value.code == "STORE_IN_USE"


def test_store_that_cannot_be_made_is_unavailable(scripted: Notifying, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    scripted.path = tmp_path / "file" / "notifier.db"
    with pytest.raises(Unavailable) as refused:
        scripted.catch_up()
    assert refused.value.code == "STORE_UNAVAILABLE"


def test_file_that_is_no_database_is_unavailable(scripted: Notifying, tmp_path: Path) -> None:
    scripted.path = tmp_path / "other.db"
    scripted.path.write_bytes(b"something else " * 1000)
    with pytest.raises(Unavailable) as refused:
        scripted.catch_up()
    assert refused.value.code == "STORE_UNAVAILABLE"


def test_full_store_records_nothing_by_half(
    scripted: Notifying, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_whole = NotifierStore.__init__

    def open_nearly_full(store: NotifierStore, path: Path) -> None:
        open_whole(store, path)
        (pages,) = store.db.execute("PRAGMA page_count").fetchone()
        store.db.execute(f"PRAGMA max_page_count = {pages + 8}")

    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(60)]
    with monkeypatch.context() as patch:
        patch.setattr(NotifierStore, "__init__", open_nearly_full)
        with pytest.raises(Unavailable) as refused:
            scripted.catch_up()
    assert refused.value.code == "STORE_FULL"
    with scripted.store() as store:
        assert (store.open_episodes(), store.listed_deliveries(dead=False)[1]) == ({}, 0)
    scripted.catch_up()
    assert len(receiver.ids) == len(set(receiver.ids)) == 60
