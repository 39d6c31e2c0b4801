"""The follower accepts exactly the bytes of entries that a gate made, and nothing else, from any sender."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Ledger

from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def entries(ledger: Ledger) -> list[bytes]:
    """A log with single events and a signed batch at its end."""
    ledger.emit("alice", "session/s", SessionStarted())
    ledger.emit("alice", "session/s", FindingLogged(finding="alone"))
    findings = [Draft(stream="session/s", data=FindingLogged(finding=str(number))) for number in range(3)]
    ledger.submit(ledger.sign("alice", *findings))
    with ledger.log.snapshot() as snapshot:
        return snapshot.entries(0, limit=1000, size_max_bytes=2**20)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Log]:
    """Another log, without any entry."""
    (tmp_path / "copy").mkdir()
    with Log(tmp_path / "copy", create=True, map_size=2**26) as log:
        yield log


def refusal(copy: Log, start: int, entries: list[bytes]) -> Corrupted:
    """Return the error with which a follower refuses entries, after checking that it appended nothing."""
    with copy.snapshot() as snapshot:
        before = snapshot.size
    with pytest.raises(Corrupted) as refused:
        LogFollower(copy).append(start, entries)
    with copy.snapshot() as snapshot:
        assert snapshot.size == before
    return refused.value


def test_copy_has_the_same_tree_and_the_same_state(ledger: Ledger, entries: list[bytes], copy: Log) -> None:
    follower = LogFollower(copy)
    size = 0
    while size < len(entries):
        size += follower.append(size, entries[size : size + 5])
    with ledger.log.snapshot() as ours, copy.snapshot() as theirs:
        assert theirs.root() == ours.root()
        assert theirs.head == ours.head
        assert theirs.agents() == ours.agents()
        assert theirs.keys() == ours.keys()
        assert theirs.record(b"ssession/s") == ours.record(b"ssession/s")


def test_batch_that_is_not_whole_is_left_for_later(entries: list[bytes], copy: Log) -> None:
    taken = LogFollower(copy).append(0, entries[:-1])
    assert taken == len(entries) - 3
    assert LogFollower(copy).append(taken, entries[taken:-1]) == 0
    assert LogFollower(copy).append(taken, entries[taken:]) == 3


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (-4, {"sig": bytes(64)}),
        (-4, {"accepted_ms": 1}),
        (-4, {"key": bytes(32)}),
        (-3, {"sig": bytes(64)}),
        (-2, {"batch_index": 0}),
        (-1, {"accepted_ms": 2**45}),
        (-1, {"batch_size": 4}),
        (-4, {"stream_version": 9}),
        (-1, {"authority_version": 1}),
    ],
)
def test_entry_that_was_altered_is_refused(
    entries: list[bytes], copy: Log, position: int, change: dict[str, object]
) -> None:
    altered = msgspec.structs.replace(decode_entry(entries[position]), **change)
    entries[position] = altered.encode()
    error = refusal(copy, 0, entries)
    assert error.code == "VERIFICATION_FAILED"
    assert len(entries) - 4 <= error.details["index"] < len(entries)


def test_signed_entry_that_rules_refuse_is_refused(entries: list[bytes], copy: Log) -> None:
    assert "NOT_FOUND" in refusal(copy, 0, [*entries[:-5], *entries[-4:]]).message
    assert "PARTIAL_RETRY" in refusal(copy, 0, [*entries, entries[-4]]).message
    assert "entry 0: " in refusal(copy, 0, entries[1:]).message


def test_log_that_somebody_wrote_to_meanwhile_is_left_alone(entries: list[bytes], copy: Log) -> None:
    LogFollower(copy).append(0, entries)
    assert refusal(copy, len(entries) - 1, entries[-4:-3]).code == "HISTORY_CHANGED"
