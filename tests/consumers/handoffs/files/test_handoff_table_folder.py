"""An `active.md` table in step with the handoffs of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from consumers.handoffs.files.imports import read_records
from consumers.handoffs.files.syntax.active_table import parse_table, row_id
from consumers.importers.records import import_records
from ledger.events import handoff as kinds

if TYPE_CHECKING:
    from syncing import Hand, SyncedFolder

TABLE: Final = """\
# Active

| From | To | Task | Status | Created | Done |
|------|----|------|--------|---------|------|
| alice | bob | Fix \\| it | approved, go | 02-14 | — |
| alice | bob | 修好它 | done | 02-14 | 02-15 |
| github | bob | #7 look | pending | 02-21 | — |
"""


@pytest.fixture
def table(folder: SyncedFolder) -> SyncedFolder:
    """The folder with a table in it, and rita as the default reviewer."""
    folder.reviewer = "rita"
    folder.file("active").write_text(TABLE)
    return folder


def ids(folder: SyncedFolder) -> list[str]:
    """Return the handoffs of the rows."""
    return [row_id(row) for row in parse_table(folder.file("active").read_bytes()).rows]


def rows(folder: SyncedFolder) -> list[str]:
    """Return the rows as they stand."""
    return folder.text("active").splitlines()[4:]


def adopted(folder: SyncedFolder) -> Hand:
    """Let alice hand over her rows."""
    alice = folder.hand("alice")
    alice.reconcile("active")
    return alice


def imported(folder: SyncedFolder) -> None:
    """Import the table as alice."""
    author = folder.hand("alice").author
    found = read_records(folder.path, author.put_blob, reviewer="rita")
    counts = import_records(author, found.records)
    assert (counts.mapped, counts.aside) == (3, ())


def claimed(folder: SyncedFolder, row: int = 0) -> Hand:
    """Let a row's handoff be approved, and claimed by bob; return his hand."""
    id_ = ids(folder)[row]
    folder.approve(id_)
    folder.emit("bob", kinds.HandoffClaimed(), id_)
    bob = folder.hand("bob")
    bob.reconcile("active")
    return bob


def test_rows_from_the_acting_agent_are_handed_over_and_others_told_once(table: SyncedFolder) -> None:
    alice = table.hand("alice")
    said = alice.reconcile("active")
    assert sum(one == "signed: handoff.created" for one in said) == 2
    importing = f"baton handoff import {table.file('active')} --as NAME"  # github is no agent here
    assert f"held: hand over line 7: github runs {importing}" in said
    assert any(one.startswith("held: set the status to approved: rita runs baton handoff approve") for one in said)
    assert table.text("active") == TABLE
    assert alice.reconcile("active") == []
    assert table.shown(ids(table)[0])["title"] == "Fix | it"
    assert table.shown(ids(table)[0])["reviewer"] == "rita"


def test_row_has_no_file_of_its_own(table: SyncedFolder) -> None:
    adopted(table)
    for name in ("alice", "bob"):
        table.hand(name).everything()
    table.hand("bob").reconcile(ids(table)[0])
    assert [one.name for one in table.path.iterdir()] == ["active.md"]


def test_event_changes_one_row(table: SyncedFolder) -> None:
    adopted(table)
    claimed(table)
    before = rows(table)
    assert before[0] == "| alice | bob | Fix \\| it | in_progress, go | 02-14 | — |"
    bob = table.hand("bob")
    bob.reconcile("active")
    table.emit("bob", kinds.HandoffBlocked(reason="no key"), ids(table)[0])
    assert bob.reconcile(ids(table)[0])[0] == "written: active.md: 1 row"
    assert rows(table) == [before[0].replace("in_progress", "blocked"), *before[1:]]
    assert bob.reconcile("active") == []


def test_status_in_a_row_is_signed_where_it_is_the_agent_s(table: SyncedFolder) -> None:
    adopted(table)
    bob = claimed(table)
    table.edit(("in_progress, go", "done (all warm)"), id_="active")
    assert "signed: completed, in line 5" in bob.reconcile("active")
    shown = table.shown(ids(table)[0])
    assert (shown["status"], shown["summary"]) == ("completed", "all warm")
    row = rows(table)[0]
    assert row.startswith("| alice | bob | Fix \\| it | done (all warm) | 02-14 | ")
    assert not row.endswith("| — |")
    before = table.size()
    assert bob.reconcile("active") == []
    assert table.size() == before
    table.ledger.verify("rita", ids(table)[0])
    bob.reconcile("active")
    assert "| verified (all warm) |" in rows(table)[0]


