"""The role of a node: its next state and actions, given its state and an observation."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from deedbook.ledger.replication.lease import Lease, LeaseObservation, Timing
from deedbook.ledger.replication.role import (
    Candidate,
    DegradedNode,
    Follower,
    Leader,
    NodeTerm,
    OwnLog,
    State,
    has_complete_log,
    patience_ms,
    step,
)
from deedbook.ledger.replication.signals import (
    ActionFailed,
    Beat,
    CatchUp,
    HandOver,
    Lead,
    LeasePut,
    LeaseRead,
    LeaseRefused,
    LogCaughtUp,
    Observation,
    Pause,
    PutLease,
    ReadLease,
    Rebuild,
    Resume,
    Scrub,
    StartTerm,
    StepDown,
    StreamDamaged,
    StreamRebuilt,
    TermBegun,
    TermOvertaken,
    Tick,
)

B: Final = OwnLog("b", size=10, term=NodeTerm(3, "a"))
HERS, MINE = Lease("a", 3), Lease("b", 4)
BEAT: Final = Beat("a", 3, 10, leads=True)
LATE: Final = 60_000
LEADER: Final = Leader(term=4, revision=7, renewed_ms=LATE, requested_ms=LATE)
LED: Final = replace(B, term=NodeTerm(4, "b"))
NO_LEASE: Final = Timing(has_lease=False)


def after(state: State, *observations: Observation, own: OwnLog = B, now_ms: int = LATE) -> State:
    """Return the state of a node after these observations, all at the same time."""
    for observation in observations:
        state, _ = step(state, observation, own, now_ms)
    return state


def test_a_follower_that_hears_its_leader_stays_one_and_looks_at_the_lease_now_and_then() -> None:
    state, actions = step(Follower(0), BEAT, B, LATE)
    assert state == Follower(LATE, head=10, leader="a", requested_ms=LATE)
    assert actions == (ReadLease(),)
    assert step(state, Tick(), B, LATE + 500) == (state, ())
    assert step(state, Tick(), B, LATE + 1000)[1] == (ReadLease(),)


def test_a_follower_becomes_a_candidate_without_heartbeats_and_lease_renewals() -> None:
    quiet = Follower(0, requested_ms=LATE, lease=LeaseObservation(HERS, 6, LATE - 2_500))
    assert step(quiet, Tick(), B, LATE) == (Candidate(PutLease(6, MINE), requested_ms=LATE), (PutLease(6, MINE),))


@pytest.mark.parametrize(
    ("state", "own"),
    [
        (Follower(LATE - 2_499), B),  # a recent heartbeat
        (
            Follower(0, lease=LeaseObservation(HERS, 6, LATE - 2_499)),
            B,
        ),  # the leader renews its lease: only its heartbeats are lost
        (Follower(0), OwnLog("b")),  # nothing to lead
    ],
)
def test_a_follower_stays_one_while_a_leader_is_alive_or_its_log_is_empty(state: Follower, own: OwnLog) -> None:
    assert isinstance(after(state, Tick(), own=own), Follower)


def test_the_follower_with_the_longest_log_is_the_first_candidate() -> None:
    timing = Timing()
    ahead, behind = patience_ms(B, 10, timing), patience_ms(replace(B, size=9), 10, timing)
    assert timing.missed_ms <= ahead < timing.missed_ms + 1_000 <= behind
    assert len({patience_ms(replace(B, node=name), 10, timing) for name in "abcdef"}) > 1


def test_a_lease_is_free_when_its_revision_does_not_change() -> None:
    timing, observed = Timing(), LeaseObservation().after(Lease("a", 1), 5, 100)
    assert not observed.is_free("b", 2_599, timing)
    assert observed.is_free("b", 2_600, timing)
    assert observed.is_free("a", 101, timing)
    assert not observed.after(Lease("a", 1), 6, 2_000).is_free("b", 2_600, timing)
    assert observed.after(Lease("c", 1), 4, 2_000) is observed  # from a lagging replica


def test_the_node_in_the_lease_becomes_a_candidate_at_once() -> None:
    assert after(Follower(LATE), LeaseRead(Lease("b", 4), 9)) == Candidate(PutLease(9, MINE), requested_ms=LATE)
    assert step(Follower(LATE), replace(BEAT, leads=False, successor="b"), B, LATE)[1] == (ReadLease(),)


def test_the_first_leader_does_not_wait() -> None:
    state = after(Follower(LATE), LeaseRead(None, 0), own=OwnLog("b", 1))
    assert state == Candidate(PutLease(0, Lease("b", 1)), requested_ms=LATE)
    assert isinstance(after(Follower(LATE), LeaseRead(None, 0)), Follower)  # the lease was lost: the log has terms


def test_a_candidate_leads_once_it_has_the_lease_the_whole_stream_and_its_term_in_it() -> None:
    state: State = Candidate(PutLease(6, MINE), requested_ms=LATE)
    state, actions = step(state, LeasePut(MINE, 7, LATE), B, LATE)
    assert actions == (CatchUp(),)
    state, actions = step(state, LogCaughtUp(), B, LATE)
    assert actions == (StartTerm(4),)
    assert step(state, TermBegun(4), LED, LATE) == (LEADER, (Lead(),))


def test_a_candidate_starts_no_term_while_others_may_have_taken_its_lease() -> None:
    long_ago = LATE - Timing().missed_ms
    state: State = Candidate(CatchUp(), revision=7, requested_ms=LATE, renewed_ms=long_ago)
    state, actions = step(state, LogCaughtUp(), B, LATE)
    assert actions == ()
    state, actions = step(state, LeasePut(MINE, 8, LATE), B, LATE + 1)
    assert (state, actions) == (replace(state, action=StartTerm(4), revision=8, renewed_ms=LATE), ())
    assert step(state, Tick(), B, LATE + 2)[1] == (StartTerm(4),)


def test_a_candidate_follows_when_another_node_took_the_lease() -> None:
    assert after(Candidate(PutLease(6, MINE)), LeaseRefused(Lease("c", 4), 7)) == Follower(LATE)


def test_a_candidate_does_not_lead_while_others_have_more_than_the_stream_holds() -> None:
    lacking = Candidate(CatchUp(), head=11, revision=7, requested_ms=LATE)
    assert after(lacking, LogCaughtUp()) == Follower(LATE, head=11)
    # Although the lease names it, it stays a follower until it has those entries: the node that has them goes first.
    assert isinstance(after(Follower(LATE, head=11), LeaseRead(MINE, 9)), Follower)


def test_a_hand_over_is_repeated_after_a_late_renewal() -> None:
    leaving = replace(LEADER, is_paused=True, successor="a")
    state, actions = step(leaving, LeaseRefused(MINE, 9), LED, LATE)
    assert state == replace(leaving, revision=9)
    assert actions == (PutLease(9, Lease("a", 5)),)


def test_a_lease_whose_answer_was_lost_is_renewed_at_once_because_others_may_soon_take_it() -> None:
    again = PutLease(7, MINE)
    state, actions = step(Candidate(PutLease(6, MINE)), LeaseRefused(MINE, 7, LATE), B, LATE)
    assert (state, actions) == (Candidate(again, requested_ms=LATE), (again,))
    assert step(state, LeasePut(MINE, 8, LATE), B, LATE)[1] == (CatchUp(),)
    state, actions = step(Candidate(CatchUp(), revision=6), LeaseRefused(MINE, 7, LATE), B, LATE)
    assert (state, actions) == (Candidate(CatchUp(), revision=7, requested_ms=LATE), (again,))
    state, actions = step(replace(LEADER, renewed_ms=0), LeaseRefused(Lease("b", 4), 8, LATE), LED, LATE)
    assert actions == (PutLease(8, Lease("b", 4)),)
    assert not has_complete_log(state, LATE, Timing())


def test_an_old_leader_to_which_a_later_one_hands_over_catches_up_first() -> None:
    state, actions = step(LEADER, LeaseRefused(Lease("b", 6), 9, LATE), LED, LATE)
    assert isinstance(state, Candidate)
    assert (state.action, state.revision) == (CatchUp(), 9)
    assert actions == (StepDown(), CatchUp())


def test_a_candidate_catches_up_again_when_entries_were_in_flight() -> None:
    starting = Candidate(StartTerm(4), revision=7)
    assert step(starting, TermOvertaken(3), B, LATE) == (Candidate(CatchUp(), revision=7), (CatchUp(),))
    assert after(starting, TermOvertaken(4)) == Follower(LATE)


def test_a_candidate_tries_again_after_a_pause_and_renews_its_lease_meanwhile() -> None:
    state = after(Candidate(CatchUp(), revision=7, requested_ms=LATE), ActionFailed())
    assert step(state, Tick(), B, LATE + 99) == (state, ())
    again, actions = step(state, Tick(), B, LATE + 100)
    assert actions == (CatchUp(),)
    assert step(again, Tick(), B, LATE + 1_000)[1] == (PutLease(7, MINE),)


def test_a_candidate_yields_to_a_living_leader_unless_it_has_the_lease() -> None:
    assert isinstance(after(Candidate(PutLease(6, MINE)), BEAT), Follower)
    assert isinstance(after(Candidate(CatchUp(), revision=7), BEAT), Candidate)
    assert isinstance(after(Candidate(CatchUp(), revision=7), replace(BEAT, term=4)), Follower)


def test_a_leader_renews_and_pauses_when_it_could_not_for_as_long_as_the_lease_lasts() -> None:
    state, actions = step(LEADER, Tick(), LED, LATE + 1_000)
    assert actions == (PutLease(7, MINE),)
    assert step(state, Tick(), LED, LATE + 14_999)[1] == (PutLease(7, MINE),)
    state, actions = step(state, Tick(), LED, LATE + 15_000)
    assert actions == (PutLease(7, MINE), Pause())
    state, actions = step(state, LeasePut(MINE, 8, LATE + 15_000), LED, LATE + 15_100)
    assert actions == (Resume(),)
    assert state == Leader(4, 8, LATE + 15_000, LATE + 15_000)


def test_the_lease_of_a_stopped_leader_counts_from_its_request() -> None:
    """Else it would believe for a while after its stop that no other node can lead."""
    woken = LATE + 20_000
    state = after(LEADER, Tick(), own=LED, now_ms=woken)  # it requests a renewal, and then gets an old answer
    state = step(state, LeasePut(MINE, 8, LATE + 1_000), LED, woken)[0]
    assert isinstance(state, Leader)
    assert not has_complete_log(state, woken, Timing())
    candidate = Candidate(StartTerm(4), revision=7, requested_ms=woken, renewed_ms=LATE)
    assert not has_complete_log(step(candidate, TermBegun(4), LED, woken)[0], woken, Timing())


@pytest.mark.parametrize(
    "observation", [LeaseRefused(Lease("c", 5), 8), TermOvertaken(5), Beat("c", 5, 12, leads=True)]
)
def test_a_leader_steps_down_when_another_one_leads(observation: Observation) -> None:
    state, actions = step(LEADER, observation, LED, LATE)
    assert isinstance(state, Follower)
    assert actions == (StepDown(),)


@pytest.mark.parametrize(
    "observation", [TermOvertaken(4), Beat("a", 3, 12, leads=True), Beat("c", 4, 9), ActionFailed()]
)
def test_a_leader_ignores_an_earlier_leader(observation: Observation) -> None:
    state, actions = step(LEADER, observation, LED, LATE)
    assert isinstance(state, Leader)
    assert (replace(state, head=0), actions) == (LEADER, ())


def test_a_leader_that_hands_over_acknowledges_nothing_more_and_names_its_successor() -> None:
    state, actions = step(LEADER, HandOver("c"), LED, LATE)
    assert actions == (Pause(), PutLease(7, Lease("c", 5)))
    assert step(state, LeasePut(Lease("c", 5), 8), LED, LATE) == (Follower(LATE, 10, "c"), (StepDown(),))
    assert not has_complete_log(state, LATE, Timing())  # the successor may lead before this node knows
    state, actions = step(state, ActionFailed(), LED, LATE)
    assert actions == (Resume(),)
    assert not has_complete_log(state, LATE, Timing())  # only the answer may have failed
    state = step(state, LeasePut(MINE, 8, LATE), LED, LATE)[0]
    assert state == replace(LEADER, revision=8, renewed_ms=LATE, requested_ms=LATE)
    assert has_complete_log(state, LATE, Timing())


def test_the_leader_rebuilds_a_damaged_stream() -> None:
    state, actions = step(LEADER, StreamDamaged("a byte flipped"), LED, LATE)
    assert actions == (StepDown(), Rebuild())
    assert step(state, StreamRebuilt(), LED, LATE) == (Candidate(CatchUp(), 10, 7, LATE), (CatchUp(),))
    again = after(state, ActionFailed())
    assert step(again, Tick(), LED, LATE + 100)[1] == (Rebuild(),)
    assert after(state, LeaseRefused(Lease("c", 5), 8)) == Follower(LATE, 10, fault="a byte flipped")


def test_a_damaged_stream_is_not_rebuilt_from_a_log_that_is_not_the_longest() -> None:
    state = Candidate(CatchUp(), head=11, revision=7)
    assert after(state, StreamDamaged("gone")) == Follower(LATE, 11, fault="gone")
    assert isinstance(after(state, StreamDamaged("gone"), own=replace(B, size=11)), DegradedNode)
    # The longer log is that of a living old leader, or of a follower with entries that its leader saw no answer for.
    heard = after(Candidate(CatchUp(), revision=7), Beat("a", 3, 11, leads=True), StreamDamaged("gone"))
    assert heard == Follower(LATE, 11, fault="gone")
    led, actions = step(after(LEADER, Beat("c", 4, 11), own=LED), StreamDamaged("gone"), LED, LATE)
    assert (led, actions) == (Follower(LATE, 11, fault="gone"), (StepDown(),))


def test_a_follower_reports_a_fault_and_its_leader_checks_the_stream() -> None:
    faulty = after(Follower(LATE), StreamDamaged("not what I hold"))
    assert faulty == Follower(LATE, fault="not what I hold")
    assert after(faulty, StreamRebuilt()) == Follower(LATE)
    assert step(LEADER, Beat("c", 4, 10, fault="not what I hold"), LED, LATE) == (replace(LEADER, head=10), (Scrub(),))


def test_without_leases_a_node_that_hears_no_leader_leads() -> None:
    state, actions = step(Follower(0), Tick(), B, LATE, NO_LEASE)
    assert actions == (CatchUp(),)
    state, actions = step(state, LogCaughtUp(), B, LATE, NO_LEASE)
    assert actions == (StartTerm(4),)
    state, actions = step(state, TermBegun(4), LED, LATE, NO_LEASE)
    assert actions == (Lead(),)
    assert step(state, Tick(), LED, LATE * 9, NO_LEASE) == (state, ())


def test_a_disconnected_leader_does_not_claim_the_longest_log_once_another_can_lead() -> None:
    """Else it would report entries of the next leader, which its callers have read, as lost."""
    missed_ms = Timing().missed_ms
    assert has_complete_log(LEADER, LATE + missed_ms - 1, Timing())
    assert not has_complete_log(LEADER, LATE + missed_ms, Timing())
    assert not has_complete_log(LEADER, LATE, NO_LEASE)
    others: list[State] = [Follower(LATE), Candidate(CatchUp()), DegradedNode("gone")]
    assert not any(has_complete_log(state, LATE, Timing()) for state in others)
    follower = Follower(LATE, lease=LeaseObservation(HERS, 7, LATE))
    assert not follower.lease.is_free("b", LATE + missed_ms - 1, Timing())
