"""A data file that is cut short is refused before it is mapped; a file that only lacks free pages is read."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import lmdb
import pytest
from building import Ledger

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.log.data_file import check_data_file
from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = 4096
# Reads every record in a separate process, because a missing page ends the process with SIGBUS.
READ_ALL: Final = """
import lmdb, sys
with lmdb.open(sys.argv[1], readonly=True, lock=False, max_dbs=4) as env:
    with env.begin(db=env.open_db(b"x", create=False)) as txn:
        for key, value in txn.cursor():
            bytes(value)
"""


def grow(folder: Path, seed: int) -> Path:
    """Make a store with many puts and deletes, so that free pages are all over it; return its file."""
    choice = random.Random(seed)
    with lmdb.open(str(folder), max_dbs=4, map_size=2**28, sync=False) as env:
        table = env.open_db(b"x")
        for _ in range(60):
            with env.begin(write=True, db=table) as txn:
                for _ in range(choice.randint(1, 60)):
                    key = b"%04d" % choice.randint(0, 400)
                    if choice.random() < 0.5:
                        txn.put(key, bytes(choice.choice([10, 900, 9000])))
                    else:
                        txn.delete(key)
    return folder / "data.mdb"


def can_be_read(folder: Path) -> bool:
    """Return whether every record of a store can be read."""
    return subprocess.run([sys.executable, "-c", READ_ALL, str(folder)], check=False).returncode == 0


@pytest.mark.parametrize("seed", range(6))
def test_file_is_refused_exactly_if_a_page_in_use_is_missing(tmp_path: Path, seed: int) -> None:
    file = grow(tmp_path, seed)
    check_data_file(file)
    size = file.stat().st_size
    for cut in (size - 1, *(size - pages * PAGE for pages in (1, 2, 3, 5, 8, 13, 21, 40))):
        if cut > 2 * PAGE:
            os.truncate(file, cut)
            try:
                check_data_file(file)
            except Corrupted:
                # The file lacks pages of data, or of the list of free pages. Readers never touch that list, so the
                # file may still be readable.
                assert cut < size
            else:
                assert can_be_read(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 100, PAGE, 2 * PAGE - 1, 2 * PAGE, 3 * PAGE, 6 * PAGE])
def test_log_that_is_cut_short_is_corrupted_and_says_how_to_restore(home: Path, size: int) -> None:
    with Ledger(home) as ledger:
        ledger.emit("alice", "session/s1", SessionStarted())
    os.truncate(home / "log" / "data.mdb", size)
    with pytest.raises(Corrupted, match="deed restore") as refused:
        Log(home)
    assert refused.value.code == "CORRUPTED"
    assert (home / "log" / "data.mdb").stat().st_size == size, "the rest of the file is evidence"


def swap_byte_order(page: bytes) -> bytes:
    """Return a meta page as a machine with the opposite byte order writes it."""
    return page[:16] + bytes(reversed(page[16:20])) + page[20:]


def narrow_header(page: bytes) -> bytes:
    """Return a meta page as a machine with words of 32 bits writes it: its header is shorter."""
    return page[:12] + page[16:] + bytes(4)


@pytest.mark.parametrize("change", [swap_byte_order, narrow_header])
def test_log_of_another_kind_of_machine_is_named_as_that(home: Path, change: object) -> None:
    Ledger(home).close()
    file = home / "log" / "data.mdb"
    content = file.read_bytes()
    assert callable(change)
    file.write_bytes(change(content[:PAGE]) + content[PAGE:])
    with pytest.raises(Corrupted, match="another kind of machine"):
        Log(home)


def test_log_that_is_garbage_of_any_length_is_no_store(home: Path) -> None:
    Ledger(home).close()
    file = home / "log" / "data.mdb"
    choice = random.Random(7)
    for length in (1, 16, 200, 5000, 100_000):
        file.write_bytes(choice.randbytes(length))
        with pytest.raises(Corrupted):
            Log(home)


def test_every_forged_number_in_a_meta_page_is_answered(home: Path) -> None:
    Ledger(home).close()
    file = home / "log" / "data.mdb"
    content = file.read_bytes()
    for offset in (40, 16 + 24 + 40, 16 + 120, 16 + 128):
        for number in (0, 1, 2**31, 2**63, 2**64 - 1):
            forged = bytearray(content)
            struct.pack_into("<Q", forged, offset, number)
            file.write_bytes(forged[:-PAGE])
            try:
                check_data_file(file)
            except DeedbookError as error:
                assert error.code == "CORRUPTED"  # noqa: PT017 - the test is that the check ends at all


def test_pipe_or_folder_in_place_of_the_file_is_refused_at_once(home: Path) -> None:
    Ledger(home).close()
    file = home / "log" / "data.mdb"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Refused, match="is a pipe"):
        Log(home)
    file.unlink()
    file.mkdir()
    with pytest.raises(Refused, match="is a folder"):
        Log(home)


def test_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_not_written_over(home: Path) -> None:
    Ledger(home).close()
    (home / "mine").write_text("x" * 100)
    (home / "log" / "lock.mdb").unlink()
    (home / "log" / "lock.mdb").symlink_to(home / "mine")
    with pytest.raises(Refused, match="is a link"):
        Log(home)
    assert (home / "mine").read_text() == "x" * 100


def test_file_that_is_replaced_while_it_is_open_is_written_no_more(home: Path) -> None:
    with Ledger(home) as ledger:
        file = home / "log" / "data.mdb"
        copy = home / "copy"
        copy.write_bytes(file.read_bytes())
        copy.replace(file)
        for _ in range(2):
            with pytest.raises(Corrupted, match="replaced") as refused:
                ledger.emit("alice", "session/s1", SessionStarted())
            assert refused.value.code == "HISTORY_CHANGED"
        with pytest.raises(Corrupted, match="replaced"):
            ledger.head()
        file.unlink()
        with pytest.raises(Unavailable, match="removed"):
            ledger.head()


def test_file_that_is_cut_while_it_is_open_is_read_no_more(home: Path) -> None:
    with Ledger(home) as ledger:
        ledger.emit("alice", "session/s1", SessionStarted())
        os.truncate(home / "log" / "data.mdb", 3 * PAGE)
        with pytest.raises(Corrupted, match="deed restore"):
            ledger.head()
