"""If any write fails, or the process is killed at any call, a blob is either complete or absent for every reader."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from building import Ledger
from faults import is_long_run, made, note
from injection import FAULTS, Fault, Place, Ran, Table, need_strace
from storing_program import CONTENT, DIGEST, INTENT, run

from deedbook.consumers.auditor.fsck import fsck
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.log.blob_files import blob_name
from deedbook.ledger.log.expiry import drop_unreferenced
from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM: Final = str(Path(__file__).parent / "storing_program.py")
# Each verb, whether the blob exists before it, and whether it exists afterwards.
VERBS: Final = {"put": (False, True), "upload": (False, True), "drop": (True, False), "remove": (True, False)}
QUICK: Final = {
    "put": (("rename", 1, "killed"), ("fsync", 1, "ENOSPC"), ("write", 1, "ENOSPC"), ("pwrite64", 1, "killed")),
    "upload": (("rename", 1, "killed"), ("fsync", 2, "EIO"), ("write", 2, "killed"), ("write", 2, "ENOSPC")),
    "drop": (("unlink", 1, "killed"), ("unlink", 1, "EIO"), ("pwrite64", 1, "killed")),
    "remove": (("unlink", 1, "killed"), ("pwrite64", 1, "killed"), ("fdatasync", 1, "EIO")),
}


@pytest.fixture(params=VERBS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Place]:
    """A verb, and a ledger on which it runs repeatedly."""
    need_strace()
    home = tmp_path / ".deedbook"
    with Ledger(home):
        pass
    if VERBS[request.param][0]:
        run("put", home)
    return request.param, Place(home)


def faults_of(place: Place, verb: str, command: list[str]) -> Iterator[Fault]:
    """Yield every fault of every call of a verb; in the short run, those that matter most."""
    counts = Counter(place.calls(command))
    if not is_long_run:
        for call, number, name in QUICK[verb]:
            assert number <= counts[call], counts
            yield Fault(call, number, name)
        return
    for call, count in sorted(counts.items()):
        for number, name in itertools.product(range(1, count + 1), FAULTS):
            yield Fault(call, number, name)


def check_after(home: Path, verb: str, ran: Ran) -> None:
    """Check the state that a run left, and that the same verb succeeds afterwards."""
    assert ran.code in {0, 7, -9}, ran.err
    assert "Traceback" not in ran.err
    before, after = VERBS[verb]
    with Log(home, map_size=2**24) as log:
        is_there = log.blobs.find(INTENT.ref) is not None
        assert is_there in (before, after)
        assert ran.code or is_there == after
        try:
            assert log.blobs.get(INTENT.ref) == CONTENT
        except Refused:
            assert not is_there
        except Corrupted:
            assert verb == "remove"
    if verb != "remove":
        assert fsck(home).problems == []
    run(verb, home)
    with Log(home, map_size=2**24) as log:
        drop_unreferenced(log, now_ms=2_000)  # deletes leftover files, but no blob: no intent is old enough
        assert list(log.blobs.files.names()) == ([blob_name(DIGEST)] if after else [])
        assert log.blobs.used_bytes() == (len(CONTENT) if after else 0)
        assert not after or log.blobs.get(INTENT.ref) == CONTENT


def test_every_failed_call_and_every_kill_leaves_the_blob_or_nothing(place: tuple[str, Place]) -> None:
    verb, stage = place
    command = [sys.executable, PROGRAM, verb, str(stage.folder)]
    table = Table()
    for fault in faults_of(stage, verb, command):
        stage.restore()
        ran = stage.run(command, fault=fault)
        made(1)
        try:
            check_after(stage.folder, verb, ran)
        except Exception as error:  # noqa: BLE001 - every state is looked at, and the bad ones are listed
            table.add(verb, fault, ran, f"{type(error).__name__}: {error}")
        else:
            table.add(verb, fault, ran)
    note(str(table))
    assert table.bad == []
    assert table.missed == []
