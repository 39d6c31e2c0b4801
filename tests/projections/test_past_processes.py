"""Answers about the past while other processes fold: one is killed, another rebuilds the views."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from typing import TYPE_CHECKING, Any

from every_kind import live
from faults import times
from test_past import compare, live_on, stretched

from deedbook.ledger.client.local import LocalClient
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores import store
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.views import runner
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.home.config import Settings

__all__ = ["stretched"]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("handoffs.board", {}),
    ("sessions.list", {}),
    ("agents.keys", {}),
    ("tot.list", {}),
    ("catalog.find", {}),
]
SPAWN = multiprocessing.get_context("spawn")


def fold_until_killed(settings: Settings, path: Path, batches: int) -> None:
    """Fold ``batches`` short batches, and die while the next one is written."""
    store.stretch_events, runner.batch_events_max = 13, 5
    written = SqliteStore.writing
    left = [batches]

    def writing(self: SqliteStore) -> Any:
        left[0] -= 1
        transaction = written(self)
        if left[0] < 0:
            transaction.__enter__()
            os.kill(os.getpid(), signal.SIGKILL)
        return transaction

    SqliteStore.writing = writing
    with LocalClient(settings) as client:
        Runner(client, SqliteStore(path, ledger=client.ledger), VIEWS).catch_up()


def make_anew(settings: Settings, rounds: int) -> None:
    store.stretch_events = 13
    with LocalClient(settings) as client, Reader(client, settings) as reader:
        for _ in range(rounds):
            reader.rebuild([view.name for view in VIEWS])


def ended(target: Any, *given: Any) -> int | None:
    process = SPAWN.Process(target=target, args=given)
    process.start()
    process.join()
    return process.exitcode


def test_past_is_whole_after_a_process_was_killed_while_it_folded(stretched, ledger, reader):
    live(ledger)
    chosen = random.Random(9)
    for _ in range(times(2, 2)):
        reader.store.move_away()
        code = ended(fold_until_killed, ledger.settings(), ledger.home.views, chosen.randrange(1, ledger.size // 5))
        assert code == -signal.SIGKILL
        for index in (chosen.randrange(ledger.size) for _ in range(3)):
            compare(reader, index, ASKED)
        assert verify_views(ledger.reads, reader.store, VIEWS) == []


def test_past_is_answered_while_another_process_makes_the_views_anew(stretched, ledger, reader):
    live(ledger)
    chosen = random.Random(10)
    process = SPAWN.Process(target=make_anew, args=(ledger.settings(), times(1, 10)))
    process.start()
    compare(reader, chosen.randrange(ledger.size), ASKED)
    live_on(ledger)
    while process.is_alive():
        compare(reader, chosen.randrange(ledger.size), ASKED)
    process.join()
    assert process.exitcode == 0
