"""Notes are imported into a ledger once, oldest claim first, whoever imports them, and whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger, key_named
from faults import is_long_run, times
from note_repository import ROOT, SESSION, blob, handoff, logged, many, one_of_each, repository, text_of, tree_ref

from deedbook.consumers.importers.empirica.importer import NoteImport, import_notes, read_notes, rehearsed
from deedbook.consumers.importers.empirica.notes import Repository
from deedbook.ledger.client.author import Author
from deedbook.ledger.events.session import ReportGenerated, SessionStarted
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"

Import = Any  # a function that imports the notes of a repository


@pytest.fixture
def reader(ledger: Ledger) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(ledger.client(), ledger.settings()) as made:
        yield made


@pytest.fixture
def importing(ledger: Ledger, reader: Reader) -> Import:
    """Import all notes of a repository."""

    def run(folder: Path, name: str = "alice", *roots: str, dry: bool = False) -> NoteImport:
        client = ledger.client()
        author = Author(client, name, lambda _: key_named(name))
        found = read_notes(
            Repository(folder),
            roots or ("refs/notes/empirica",),
            reader.answer,
            put_blob=None if dry else author.put_blob,
            importer=None if dry else name,
        )
        return rehearsed(found) if dry else import_notes(author, found)

    return run


def numbers(done: NoteImport) -> tuple[int, ...]:
    """Return the numbers of notes that were read, mapped, unmapped, lost and added."""
    answer = done.answer()
    return tuple(answer[name] for name in ("read", "mapped", "unmapped", "lost", "added"))


def test_every_note_is_mapped_or_kept_aside_and_its_bytes_are_kept(
    ledger: Ledger, importing: Import, tmp_path: Path
) -> None:
    notes = [*one_of_each(), ("findings/bad", b"not json \xff"), ("else/1", b"{}")]
    done = importing(repository(tmp_path / "r", notes))
    assert numbers(done) == (14, 10, 4, 0, 14)
    kept = {ledger.client().get_blob(one.record.data.original) for one in done.reading.records}
    assert kept == {text_of(note) for _, note in notes}
    assert done.answer()["by_kind"]["findings"] == {"read": 2, "mapped": 1, "unmapped": 1, "dirty": 0}


def test_a_second_run_adds_nothing_whoever_imports(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [*one_of_each(), ("findings/bad", b"no")])
    first = importing(folder)
    head = ledger.head()
    for name in ("alice", "bob"):
        again = importing(folder, name)
        assert numbers(again) == (*numbers(first)[:4], 0)
        assert again.answer()["by_kind"] == first.answer()["by_kind"]
        assert sorted(again.answer()["unmapped_records"], key=str) == sorted(
            first.answer()["unmapped_records"], key=str
        )
    assert ledger.head() == head


def test_a_dry_run_says_the_same_and_writes_nothing(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", one_of_each())
    head = ledger.head()
    dry = importing(folder, dry=True)
    assert numbers(dry) == (12, 10, 2, 0, 0)
    assert ledger.head() == head
    assert ledger.log.blobs.find(dry.reading.records[0].record.data.original) is None
    assert numbers(importing(folder)) == (12, 10, 2, 0, 12)


def test_events_stand_in_the_order_of_their_claims(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    start = ledger.head()[0]
    times = {"c": "2025-03-01T00:00:00", "a": "2025-01-01T00:00:00Z", "d": 1_700_000_000.5, "b": "who knows", "e": None}
    notes = [(f"findings/{n}", logged("finding", finding=n, created_at=at)) for n, at in times.items()]
    importing(repository(tmp_path / "r", notes))
    texts = [ledger.event(index).data.mapped["finding"] for index in range(start, ledger.head()[0])]
    assert texts == ["b", "e", "d", "a", "c"]


def test_the_same_note_at_several_objects_or_in_a_fetched_copy_is_one(importing: Import, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/f", logged("finding", finding="f"))])
    same = blob(folder, text_of(logged("finding", finding="f")))
    tree_ref(folder, f"{ROOT}findings/f", f"100644 blob {same}\t{'1' * 40}", f"100644 blob {same}\t{'2' * 40}")
    tree_ref(folder, "refs/remotes/o/notes/empirica/findings/f", f"100644 blob {same}\t{'1' * 40}")
    both = ("refs/notes/empirica", "refs/remotes/o/notes/empirica")
    assert numbers(importing(folder, "alice", *both, dry=True)) == (3, 3, 0, 0, 0)
    assert numbers(importing(folder, "alice", *both)) == (3, 3, 0, 0, 1)
    assert numbers(importing(folder, "alice", *both)) == (3, 3, 0, 0, 0)


def test_a_bad_note_met_twice_is_kept_aside_twice_and_stands_once(importing: Import, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/f", b"no")])
    same = blob(folder, b"no")
    tree_ref(folder, f"{ROOT}findings/f", f"100644 blob {same}\t{'1' * 40}", f"100644 blob {same}\t{'2' * 40}")
    for added in (1, 0):
        assert numbers(importing(folder)) == (2, 0, 2, 0, added)


def test_dirty_values_are_counted_alike_also_beside_a_note_of_the_same_ref_that_is_kept_aside(
    importing: Import, tmp_path: Path
) -> None:
    folder = repository(tmp_path / "r", [("findings/f", logged("finding", finding="f", impact=7))])
    good, bad = blob(folder, text_of(logged("finding", finding="f", impact=7))), blob(folder, b"no")
    tree_ref(folder, f"{ROOT}findings/f", f"100644 blob {good}\t{'1' * 40}", f"100644 blob {bad}\t{'2' * 40}")
    assert [importing(folder).answer()["dirty"] for _ in range(2)] == [1, 1]


def test_the_first_time_that_can_be_read_counts_and_a_time_of_any_size_harms_nothing(
    importing: Import, tmp_path: Path
) -> None:
    note = logged("finding", finding="f", ts=10**400, timestamp="who knows", created_at=1_748_772_000_250)
    done = importing(repository(tmp_path / "r", [("findings/f", note)]))
    (record,) = [one.record.data for one in done.reading.records]
    assert record.claimed_at == "2025-06-01T10:00:00.250000Z"
    assert [one["path"] for one in record.claims["dirty"]] == ["ts", "timestamp"]


def test_a_note_that_changed_is_imported_beside_what_it_was(reader: Reader, importing: Import, tmp_path: Path) -> None:
    importing(repository(tmp_path / "a", [(f"handoff/{SESSION}", handoff())]))
    later = handoff(ts="2025-06-02T00:00:00", task="Replaced it again")
    assert numbers(importing(repository(tmp_path / "b", [(f"handoff/{SESSION}", later)]))) == (1, 1, 0, 0, 1)
    shown = reader.answer("reports.show", {"id": SESSION})
    assert (shown["report"]["task_summary"], len(shown["versions"])) == ("Replaced it again", 2)


def test_an_imported_session_never_speaks_for_one_of_this_ledger(
    ledger: Ledger, importing: Import, tmp_path: Path
) -> None:
    ledger.emit("bob", f"session/{SESSION}", SessionStarted(task="mine"))
    done = importing(repository(tmp_path / "r", one_of_each()))
    assert numbers(done) == (12, 0, 12, 0, 12)
    assert any("is open: nobody can import it now" in one.reason for one in done.counts.unmapped_records)


def test_what_another_importer_had_to_keep_aside_is_mapped_by_who_owns_the_session(
    importing: Import, tmp_path: Path
) -> None:
    first, later = [(f"findings/{n}", logged("finding", finding=str(n))) for n in (1, 2)]
    importing(repository(tmp_path / "a", [first]))
    both = repository(tmp_path / "b", [first, later])
    assert numbers(importing(both, "bob")) == (2, 1, 1, 0, 1)
    assert numbers(importing(both, "bob")) == (2, 1, 1, 0, 0)
    assert numbers(importing(both, "alice")) == (2, 2, 0, 0, 1)
    for name in ("alice", "bob"):
        assert numbers(importing(both, name)) == (2, 2, 0, 0, 0)


def test_a_note_with_a_secret_is_not_stored_and_not_lost(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/f", logged("finding", finding=f"token {SECRET}"))])
    done = importing(folder)
    assert numbers(done) == (1, 0, 1, 0, 1)
    [aside] = done.counts.unmapped_records
    assert "SECRET_DETECTED" in aside.reason
    assert SECRET not in aside.reason
    assert ledger.log.blobs.find(done.reading.records[0].record.data.original) is None
    assert numbers(importing(folder)) == (1, 0, 1, 0, 0)


def test_a_note_of_10_mb_is_kept_whole(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    large = text_of(logged("finding", finding="word " * 2_000_000))
    done = importing(repository(tmp_path / "r", [("findings/f", large), ("findings/g", b"x" * 10_000_000)]))
    assert numbers(done) == (2, 1, 1, 0, 2)
    assert ledger.client().get_blob(done.reading.records[1].record.data.original) in (large, b"x" * 10_000_000)
    assert done.answer()["dirty"] >= 1


def test_what_this_ledger_wrote_itself_is_not_read_back(
    ledger: Ledger, reader: Reader, importing: Import, tmp_path: Path
) -> None:
    ledger.emit("bob", "session/own", SessionStarted(task="mine"))
    for number in (1, 2):
        fields: dict[str, Any] = {"task_summary": f"Done {number}", "key_findings": ["f"]}
        ledger.emit(
            "bob",
            "session/own",
            ReportGenerated(
                report_type="planning",
                ai_id="bob",
                recommended_next_steps=["n"],
                calibration_status="not_assessable",
                **fields,
            ),
        )
    shown = reader.answer("reports.show", {"id": "own"})
    old = reader.answer("reports.show", {"id": "own", "version": shown["versions"][0]["report_id"]})["report"]
    compact, changed = old["compressed_json"], old["compressed_json"].replace("Done 1", "Done by me")
    notes = [
        ("handoff/own", compact.encode() + b"\n"),
        ("handoff-markdown/own", shown["report"]["markdown"].encode()),
        ("handoff/other", changed.encode()),
    ]
    done = importing(repository(tmp_path / "r", notes))
    assert numbers(done) == (1, 1, 0, 0, 1)
    assert done.answer()["own"] == 2


def test_what_is_derived_from_an_imported_report_is_not_our_own(
    reader: Reader, importing: Import, tmp_path: Path
) -> None:
    importing(repository(tmp_path / "a", [(f"handoff/{SESSION}", handoff())]))
    derived = reader.answer("reports.show", {"id": SESSION})["report"]["compressed_json"]
    done = importing(repository(tmp_path / "b", [(f"handoff/{SESSION}", derived.encode())]))
    assert (numbers(done), done.reading.own) == ((1, 1, 0, 0, 1), 0)


def test_views_made_live_and_from_the_log_are_equal(
    ledger: Ledger, reader: Reader, importing: Import, tmp_path: Path
) -> None:
    importing(repository(tmp_path / "r", [*one_of_each(), *many(60)]))
    reader.catch_up()
    assert verify_views(reader.client, reader.store, VIEWS) == []


def test_thousands_of_notes_come_in_whole_and_once(ledger: Ledger, importing: Import, tmp_path: Path) -> None:
    count = 3_000 if is_long_run else 300
    folder = repository(tmp_path / "r", many(count))
    told: list[tuple[int, int]] = []
    refs, _ = Repository(folder).refs(["refs/notes/empirica"])
    assert sum(1 for _ in Repository(folder).notes(refs, lambda *now: told.append(now))) == count
    assert told[-1] == (count, count)
    assert numbers(importing(folder)) == (count, count, 0, 0, count)
    assert numbers(importing(folder)) == (count, count, 0, 0, 0)


def test_an_import_that_is_killed_midway_is_completed_by_the_next(tmp_path: Path) -> None:
    count = 3_000 if is_long_run else 402
    folder = repository(tmp_path / "r", many(count))
    home = tmp_path / ".deedbook"
    with Ledger(home):
        pass
    for number in range(times(2, 1)):
        child = _start(home, folder)
        _wait_for(home, 4 + number * 128 + 1, child)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    last = _start(home, folder)
    last.communicate()
    assert last.returncode == 0
    with Ledger(home) as ledger:
        events = [ledger.event(index) for index in range(4, ledger.head()[0])]
        assert len({event.data.source for event in events}) == len(events) == count


_PROGRAM = """
import sys
from pathlib import Path
from building import Ledger, key_named
from deedbook.consumers.importers.empirica.importer import import_notes, read_notes
from deedbook.consumers.importers.empirica.notes import Repository
from deedbook.ledger.client.author import Author
from deedbook.projections.answers.reader import Reader
with Ledger(Path(sys.argv[1])) as ledger, Reader(ledger.client(), ledger.settings()) as reader:
    client = ledger.client()
    author = Author(client, "alice", lambda _: key_named("alice"))
    found = read_notes(Repository(Path(sys.argv[2])), ["refs/notes/empirica"], reader.answer, put_blob=author.put_blob)
    import_notes(author, found, lambda *_: print(ledger.head()[0], flush=True))
"""


def _start(home: Path, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROGRAM, str(home), str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _wait_for(home: Path, size: int, child: subprocess.Popen[str]) -> None:
    """Wait until a child has appended events up to ``size``, or has ended."""
    assert child.stdout is not None
    deadline = time.monotonic() + 60
    for line in child.stdout:
        if json.loads(line) >= size or time.monotonic() > deadline:
            return
