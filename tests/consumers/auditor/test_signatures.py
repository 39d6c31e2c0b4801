"""Signatures verified by workers: the same answers as in place, also when a worker is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deedbook.consumers.auditor import signatures
from deedbook.consumers.auditor.report import Findings
from deedbook.consumers.auditor.signatures import Signatures
from deedbook.ledger.format.identity import Key


@pytest.fixture
def early_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers start after a few events, on any machine."""
    monkeypatch.setattr(signatures, "in_place_events_max", 40)
    monkeypatch.setattr(signatures, "pooled_events_min", 10)
    monkeypatch.setattr(signatures, "chunk_events", 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})


def signed(count: int) -> list[tuple[int, bytes, bytes, bytes]]:
    """Return signed messages; every 50th is signed wrongly."""
    key = Key(bytes(32))
    made = []
    for index in range(count):
        message = b"event %d" % index
        made.append((index, key.public, message, key.sign(message + b"!" * (index % 50 == 49))))
    return made


def run(checker: Signatures, count: int, kill_at: int | None = None) -> None:
    """Feed a checker."""
    for index, key, message, sig in signed(count):
        checker.add(index, key, message, sig)
        if index == kill_at:
            workers = multiprocessing.active_children()
            assert workers
            for worker in workers:
                worker.kill()
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
    assert multiprocessing.active_children() == []
    checker.close()


def test_process_that_is_started_apart_sees_no_interrupt() -> None:
    with signatures.apart():
        process = signatures.PROCESSES.Process(target=time.sleep, args=(60,), daemon=True)
        process.start()
    lines = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
    process.kill()
    process.join()
    (blocked,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    assert blocked >> signal.SIGINT - 1 & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_script_that_guards_nothing_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import time
from deedbook.consumers.auditor import signatures
print("once")
with signatures.apart():
    process = signatures.PROCESSES.Process(target=time.sleep, args=(0,))
    process.start()
process.join()
print(process.exitcode)
""")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["once", "0"], run.stderr
