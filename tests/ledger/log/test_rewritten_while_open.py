"""A log whose file is rewritten again and again, while threads and another process read and write it."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from building import MAP_SIZE
from faults import times

from deedbook.ledger.admission import rewriter
from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.log.environment import FILE, remove_old

if TYPE_CHECKING:
    from collections.abc import Callable
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


def log_secrets(ledger: Ledger, count: int) -> list[int]:
    """Log findings, and return their indexes."""
    ledger.emit("alice", "session/s", SessionStarted())
    findings = [FindingLogged(finding=f"secret {number}") for number in range(count)]
    return [ledger.emit("alice", "session/s", finding).index for finding in findings]


def test_readers_and_writers_never_notice_that_the_file_was_replaced(ledger: Ledger) -> None:
    count = times(15, 8)
    indexes = log_secrets(ledger, count)
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        size = 0
        try:
            while not stop.is_set():
                with ledger.log.snapshot() as snapshot:
                    assert snapshot.size >= size
                    size = snapshot.size
                    with ledger.log.snapshot() as inner:  # a nested snapshot reads the same file as the outer one
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
    for name in ("log.rewritten", "log.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("of somebody else")
        (ledger.home.path / name).symlink_to(tmp_path / name)
    (ledger.home.path / "log.old").mkdir()  # not a name that rewriting uses: a person made this folder
    ledger.redact(secret)
    assert (ledger.home.path / "log.old").exists()
    for name in ("log.rewritten", "log.replaced"):
        assert [path.name for path in (tmp_path / name).iterdir()] == ["file"]
    assert not (ledger.home.path / "log").is_symlink()
    assert ledger.event(secret).erased


def test_former_log_is_not_deleted_while_another_process_replaces_it(tmp_path: Path) -> None:
    for name in ("log", "log.rewritten", "log.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).touch()
    remove_old(tmp_path / "log")  # as if called between the two renames of the other process
    assert (tmp_path / "log.replaced" / FILE).exists()
    (tmp_path / "log.rewritten" / FILE).unlink()
    (tmp_path / "log.rewritten").rmdir()
    remove_old(tmp_path / "log")
    assert not (tmp_path / "log.replaced").exists()


def read_last(ledger: Ledger) -> None:
    """Read the last entry."""
    with ledger.log.snapshot() as snapshot:
        snapshot.entry(snapshot.size - 1)


def keep_erasing(ledger: Ledger, stop: threading.Event) -> None:
    """Rewrite the log's file whenever an erasure has marked it."""
    while not stop.wait(0.001):
        finish_erasures(ledger.log)


class Waiting:
    """A double of the order among nodes: there is one node, and publishing is waiting for the event loop."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def catch_up(self, attempt: int) -> None:
        """Do nothing: no other node writes."""

    def publish(self, start: int, entries: list[bytes]) -> None:
        """Wait for the event loop."""
        self._wait()


def test_event_loop_that_a_writer_waits_for_never_waits_for_that_writer(ledger: Ledger) -> None:
    """This happens in one of several nodes: the gate publishes within its transaction while the event loop reads."""
    redactions = [
        ledger.sign(ROOT, Draft(stream="ledger", data=ledger.redaction(index)))
        for index in log_secrets(ledger, times(10, 8))
    ]

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), threading.Event()

        async def publish() -> None:
            read_last(ledger)
            await asyncio.sleep(0.002)
            read_last(ledger)

        gate = Gate(
            ledger.log,
            clock_ms=ledger.clock,
            order=Waiting(lambda: asyncio.run_coroutine_threadsafe(publish(), loop).result()),
        )

        async def keep_reading() -> None:
            while not stop.is_set():
                read_last(ledger)
                await asyncio.sleep(0)

        async def write() -> None:
            number = 0
            while not stop.is_set():
                data = FindingLogged(finding=f"public {number}")
                await committer.submit_from_loop(ledger.sign("alice", Draft(stream="session/s", data=data)))
                number += 1

        with Committer(gate) as committer:
            working = [
                asyncio.create_task(work)
                for work in (keep_reading(), write(), asyncio.to_thread(keep_erasing, ledger, stop))
            ]
            for redaction in redactions:
                await committer.submit_from_loop(redaction)
                await asyncio.sleep(0.03)
            stop.set()
            await asyncio.gather(*working)

    asyncio.run(run())


def test_rewriting_that_fails_leaves_no_second_copy_on_the_disk(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    secret = ledger.emit("alice", "session/s", FindingLogged(finding="secret")).index

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(rewriter, "replace_file", full)
        with pytest.raises(Unavailable, match="full"):
            ledger.redact(secret)
    assert [path.name for path in ledger.home.path.iterdir()] == ["log"]
    finish_erasures(ledger.log)
    assert ledger.event(secret).erased
