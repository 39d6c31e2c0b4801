"""The validator as a service agent: one report for each concluded reasoning, by another agent than its author."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from building import Ledger

from deedbook.consumers.reasoning.workers import ValidatorWorker
from deedbook.consumers.sdk.service import service_author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from deedbook.projections.answers.reader import Reader

CITED = "retries = 3\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "settings.ini").write_text(CITED, "utf-8")
    return folder


@pytest.fixture
def worker(ledger: Ledger, local_client: LocalClient, tree: Path, tmp_path: Path) -> Iterator[ValidatorWorker]:
    with Reader(local_client, ledger.settings()) as reader:
        yield ValidatorWorker(service_author(local_client, "validator"), reader, tmp_path / "validator.db", tree)


def conclude(ledger: Ledger, name: str) -> None:
    stream = f"reasoning/{name}"
    seen = Step(
        step_number=1, type="observation", content="It tries three times", evidence=["settings.ini:1:retries = 3"]
    )
    so = Step(step_number=2, type="conclusion", content="Three is enough")
    extended = ReasoningExtended(steps=[seen, so], dependencies={2: [1]})
    for data in (ReasoningStarted(task="How often?"), extended, ReasoningConcluded(conclusion="Three is enough")):
        ledger.emit("alice", stream, data)


def reports(worker: ValidatorWorker, ledger: Ledger, name: str) -> list[dict[str, object]]:
    worker.run(threading.Event(), until=ledger.head()[0])
    found: list[dict[str, object]] = worker._reader.answer("validations.list", {"id": name})["items"]
    return found


def test_concluded_reasoning_is_validated_once_however_often_the_worker_starts(
    worker: ValidatorWorker, ledger: Ledger
) -> None:
    worker.run(threading.Event(), until=ledger.head()[0])
    conclude(ledger, "retries")
    (report,) = reports(worker, ledger, "retries")
    assert (report["passed"], report["author"]) == (1, "validator")
    worker._store.unlink()
    assert len(reports(worker, ledger, "retries")) == 1


def test_changed_line_is_found_stale(worker: ValidatorWorker, ledger: Ledger, tree: Path) -> None:
    worker.run(threading.Event(), until=ledger.head()[0])
    (tree / "settings.ini").write_text("retries = 4\n", "utf-8")
    conclude(ledger, "stale")
    (report,) = reports(worker, ledger, "stale")
    assert report["passed"] == 0
