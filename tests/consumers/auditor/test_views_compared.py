"""Views compared with the log: in this process after the replay, or in a second process beside it."""

from __future__ import annotations

import os
import signal
import sqlite3
from typing import TYPE_CHECKING

import pytest
from child_processes import children
from tampering import fill

from deedbook.consumers.auditor.verify import verify_log

if TYPE_CHECKING:
    from building import Ledger

pytestmark = pytest.mark.usefixtures("started_children")


@pytest.fixture(params=["after", "beside"])
def filled(request: pytest.FixtureRequest, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger whose views are compared after its replay, or beside it as for a long log."""
    monkeypatch.setattr(
        "deedbook.consumers.auditor.verify.pooled_signatures_min", 0 if request.param == "beside" else 2**40
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    fill(ledger)
    return ledger


def test_right_views_pass(filled: Ledger) -> None:
    with filled.client() as client:
        report = verify_log(client, views=filled.settings())
    assert report.ok, report.problems
    assert children() == []


def test_progress_goes_on_while_the_views_are_compared(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.projections.views.comparison.range_events_max", 8)
    seen: list[tuple[int, int]] = []
    with filled.client() as client:
        assert verify_log(client, views=filled.settings(), progress=lambda *step: seen.append(step)).ok
    size = filled.head()[0]
    assert {total for _, total in seen} == {2 * size}
    assert seen == sorted(seen)
    assert seen[-1] == (2 * size, 2 * size)
    assert any(size < done < 2 * size for done, _ in seen)


def test_changed_table_is_named(filled: Ledger) -> None:
    with filled.client() as client:
        assert verify_log(client, views=filled.settings()).ok
        with sqlite3.connect(filled.home.views) as store:
            store.execute("UPDATE handoffs SET status = 'pending'")
            store.execute("UPDATE events SET author = 'mallory' WHERE event_index = 3")
        store.close()
        report = verify_log(client, views=filled.settings())
        assert verify_log(client).ok
    named = [problem.message.partition(" contradicts")[0] for problem in report.problems]
    assert named == ["table events of view catalog", "table handoffs of view handoffs"]


def test_another_programs_database_is_a_problem_of_the_views(filled: Ledger) -> None:
    with sqlite3.connect(filled.home.views) as store:
        store.execute("CREATE TABLE theirs (x)")
    store.close()
    with filled.client() as client:
        (problem,) = verify_log(client, views=filled.settings()).problems
    assert (problem.code, problem.index) == ("CORRUPTED", None)
    assert problem.message.startswith("the views: ")


@pytest.mark.parametrize("filled", ["beside"], indirect=True)
def test_killed_process_costs_no_answer(filled: Ledger) -> None:
    killed: list[int] = []

    def kill(_done: int, _total: int) -> None:
        for pid in children() if not killed else ():
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    with filled.client() as client:
        report = verify_log(client, views=filled.settings(), progress=kill)
    assert killed
    assert report.ok, report.problems


@pytest.mark.parametrize("filled", ["beside"], indirect=True)
def test_interrupted_audit_leaves_no_process(filled: Ledger) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with filled.client() as client, pytest.raises(KeyboardInterrupt):
        verify_log(client, views=filled.settings(), progress=interrupt)
    assert children() == []
