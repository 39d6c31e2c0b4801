"""Views that are deleted, replaced or damaged during a read are rebuilt; files of other programs stay untouched."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores.sqlite import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from view_ledger import ViewLedger


def garble(path: Path) -> None:
    """Overwrite a file in place."""
    path.write_bytes(b"\xff" * 50_000)


def garble_pages(path: Path) -> None:
    """Overwrite all but the first page, and delete the write-ahead log."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def delete_all(path: Path) -> None:
    """Delete a file and its journals."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace_by_garbage(path: Path) -> None:
    """Replace a file by one that is no database."""
    other = path.with_name("other")
    other.write_bytes(b"no database " * 1000)
    other.replace(path)


CHANGES = (garble, garble_pages, Path.unlink, delete_all, replace_by_garbage)


@pytest.mark.parametrize("change", CHANGES)
def test_views_changed_under_an_open_reader_are_made_anew(ledger: ViewLedger, change: Callable[[Path], Any]) -> None:
    ledger.fill()
    with Reader(ledger.reads, ledger.settings()) as open_before:
        before = open_before.answer("catalog.find")
        change(ledger.home.views)
        with Reader(ledger.reads, ledger.settings()) as opened_after:
            assert opened_after.answer("catalog.find") == before
        assert open_before.answer("catalog.find") == before
        assert open_before.answer("search.find", {"text": "pool"})


@pytest.mark.parametrize("change", CHANGES)
def test_one_reader_alone_sees_the_change_too(ledger: ViewLedger, change: Callable[[Path], Any]) -> None:
    ledger.fill()
    with Reader(ledger.reads, ledger.settings()) as reader:
        before = reader.answer("handoffs.list")
        change(ledger.home.views)
        assert reader.answer("handoffs.list") == before
        assert reader.rebuild(["catalog"]) == ledger.reads.head().size


def test_damaged_views_are_kept_aside_and_said_once(ledger: ViewLedger) -> None:
    ledger.fill()
    ledger.home.views.write_bytes(b"precious " * 1000)
    notices: list[str] = []
    with Reader(ledger.reads, ledger.settings(), notice=notices.append) as reader:
        assert reader.answer("catalog.find")
        assert reader.answer("handoffs.list")
    assert len(notices) == 1
    aside = ledger.home.views.with_name("views.db.damaged")
    assert str(aside) in notices[0]
    assert aside.read_bytes() == b"precious " * 1000


@pytest.mark.parametrize("version", [-1, 1])
def test_views_of_an_older_format_are_made_anew_and_those_of_a_newer_refused(ledger: ViewLedger, version: int) -> None:
    ledger.fill()
    with Reader(ledger.reads, ledger.settings()) as reader:
        before = reader.answer("handoffs.list")
    with contextlib.closing(sqlite3.connect(ledger.home.views)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + version}")
    content = ledger.home.views.read_bytes()
    notices: list[str] = []
    if version < 0:
        with Reader(ledger.reads, ledger.settings(), notice=notices.append) as reader:
            assert reader.answer("handoffs.list") == before
        assert "(an older Deedbook made them). They were moved to" in notices[0]
    else:
        with pytest.raises(Refused, match=r"UNSUPPORTED_VERSION: .*: install a newer Deedbook, or delete the file"):
            Reader(ledger.reads, ledger.settings())
        assert ledger.home.views.read_bytes() == content


def test_database_of_another_program_is_left_as_it_is(ledger: ViewLedger) -> None:
    db = sqlite3.connect(ledger.home.views)
    db.execute("CREATE TABLE recipes (name TEXT)")
    db.commit()
    db.close()
    content = ledger.home.views.read_bytes()
    with pytest.raises(Corrupted, match="a database of another program"):
        Reader(ledger.reads, ledger.settings())
    assert ledger.home.views.read_bytes() == content
    assert not list(ledger.home.path.glob("views.db?*"))


@pytest.mark.parametrize("name", ["views.db", "views.db-wal", "views.db-shm", "views.db-journal"])
def test_link_or_pipe_in_place_of_a_file_of_views_is_refused_at_once(ledger: ViewLedger, name: str) -> None:
    with Reader(ledger.reads, ledger.settings()) as reader:
        reader.answer("catalog.find")
    place, outside = ledger.home.path / name, ledger.home.path.parent / "outside"
    place.unlink(missing_ok=True)
    place.symlink_to(outside)
    with pytest.raises(Refused, match="is a link"):
        Reader(ledger.reads, ledger.settings())
    assert not outside.exists()
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(Refused, match="is a pipe"):
        Reader(ledger.reads, ledger.settings())
