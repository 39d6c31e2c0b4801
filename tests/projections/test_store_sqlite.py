"""A file of views that is damaged, or belongs to something else, is refused with advice: delete and rebuild it."""

from __future__ import annotations

import os
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from view_ledger import ViewLedger

from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.stores.sqlite_file import translated
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_damaged_file_is_refused_with_the_way_out(ledger: ViewLedger) -> None:
    ledger.home.views.write_bytes(b"this was never a database" * 400)
    with pytest.raises(Corrupted, match="delete the file, and `deed project` rebuilds it"):
        SqliteStore(ledger.home.views, ledger=ledger.reads.ledger)


def test_a_file_damaged_in_its_pages_is_refused(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    store.close()
    content = bytearray(ledger.home.views.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    ledger.home.views.write_bytes(content)
    with pytest.raises(Corrupted, match="deed project"):
        Runner(ledger.reads, SqliteStore(ledger.home.views, ledger=ledger.reads.ledger), VIEWS).catch_up()


def test_a_database_of_something_else_is_refused(ledger: ViewLedger) -> None:
    with sqlite3.connect(ledger.home.views) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()
    with pytest.raises(Corrupted, match="database of another program"):
        SqliteStore(ledger.home.views, ledger=ledger.reads.ledger)


def test_views_of_another_ledger_are_refused(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    open_store()
    with pytest.raises(Corrupted, match="views of another ledger"):
        SqliteStore(ledger.home.views, ledger="0" * 32)


def test_views_ahead_of_the_log_are_refused(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    ledger.fill()
    store = open_store()
    runner = Runner(ledger.reads, store, VIEWS)
    runner.catch_up()
    with store.writing() as writing:
        for version in writing.view_versions():
            writing.move(replace(version, position=version.position + 1))
    with pytest.raises(Corrupted, match="another history of this log"):
        runner.catch_up()


def test_views_of_another_past_are_refused(ledger: ViewLedger, tmp_path: Path) -> None:
    ledger.hand_over("here")
    with ViewLedger(tmp_path / "fork") as fork:  # the same keys, so the same ledger
        fork.hand_over("there")
        store = SqliteStore(ledger.home.views, ledger=fork.id)
        Runner(fork.reads, store, VIEWS).catch_up()
        ledger.hand_over("later")
        with pytest.raises(Corrupted, match="another history of this log"):
            Runner(ledger.reads, store, VIEWS).catch_up()
        store.close()


def test_a_folder_that_cannot_be_written_is_unavailable(ledger: ViewLedger) -> None:
    with pytest.raises(Unavailable, match="cannot be made"):
        SqliteStore(ledger.home.path / "missing" / "views.db", ledger=ledger.reads.ledger)


def test_the_views_file_is_private_to_its_owner(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    open_store()
    assert ledger.home.views.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("free", "code"), [(4096, "STORE_FULL"), (2**20, "STORE_UNAVAILABLE")])
def test_an_input_error_on_a_full_disk_says_that_it_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, code: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=free, f_frsize=1))
    error = sqlite3.OperationalError("disk I/O error")  # SQLite's error if the disk has no room for its shared memory
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    with pytest.raises(Unavailable) as caught, translated(tmp_path / "views.db"):
        raise error
    assert caught.value.code == code
