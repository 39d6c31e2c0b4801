"""Signatures verified by workers: the same results as in this process, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from child_processes import children

from deedbook.consumers.auditor import signatures
from deedbook.consumers.auditor.report import Findings
from deedbook.consumers.auditor.signatures import Signatures
from deedbook.consumers.sdk.child import Child
from deedbook.ledger.format.identity import Key

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

pytestmark = pytest.mark.usefixtures("started_children")


@pytest.fixture
def early_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers start after a few events, on any machine."""
    monkeypatch.setattr(signatures, "in_place_signatures_max", 40)
    monkeypatch.setattr(signatures, "pooled_signatures_min", 10)
    monkeypatch.setattr(signatures, "chunk_signatures", 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})


def signed(count: int) -> list[signatures.Signed]:
    """Return signed messages; every 50th is signed wrongly."""
    key = Key(bytes(32))
    made = []
    for index in range(count):
        message = b"event %d" % index
        made.append((index, 1, key.public, message, key.sign(message + b"!" * (index % 50 == 49))))
    return made


def run(checker: Signatures, count: int, kill_at: int | None = None) -> None:
    """Feed a checker."""
    for index, size, key, message, sig in signed(count):
        checker.add(index, size, key, message, sig)
        if index == kill_at:
            workers = children()
            assert workers
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
    checker.close()


@pytest.mark.usefixtures("early_pool")
def test_workers_find_what_is_found_in_place() -> None:
    findings = Findings()
    checker = Signatures(findings, 400)
    run(checker, 400)
    assert sorted(one.index or 0 for one in findings.problems) == list(range(49, 400, 50))
    assert checker.verified == 392


@pytest.mark.usefixtures("early_pool")
def test_killed_worker_costs_no_answer() -> None:
    findings = Findings()
    checker = Signatures(findings, 2000)
    run(checker, 2000, kill_at=200)
    assert sorted(one.index or 0 for one in findings.problems) == list(range(49, 2000, 50))
    assert checker.verified == 1960


def test_few_signatures_start_no_worker() -> None:
    checker = Signatures(Findings(), 300)
    for one in signed(300)[:200]:
        checker.add(*one)
    assert children() == []
    checker.close()


@pytest.mark.usefixtures("early_pool")
def test_stopped_workers_are_gone() -> None:
    checker = Signatures(Findings(), 2000)
    for message in signed(2000)[:200]:
        checker.add(*message)
    assert len(children()) == 1
    checker.stop()
    assert children() == []


def sleep(connection: Connection) -> None:
    """Run as a child process that sleeps until it is killed."""
    connection.poll(None)


def test_ctrl_c_does_not_reach_a_child() -> None:
    child = Child(sleep)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    child.stop()


def test_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import os, signal
from deedbook.consumers.sdk.child import Child
from deedbook.consumers.auditor.signatures import answer_chunks
child = Child(answer_chunks)
child.connection.send([])
child.connection.recv()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL
    # Its output has ended, so the child, which inherited it, has ended, too.


def test_script_that_guards_nothing_runs_once(tmp_path: Path) -> None:
    (tmp_path / "deedbook.py").write_text("raise RuntimeError('a file of the working folder was loaded')")
    script = tmp_path / "work" / "script.py"
    script.parent.mkdir()
    script.write_text("""
from deedbook.consumers.sdk.child import Child
from deedbook.consumers.auditor.signatures import answer_chunks
print("once")
child = Child(answer_chunks)
child.connection.send([])
print(child.connection.recv())
child.connection.close()
print(child.wait())
""")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.split() == ["once", "[]", "0"], run.stderr
