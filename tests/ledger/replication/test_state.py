"""The actions that a node may take after its observations: answer reads, admit events, run workers, rebuild streams."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from deedbook.ledger.replication.state import (
    Beat,
    Followed,
    Interrupted,
    LogForked,
    NodeState,
    Observation,
    OwnLog,
    Scrubbed,
    StreamDamaged,
    Tick,
    Timing,
    step,
)

B: Final = OwnLog("b", size=10)
T: Final = Timing()
NOW: Final = 60_000
A: Final = Beat("a", 10, admits=True, generation=3)
READY: Final = step(step(NodeState(0), A, B, NOW), Followed(3), B, NOW)


def after(state: NodeState, *observations: Observation, own: OwnLog = B, now_ms: int = NOW) -> NodeState:
    """Return the state of a node after these observations, all at the same time."""
    for observation in observations:
        state = step(state, observation, own, now_ms)
    return state


def test_a_node_takes_submissions_once_it_has_followed_the_stream_and_waited_for_the_others() -> None:
    state = NodeState(NOW)
    assert not state.reads(NOW, T)
    state = after(state, Followed(3))
    assert state.reads(NOW, T)
    assert not state.admits(NOW, T)
    assert not after(state, A, now_ms=NOW + 1).admits(NOW + 1, T)
    later = NOW + T.missed_ms
    assert not after(state, Tick(), now_ms=later - 1).admits(later - 1, T)
    assert after(state, Tick(), now_ms=later).admits(later, T)


def test_a_node_that_was_interrupted_waits_for_every_node_that_it_knew_unless_it_has_left() -> None:
    state = after(READY, Beat("c", 10))
    cut = after(state, Interrupted(), now_ms=NOW + 1)
    assert not cut.admits(NOW + 1, T)
    heard = after(cut, A, now_ms=NOW + 2)
    assert not heard.admits(NOW + 2, T)
    assert after(heard, Beat("c", 10), now_ms=NOW + 3).admits(NOW + 3, T)
    assert after(heard, Beat("c", 10, leaves=True), now_ms=NOW + 3).admits(NOW + 3, T)
    assert heard.is_in_contact(NOW + 1 + T.missed_ms, T)


def test_a_node_that_is_interrupted_right_after_its_start_waits_the_whole_time_as_it_may_not_know_all_others() -> None:
    state = after(NodeState(NOW), Followed(3), A, now_ms=NOW + 1)
    cut = after(state, Interrupted(), A, now_ms=NOW + 2)
    assert not cut.admits(NOW + 3, T)
    assert after(cut, A, now_ms=NOW + 3).awaited == frozenset()
    later = NOW + 2 + T.missed_ms
    assert after(cut, Tick(), now_ms=later).admits(later, T)


def test_a_node_that_only_follows_reads_and_neither_takes_submissions_nor_rebuilds() -> None:
    follows = replace(T, writes=False)
    assert READY.reads(NOW, follows)
    assert not READY.admits(NOW, follows)
    assert not after(READY, StreamDamaged("it is gone")).may_rebuild(B, NOW, follows)


def test_a_node_answers_nothing_while_it_lacks_entries_for_long_or_the_stream_is_silent() -> None:
    behind = after(READY, Beat("a", 11, admits=True))
    assert behind.admits(NOW + T.lag_ms, T)
    assert not behind.reads(NOW + T.lag_ms + 1, T)
    assert after(behind, Tick(), own=OwnLog("b", 11), now_ms=NOW + 3_000).reads(NOW + 3_000, T)
    level = after(READY, Tick(), now_ms=NOW + T.silent_ms)
    assert level.reads(NOW + T.silent_ms, T)
    assert not level.reads(NOW + T.silent_ms + 1, T)


def test_the_longest_log_is_remembered_also_of_a_node_that_is_silent_but_not_of_one_that_is_apart() -> None:
    state = after(READY, Beat("a", 12))
    assert after(state, Tick(), now_ms=NOW + 10**6).head == 12
    assert after(state, Beat("a", 12, is_apart=True)).head == 0


def test_the_node_with_the_first_name_of_those_that_take_submissions_runs_the_workers() -> None:
    assert not READY.has_duties(B, NOW, T)
    assert READY.has_duties(OwnLog("0", 10), NOW, T)
    assert after(READY, replace(A, admits=False)).has_duties(B, NOW, T)
    later = NOW + T.missed_ms
    assert after(READY, Tick(), Followed(3), now_ms=later).has_duties(B, later, T)


def test_a_damaged_stream_is_rebuilt_until_a_stream_is_followed_again() -> None:
    assert not READY.may_rebuild(B, NOW, T)
    state = after(READY, StreamDamaged("it is gone"))
    assert (state.fault, state.reads(NOW, T)) == ("it is gone", False)
    assert state.may_rebuild(B, NOW, T)
    assert after(state, Followed(4)).fault == ""


@pytest.mark.parametrize(
    ("observations", "own"),
    [
        ([Beat("a", 11)], B),
        ([LogForked("entry 4 differs")], B),
        ([], OwnLog("b")),
        ([Interrupted()], B),
    ],
    ids=["another log is longer", "its log is apart", "it has no log", "it was interrupted"],
)
def test_a_node_does_not_rebuild_when(observations: list[Observation], own: OwnLog) -> None:
    state = after(READY, StreamDamaged("it is gone"), *observations, own=own)
    assert not state.may_rebuild(own, NOW + 1, T)


def test_damage_that_scrubbing_found_is_not_over_when_the_same_stream_is_followed() -> None:
    state = after(READY, StreamDamaged("message 4 differs", 3), StreamDamaged("it is short"), Followed(3))
    assert state.fault == "it is short"
    assert after(state, Scrubbed(2)).fault
    assert after(state, Scrubbed(3)).fault == ""
    assert after(state, Followed(4)).fault == ""


def test_a_log_that_is_apart_stays_so() -> None:
    state = after(READY, LogForked("entry 4 differs"), StreamDamaged("it is gone"), Followed(4), Scrubbed(0))
    assert (state.fault, state.is_apart) == ("entry 4 differs", True)


def test_a_node_scrubs_for_each_fault_of_a_node_with_a_shorter_log() -> None:
    beat = Beat("a", 10, fault="it is short", generation=3)
    state = after(READY, beat)
    assert state.reported == "3: it is short"
    assert after(state, replace(beat, generation=4)).reported == "4: it is short"
    for ignored in (replace(beat, fault="other", size=11), replace(beat, fault="other", is_apart=True), A):
        assert after(state, ignored).reported == state.reported
    assert after(state, StreamDamaged("it is gone"), replace(beat, fault="other")).reported == state.reported
