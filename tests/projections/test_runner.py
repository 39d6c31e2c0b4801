"""The runner, which folds events into views: batches, restarts, several processes, rebuilds, damage."""

from __future__ import annotations

import multiprocessing
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from bad_inputs import body
from folding import digests_of
from view_ledger import ViewLedger

from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff, session
from deedbook.projections.handoffs.fold import VIEW as HANDOFF_VIEW
from deedbook.projections.handoffs.fold import HandoffRow
from deedbook.projections.handoffs.record import records_of
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.views import runner as runner_module
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.projection import Join, Projection, Row, States, Table, kinds_of, names_of
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deedbook.ledger.home.config import Settings


def view_versions_of(store: SqliteStore) -> object:
    """Return the versions of every view."""
    with store.reading() as reading:
        return reading.view_versions()


def check_store(store: SqliteStore, size: int) -> None:
    """Check the invariants of a store that is up to date: each view is live, each event is in the catalog once."""
    with store.reading() as reading:
        versions = reading.view_versions()
        indexes = [row["event_index"] for row in reading.rows("SELECT event_index FROM events ORDER BY event_index")]
    assert sorted(version.view for version in versions) == sorted(view.name for view in VIEWS)
    assert all(version.is_live and version.position == size for version in versions)
    assert indexes == list(range(size))


