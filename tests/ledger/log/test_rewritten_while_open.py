"""A log whose file is rewritten again and again, while threads and another process read and write it."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from building import MAP_SIZE
from faults import times

from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.log.environment import FILE, remove_old

if TYPE_CHECKING:
    from pathlib import Path

    from building import Ledger

READING = """
import sys
from pathlib import Path
from deedbook.ledger.log.log import Log

with Log(Path(sys.argv[1]), map_size=int(sys.argv[2])) as log:
    print("open", flush=True)
    size = 0
    while size < int(sys.argv[3]):
        with log.snapshot() as snapshot:
            assert snapshot.size >= size, "the log became shorter"
            size = snapshot.size
            snapshot.entry(size - 1)
"""


def test_readers_and_writers_never_notice_that_the_file_was_replaced(ledger: Ledger) -> None:
    count = times(15, 8)
    ledger.emit("alice", "session/s", SessionStarted())
    indexes = [
        ledger.emit("alice", "session/s", FindingLogged(finding=f"secret {number}")).index for number in range(count)
    ]
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        size = 0
        try:
            while not stop.is_set():
                with ledger.log.snapshot() as snapshot:
                    assert snapshot.size >= size
                    size = snapshot.size
                    with ledger.log.snapshot() as inner:  # a nested one reads the file of the outer one
                        inner.entry(snapshot.size - 1)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=read) for _ in range(3)]
    size = ledger.head()[0] + 2 * count
    command = [sys.executable, "-c", READING, str(ledger.home.path), str(MAP_SIZE), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"open\n"
        for thread in threads:
            thread.start()
        try:
            for number, index in enumerate(indexes):
                ledger.redact(index)
                ledger.emit("alice", "session/s", FindingLogged(finding=f"public {number}"))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert reader.wait(60) == 0, reader.stderr.read().decode()
    assert errors == []


def test_rewriting_does_not_write_through_links_that_somebody_prepared(ledger: Ledger, tmp_path: Path) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    secret = ledger.emit("alice", "session/s", FindingLogged(finding="secret")).index
    for name in ("log.new", "log.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("of somebody else")
        (ledger.home.path / name).symlink_to(tmp_path / name)
    ledger.redact(secret)
    for name in ("log.new", "log.old"):
        assert [path.name for path in (tmp_path / name).iterdir()] == ["file"]
    assert not (ledger.home.path / "log").is_symlink()
    assert ledger.event(secret).erased


def test_former_log_is_not_deleted_while_another_process_replaces_it(tmp_path: Path) -> None:
    for name in ("log", "log.new", "log.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).touch()
    remove_old(tmp_path / "log")  # it looked at the log just before that process renamed it
    assert (tmp_path / "log.old" / FILE).exists()
    (tmp_path / "log.new" / FILE).unlink()
    (tmp_path / "log.new").rmdir()
    remove_old(tmp_path / "log")
    assert not (tmp_path / "log.old").exists()
