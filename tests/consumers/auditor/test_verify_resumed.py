"""An audit that resumes from the last one finds the same as a full audit, and verifies only the new entries."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from blake3 import blake3
from building import Ledger
from every_kind import live
from faults import times
from tampering import SESSION, entries_of, fill, finding, overwrite, rebuilt
from view_ledger import ViewLedger

from deedbook.consumers.auditor import cache as cache_module
from deedbook.consumers.auditor.cache import AuditCache, read_cached_replay
from deedbook.consumers.auditor.replay import LogReplay
from deedbook.consumers.auditor.report import Findings
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.reads import HeadView
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.envelope import decode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.consumers.auditor.report import AuditReport


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "kept.audit"


def audit(ledger: Ledger, file: Path | None, **options: str) -> AuditReport:
    with ledger.client(only_looks=True) as client:
        return verify_log(client, cache=file, **options)


def replayed(entries: list[bytes], before: LogReplay | None = None) -> LogReplay:
    """Feed entries to a replay, by default a new one, as an audit does."""
    replay = before or LogReplay(Findings(), len(entries))
    replay.feed(entries)
    return replay


def outcome(replay: LogReplay) -> tuple[object, ...]:
    replay.finish()
    state = replay.memory
    found = replay._findings
    return (
        replay.size,
        replay.frontier,
        state.packed,
        state.indexes,
        state.streams,
        state.authority_version,
        replay.kinds,
        replay.authority,
        replay.created,
        replay.verified,
        replay.compromised(),
        replay.clock_ms,
        found.problems,
        found.notes,
        found.notes_total,
    )


def test_a_replay_that_goes_on_at_any_entry_ends_as_one_of_the_whole(tmp_path: Path, file: Path) -> None:
    with ViewLedger(tmp_path / "ledger") as ledger:
        live(ledger)
        entries, seed = entries_of(ledger), random.Random("cuts")
    whole, size = outcome(replayed(entries)), len(entries)
    in_batches = [index for index, data in enumerate(entries) if decode_entry(data).batch_index > 0]
    for cut in {*seed.sample(range(1, size + 1), min(size, times(5, each=4))), *seed.sample(in_batches, 3)}:
        first = replayed(entries[:cut])
        AuditCache(file, Findings()).store(first.to_cache, is_end=True)
        kept = read_cached_replay(file, ledger.id)
        assert kept is not None
        assert kept.size == cut
        again = LogReplay(Findings(), size)
        again.rehash(entries[:cut])
        again.resume(kept, {index: entries[index] for index in kept.reread_indexes})
        assert outcome(replayed(entries[cut:], again)) == whole


def test_only_what_is_new_is_verified(ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ledger)
    first = audit(ledger, file)
    with ledger.client() as client:
        note = client.checkpoint()
    assert (first.ok, first.resumed_at) == (True, 0)
    ledger.emit("alice", SESSION, finding(77))
    decided: list[int] = []
    real = LogReplay.step
    monkeypatch.setattr(
        LogReplay,
        "step",
        lambda self, index, *args, **options: (decided.append(index), real(self, index, *args, **options))[1],
    )
    report = audit(ledger, file)
    assert decided == [first.size]
    assert report.resumed_at == first.size
    assert msgspec.structs.replace(report, resumed_at=0) == audit(ledger, None)
    assert audit(ledger, file).resumed_at == report.size
    assert audit(ledger, file, trusted_checkpoint=note).anchored


def test_an_entry_that_was_changed_since_is_found_and_named(ledger: Ledger, file: Path) -> None:
    fill(ledger)
    size = audit(ledger, file).size
    data = entries_of(ledger)[5]
    overwrite(ledger, {5: data[:-1] + bytes([data[-1] ^ 1])})
    report = audit(ledger, file)
    assert {(one.index, one.code) for one in report.problems} >= {(0, "HISTORY_CHANGED")}
    assert {one.index for one in report.problems} >= {5}
    kept = read_cached_replay(file, ledger.id)
    assert kept is not None
    assert kept.size == size  # an audit that found a problem caches nothing


def test_an_entry_that_lost_its_body_since_is_found(ledger: Ledger, file: Path) -> None:
    fill(ledger)
    assert audit(ledger, file).ok
    overwrite(ledger, {5: decode_entry(entries_of(ledger)[5]).bare_form()})
    assert 5 in {one.index for one in audit(ledger, file).problems}


def test_a_log_that_was_cut_off_since_is_not_gone_on_with(ledger: Ledger, file: Path, tmp_path: Path) -> None:
    fill(ledger)
    audit(ledger, file)
    shorter = rebuilt(ledger, tmp_path / "shorter", entries_of(ledger)[:-1])
    assert {one.code for one in audit(shorter, file).problems} == {"HISTORY_CHANGED"}


@pytest.fixture
def put_back(ledger: Ledger, file: Path, tmp_path: Path) -> Iterator[Ledger]:
    """A copy of a ledger that lost its last entry after an audit had found it valid."""
    fill(ledger)
    shutil.copytree(ledger.home.path, tmp_path / "copy")
    ledger.emit("alice", SESSION, finding(77))
    assert audit(ledger, file).ok
    with Ledger(tmp_path / "copy", clock=ledger.clock) as copy:
        yield copy


def test_a_log_that_goes_on_without_what_an_epoch_abandons_is_right_and_told_once(
    ledger: Ledger, put_back: Ledger, file: Path
) -> None:
    put_back.emit("alice", SESSION, finding(78))
    assert {one.code for one in audit(put_back, file).problems} == {"HISTORY_CHANGED"}
    size, root = ledger.head()
    put_back.emit("root", "ledger", HistoryReset(abandoned_size=size, abandoned_root=root.hex(), reason="a lost disk"))
    report = audit(put_back, file)
    assert (report.outcome, [one.code for one in report.notes]) == ("VALID", ["HISTORY_CHANGED"])
    assert "a lost disk" in report.notes[0].message
    assert msgspec.structs.replace(report, notes=[], notes_total=0) == audit(put_back, None)
    again = audit(put_back, file)
    assert (again.resumed_at, again.notes) == (report.size, [])


def test_an_epoch_that_the_last_audit_knew_does_not_excuse_what_was_lost_since(
    ledger: Ledger, file: Path, tmp_path: Path
) -> None:
    ledger.emit("root", "ledger", HistoryReset(abandoned_size=10_000, abandoned_root="00" * 32, reason="r"))
    shorter = rebuilt(ledger, tmp_path / "shorter", entries_of(ledger))
    ledger.emit("alice", SESSION, SessionStarted(task="lost"))
    assert audit(ledger, file).ok
    assert {one.code for one in audit(shorter, file).problems} == {"HISTORY_CHANGED"}


def test_what_another_audit_kept_at_this_moment_does_not_end_behind_the_head(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    real = LocalClient.head

    def grow_and_audit(client: LocalClient) -> HeadView:
        head = real(client)
        monkeypatch.setattr(LocalClient, "head", real)
        ledger.emit("alice", SESSION, finding(77))
        audit(ledger, file)
        return head

    audit(ledger, file)
    monkeypatch.setattr(LocalClient, "head", grow_and_audit)
    steps: list[tuple[int, int]] = []
    size = ledger.head()[0]
    with ledger.client(only_looks=True) as client:
        report = verify_log(client, cache=file, progress=lambda *step: steps.append(step))
    assert (report.outcome, report.size, report.resumed_at) == ("VALID", size, size)
    assert max(steps) == (size, size)


def test_a_node_whose_head_lies_before_what_was_found_right_has_lost_entries(ledger: Ledger, file: Path) -> None:
    fill(ledger)
    audit(ledger, file)
    with ledger.client(only_looks=True) as client:
        client.head = lambda: HeadView(ledger.id, 5, "00" * 32)  # type: ignore[method-assign]
        report = verify_log(client, cache=file)
    assert {one.code for one in report.problems} == {"HISTORY_CHANGED", "VERIFICATION_FAILED"}
    assert report.size == 5


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: random.Random(1).randbytes(500),
    ],
)
def test_a_file_that_is_damaged_counts_as_none(ledger: Ledger, file: Path, harm: object) -> None:
    fill(ledger)
    audit(ledger, file)
    file.write_bytes(harm(file.read_bytes()))  # type: ignore[operator]
    report = audit(ledger, file)
    assert (report.ok, report.resumed_at) == (True, 0)
    assert read_cached_replay(file, ledger.id) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"authority": []},
        {"authority": [1, 2]},
        {"authority": [-1, 0]},
        {"authority": [0, 2**64 - 1]},
        {"batch_at": -1},
        {"batch_at": 2**64 - 1},
        {"ids": b"one"},
        {"size": -1},
        {"size": 2**64 - 1},
        {"signed_by": {b"key": b"1234567"}},
        {"signed_by": {b"key": b""}},
    ],
)
def test_a_file_of_which_no_replay_can_go_on_counts_as_none(
    ledger: Ledger, file: Path, wrong: dict[str, object]
) -> None:
    fill(ledger)
    audit(ledger, file)
    written = msgspec.msgpack.decode(file.read_bytes()[32:])
    written["replay"] |= wrong
    content = msgspec.msgpack.encode(written)
    file.write_bytes(blake3(content).digest() + content)
    report = audit(ledger, file)
    assert (report.ok, report.resumed_at) == (True, 0)


def test_what_another_program_or_user_or_of_another_ledger_kept_counts_as_none(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    audit(ledger, file)
    assert read_cached_replay(file, "0" * 32) is None
    file.chmod(0o666)
    assert read_cached_replay(file, ledger.id) is None
    file.chmod(0o600)
    assert read_cached_replay(file, ledger.id) is not None
    monkeypatch.setattr(cache_module, "_program", lambda: "another")
    assert read_cached_replay(file, ledger.id) is None


def test_an_audit_that_is_interrupted_is_gone_on_with(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    monkeypatch.setattr(cache_module, "store_interval_s", 0.0)
    monkeypatch.setattr("deedbook.consumers.auditor.verify.range_events_max", 4)

    def interrupt(done: int, _total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with ledger.client(only_looks=True) as client, pytest.raises(KeyboardInterrupt):
        verify_log(client, cache=file, progress=interrupt)
    report = audit(ledger, file)
    assert report.ok
    assert 0 < report.resumed_at <= 20


def test_where_nothing_can_be_kept_the_audit_says_so_and_its_verdict_stands(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    (tmp_path / "taken").write_text("a file where a folder is wanted")
    report = audit(ledger, tmp_path / "taken" / "kept.audit")
    assert report.ok
    assert [one.code for one in report.notes] == ["STORE_UNAVAILABLE"]


def test_that_nothing_could_be_kept_for_a_while_is_no_note_of_this_audit_nor_of_the_next(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    monkeypatch.setattr(cache_module, "store_interval_s", 0.0)
    monkeypatch.setattr("deedbook.consumers.auditor.verify.range_events_max", 4)
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder is wanted")

    def make_room(done: int, _total: int) -> None:
        if done > 20 and taken.is_file():
            taken.unlink()

    with ledger.client(only_looks=True) as client:
        report = verify_log(client, cache=taken / "kept.audit", progress=make_room)
    assert (report.notes, report.notes_total) == ([], 0)
    assert audit(ledger, taken / "kept.audit").notes == []