def test_row_that_somebody_else_may_change_stays_and_is_told_once(table: SyncedFolder) -> None:
    adopted(table)
    bob = claimed(table)
    text = table.edit(("in_progress, go", "verified, go"), id_="active")
    before = table.size()
    assert any("rita runs baton handoff verify" in one for one in bob.reconcile("active"))
    assert bob.reconcile("active") == []
    assert (table.size(), table.text("active")) == (before, text)
    table.emit("bob", kinds.HandoffCompleted(), ids(table)[0])
    table.ledger.verify("rita", ids(table)[0])
    bob.reconcile("active")
    assert "verified, go" in rows(table)[0]


def test_status_set_back_in_a_row_is_held(table: SyncedFolder) -> None:
    adopted(table)
    bob = claimed(table)
    before = table.size()
    text = table.edit(("in_progress, go", "approved, go"), id_="active")
    (said,) = [one for one in bob.reconcile("active") if "set the status to approved" in one and "release" in one]
    assert f"bob runs baton handoff release {ids(table)[0]} --as bob" in said
    assert bob.reconcile("active") == []
    assert (table.size(), table.text("active")) == (before, text)


def test_what_another_watcher_wrote_into_a_row_is_no_edit(table: SyncedFolder) -> None:
    alice = adopted(table)
    bob = claimed(table)
    table.emit("bob", kinds.HandoffBlocked(reason="no key"), ids(table)[0])
    alice.reconcile("active")
    assert "| blocked, go |" in rows(table)[0]
    table.emit("bob", kinds.HandoffUnblocked(), ids(table)[0])
    before = table.size()
    assert "written: active.md: 1 row" in bob.reconcile("active")
    assert "| in_progress, go |" in rows(table)[0]
    assert table.size() == before


def test_imported_rows_are_claims_until_somebody_confirms_them(table: SyncedFolder) -> None:
    imported(table)
    bob = table.hand("bob")
    before = table.size()
    assert bob.everything() == []
    table.edit(("pending", "completed"), id_="active")
    assert bob.everything() == []
    assert table.size() == before
    table.ledger.verify("rita", ids(table)[1])
    assert bob.everything() == ["written active.md"]
    assert rows(table)[1] == "| alice | bob | 修好它 | verified | 02-14 | 02-15 |"


def test_edit_before_the_first_look_is_an_edit(table: SyncedFolder) -> None:
    imported(table)
    table.approve(ids(table)[0])
    table.edit(("approved, go", "in_progress, go"), id_="active")
    assert "signed active-02-14-fix-it-" in table.hand("bob").everything()[0]
    assert table.status(ids(table)[0]) == "in_progress"


def test_kill_after_signing_repeats_nothing(table: SyncedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    adopted(table)
    bob = claimed(table)
    table.edit(("in_progress, go", "done, go"), id_="active")
    with monkeypatch.context() as patched:
        patched.setattr("consumers.handoffs.files.folder.write_file", lambda *_, **__: False)
        bob.reconcile("active")
    before = table.size()
    table.hand("bob").reconcile("active")
    assert table.size() == before
    assert table.status(ids(table)[0]) == "completed"


def test_what_the_ledger_refuses_stays_in_the_row(table: SyncedFolder) -> None:
    adopted(table)
    bob = claimed(table)
    table.edit(("in_progress, go", "blocked"), id_="active")
    assert any("baton handoff block" in one for one in bob.reconcile("active"))
    assert "| blocked |" in rows(table)[0]


def test_same_row_twice_is_one_handoff(table: SyncedFolder) -> None:
    table.file("active").write_text(TABLE + "| alice | bob | Fix \\| it | approved | 02-14 | — |\n")
    said = adopted(table).told
    assert sum(one.what == "signed" for one in said) == 2
    assert not any(one.what == "refused" for one in said)
    claimed(table)
    assert [row.status for row in parse_table(table.file("active").read_bytes()).rows][::3] == ["in_progress"] * 2


def test_table_without_days_gets_none(table: SyncedFolder) -> None:
    table.file("active").write_text("| From | To | Task | Status |\n|--|--|--|--|\n| alice | bob | x | — |\n")
    adopted(table)
    bob = claimed(table)
    assert "| alice | bob | x | in_progress |" in table.text("active")
    table.emit("bob", kinds.HandoffCompleted(), ids(table)[0])
    assert bob.whats("active") == ["written"]
    assert "| alice | bob | x | completed |" in table.text("active")


def test_broken_table_is_told_and_left(table: SyncedFolder) -> None:
    adopted(table)
    text = table.edit(("| From | To |", "| From | "), id_="active")
    assert table.hand("alice").whats("active") == ["refused"]
    assert table.text("active") == text