@pytest.mark.parametrize("batch", [1, 2, 7, 10_000])
def test_rows_do_not_depend_on_the_batches_they_came_in(
    ledger: ViewLedger,
    open_store: Callable[..., SqliteStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
) -> None:
    ledger.fill()
    whole = Runner(ledger.reads, open_store(tmp_path / "whole.db"), VIEWS)
    whole.catch_up()
    monkeypatch.setattr(runner_module, "batch_events_max", batch)
    store = open_store()
    runner = Runner(ledger.reads, store, VIEWS)
    assert runner.catch_up() == ledger.size
    check_store(store, ledger.size)
    assert digests_of(runner._store) == digests_of(whole._store)


def test_following_event_by_event_equals_a_rebuild(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    store = open_store()
    runner = Runner(ledger.reads, store, VIEWS)
    for name in ("a", "b", "c"):
        ledger.finish(name)
        runner.catch_up()
        ledger.reason(name)
        runner.catch_up()
    live = digests_of(runner._store)
    runner.rebuild([view.name for view in VIEWS])
    check_store(store, ledger.size)
    assert digests_of(runner._store) == live
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_states_forgotten_between_batches_are_read_from_the_store(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "states_cached_max", 0)
    monkeypatch.setattr(runner_module, "batch_events_max", 3)
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    monkeypatch.undo()
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_a_fold_that_fails_in_the_middle_moves_neither_rows_nor_position(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.fill()
    store = open_store()
    runner = Runner(ledger.reads, store, VIEWS)
    runner.catch_up()
    before = digests_of(store), view_versions_of(store)
    ledger.finish("late")
    real = Work.fold

    def failing(self: Work[Any], *arguments: Any) -> Any:
        if self._view.name == "handoffs":  # the views before it have been written
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Work, "fold", failing)
    with pytest.raises(KeyboardInterrupt):
        runner.catch_up()
    assert (digests_of(store), view_versions_of(store)) == before
    monkeypatch.undo()
    runner.catch_up()  # must not use the states that the failed batch left in memory
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_another_runner_goes_on_where_the_first_ended(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.fill()
    Runner(ledger.reads, open_store(), VIEWS).catch_up()
    ledger.claim("b")
    store = open_store()
    seen: list[int] = []
    Runner(ledger.reads, store, VIEWS).catch_up(progress=lambda progress: seen.append(progress.position))
    assert seen == [ledger.size]
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_a_runner_notices_what_another_folded_in_between(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    first = Runner(ledger.reads, open_store(), VIEWS)
    second = Runner(ledger.reads, open_store(), VIEWS)
    ledger.approve("a", ledger.hand_over("a"))
    first.catch_up()  # now has the state "approved" in memory
    ledger.claim("a")
    second.catch_up()
    ledger.emit("bob", "handoff/a", handoff.HandoffCompleted())
    first.catch_up()  # with its old state, "approved", it would refuse the completion
    assert verify_views(ledger.reads, open_store(), VIEWS) == []


def test_a_batch_that_another_runner_folded_first_is_dropped(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.fill()
    store = open_store()
    first, second = Runner(ledger.reads, store, VIEWS), Runner(ledger.reads, open_store(), VIEWS)
    waiting = store.writing

    def writing() -> Any:
        monkeypatch.undo()  # only once: the first runner has read its batch; the second folds it first
        second.catch_up()
        return waiting()

    monkeypatch.setattr(store, "writing", writing)
    folded: list[int] = []
    assert first.catch_up(progress=lambda progress: folded.append(progress.position)) == ledger.size
    assert folded == []
    check_store(store, ledger.size)
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_views_that_are_further_on_skip_what_they_have_folded(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    ledger.finish("late")
    # The changed view needs the whole log, all others only the new entries: one batch may have both.
    views = with_version(HANDOFF_VIEW.version + 1)
    runner = Runner(ledger.reads, store, views)
    runner.catch_up()
    check_store(store, ledger.size)
    whole = Runner(ledger.reads, open_store(ledger.home.path / "whole.db"), views)
    whole.catch_up()
    assert digests_of(runner._store) == digests_of(whole._store)


def _fold_in_process(settings: Settings, path: Path, rounds: int) -> None:
    runner_module.batch_events_max = 5  # many commits, so that the processes disturb each other
    with LocalClient(settings) as client:
        store = SqliteStore(path, ledger=client.ledger)
        for _ in range(rounds):
            Runner(client, store, VIEWS).catch_up()
        store.close()


def test_processes_that_fold_at_once_apply_every_event_once(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.fill()
    for name in range(12):
        ledger.emit_all(
            "bob",
            f"session/many{name}",
            session.SessionStarted(task="t"),
            *(session.FindingLogged(finding=f"finding {number}") for number in range(8)),
        )
    spawn = multiprocessing.get_context("spawn")
    arguments = (ledger.settings(), ledger.home.views, 3)
    workers = [spawn.Process(target=_fold_in_process, args=arguments) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = open_store()
    check_store(store, ledger.size)
    assert verify_views(ledger.reads, store, VIEWS) == []


class UpdateRow(Row, frozen=True):
    """The last update of a handoff, in a view that joins rows of a view that is folded after it."""

    id: str
    updated_index: int = -1


def test_a_join_reads_what_a_later_view_has_folded_from_the_same_batch(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    def joined(updates: Mapping[str, UpdateRow], states: States) -> list[Row]:
        return [UpdateRow(name, record.updated_index) for name, record in records_of(states, updates).items()]

    table = Table("early", UpdateRow, primary_key=("id",), owner="id")
    early = Projection(
        name="early",  # the runner folds views in the order of their names
        version=1,
        handles=kinds_of("handoff"),
        tables=(table,),
        state=UpdateRow,
        keys=names_of("handoff"),
        fold=lambda state, _event: state,
        join=Join(table=table, rows=joined, shared=lambda state: state, related=lambda *_: ()),
    )
    store = open_store()
    runner = Runner(ledger.reads, store, [*VIEWS, early])
    for name in ("a", "b"):
        data = ledger.hand_over(name)
        runner.catch_up()
        ledger.approve(name, data)
        runner.catch_up()
    with store.reading() as reading:
        rows = reading.rows("SELECT * FROM early ORDER BY id")
        assert rows == reading.rows("SELECT id, updated_index FROM handoffs ORDER BY id")
    assert [row["id"] for row in rows] == ["a", "b"]


def with_version(version: int) -> tuple[Projection[Any], ...]:
    """Return the views, with another version of the view of handoffs, which gives every handoff a new title."""

    def rows(state: Any) -> Any:
        title = f"version {version}"
        return [
            msgspec.structs.replace(row, title=title) if isinstance(row, HandoffRow) else row
            for row in HANDOFF_VIEW.rows(state)
        ]

    changed = msgspec.structs.replace(HANDOFF_VIEW, version=version, rows=rows)
    return tuple(changed if view.name == "handoffs" else view for view in VIEWS)


def test_a_changed_version_is_rebuilt_and_takes_the_place_of_the_old(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    Runner(ledger.reads, store, with_version(HANDOFF_VIEW.version + 1)).catch_up()
    check_store(store, ledger.size)
    with store.reading() as reading:
        assert reading.rows("SELECT DISTINCT title FROM handoffs") == [{"title": f"version {HANDOFF_VIEW.version + 1}"}]
        names = [row["name"] for row in reading.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert not [name for name in names if name.endswith("__next")]


def test_an_older_program_refuses_views_of_a_newer_version(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    store = open_store()
    Runner(ledger.reads, store, with_version(HANDOFF_VIEW.version + 1)).catch_up()
    with pytest.raises(Refused, match=r"this Deedbook reads version .*: install a newer Deedbook, or delete the views"):
        Runner(ledger.reads, store, VIEWS)


def test_a_first_fold_has_no_place_to_take_and_makes_what_a_rebuild_makes(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    def made() -> list[dict[str, Any]]:
        with store.reading() as reading:
            return reading.rows("SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name")

    ledger.fill()
    store = open_store()
    runner = Runner(ledger.reads, store, VIEWS)
    with store.reading() as reading:
        assert all(version.is_live and version.position == 0 for version in reading.view_versions())
    runner.catch_up()
    first, first_digests = made(), digests_of(store)
    runner.rebuild(first_digests)
    assert (made(), digests_of(store)) == (first, first_digests)


def test_old_rows_answer_until_the_rebuild_has_caught_up(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    monkeypatch.setattr(runner_module, "batch_events_max", 6)
    titles: list[str] = []

    def look(_progress: Any) -> None:
        with store.reading() as reading:
            titles.append(reading.rows("SELECT title FROM handoffs WHERE id = 'a'")[0]["title"])

    Runner(ledger.reads, store, with_version(HANDOFF_VIEW.version + 1)).catch_up(progress=look)
    assert titles[0] == "a"
    assert titles[-1] == f"version {HANDOFF_VIEW.version + 1}"


def test_an_interrupted_rebuild_goes_on(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    monkeypatch.setattr(runner_module, "batch_events_max", 6)
    positions: list[int] = []

    def interrupt(progress: runner_module.Progress) -> None:
        positions.append(progress.position)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Runner(ledger.reads, store, VIEWS).rebuild(["handoffs"], progress=interrupt)
    after: list[int] = []
    Runner(ledger.reads, store, VIEWS).catch_up(progress=lambda progress: after.append(progress.position))
    assert positions == [6]
    assert after[0] == 12
    check_store(store, ledger.size)
    assert verify_views(ledger.reads, store, VIEWS) == []


def test_rebuild_of_an_unknown_view_is_refused(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    with pytest.raises(Refused, match="there is no view colours"):
        Runner(ledger.reads, open_store(), VIEWS).rebuild(["colours"])


def test_verify_names_the_table_that_was_changed(ledger: ViewLedger, open_store: Callable[..., SqliteStore]) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    with sqlite3.connect(ledger.home.views) as db:
        db.execute("UPDATE handoffs SET status = 'approved' WHERE id = 'c'")
    db.close()
    found = verify_views(ledger.reads, store, VIEWS)
    assert [(one.view, one.table) for one in found] == [("handoffs", "handoffs")]


def test_verify_names_a_row_of_an_event_that_was_changed_or_left_out(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.fill()
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    with sqlite3.connect(ledger.home.views) as db:
        db.execute("UPDATE events SET author = 'mallory' WHERE event_index = 7")
        db.execute("DELETE FROM handoff_log WHERE event_index = (SELECT max(event_index) FROM handoff_log)")
    db.close()
    found = verify_views(ledger.reads, store, VIEWS)
    assert [(one.view, one.table) for one in found] == [("catalog", "events"), ("handoffs", "handoff_log")]


def test_what_sqlite_gives_back_in_another_form_is_no_difference(
    ledger: ViewLedger, open_store: Callable[..., SqliteStore]
) -> None:
    ledger.emit("alice", "session/zero", session.SessionStarted(task="numbers"))
    for impact in (b"-0.0", b"1", b"0.5"):
        ledger.submit(ledger.sign_bytes("alice", finding_of(ledger, impact)))
    store = open_store()
    Runner(ledger.reads, store, VIEWS).catch_up()
    with store.reading() as reading:
        assert [row["impact"] for row in reading.rows("SELECT impact FROM findings")] == [0.0, 1.0, 0.5]
    assert verify_views(ledger.reads, store, VIEWS) == []


def finding_of(ledger: ViewLedger, impact: bytes) -> bytes:
    """Return the body of a finding whose impact is spelled as given."""
    return body(ledger, b'{"finding":"f","impact":%b}' % impact, stream="session/zero")
