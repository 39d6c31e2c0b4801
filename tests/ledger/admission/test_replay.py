"""The rules depend on the log alone: replaying its entries from an empty state gives exactly the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import START_MS, key_named
from checking import check_log, packed, replayed, stored_entries, stored_state
from event_examples import EXAMPLES

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyRevoked, RoleGranted
from deedbook.ledger.events.handoff import HandoffCriterionWaived, HandoffReleased
from deedbook.ledger.events.session import FindingLogged, SessionEnded, SessionStarted
from deedbook.ledger.format.envelope import decode_entry, head_of
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from building import Ledger


@pytest.fixture
def lived(ledger: Ledger) -> Ledger:
    """A ledger with most kinds of events; some others were refused."""
    ledger.register("compressor", "service")
    session = ledger.delegate("alice", key_named("session"), kinds=["session.*", "finding.*"], max_events=9)
    ledger.emit("alice", "session/s1", SessionStarted(task="t"), key=session, idem="start")
    drafts = [
        Draft(stream="session/s1", data=FindingLogged(finding=str(number)), idem=f"f{number}") for number in range(5)
    ]
    ledger.submit(ledger.sign("alice", *drafts, key=session))
    ledger.clock.advance(60)
    for kind in ("reasoning.started", "reasoning.extended", "reasoning.concluded"):
        ledger.emit("alice", "reasoning/r1", EXAMPLES[kind], kind=kind)
    ledger.emit("compressor", "reasoning/r1", EXAMPLES["reasoning.briefed"], kind="reasoning.briefed")
    ledger.finish("h1", criteria=["a"], verify=True)
    ledger.approve("h2", ledger.hand_over("h2", depends_on=["h1"], criteria=["x", "y"], tasks=["z"]))
    ledger.claim("h2", lease_seconds=60)
    ledger.emit("rita", "handoff/h2", HandoffCriterionWaived(position=1, reason="known"))
    ledger.emit("bob", "handoff/h2", HandoffReleased())
    ledger.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role="reviewer"))
    ledger.emit("alice", "agent/alice", KeyRevoked(key=session.public.hex()))
    for author, stream, data in (("bob", "session/s1", SessionEnded()), ("bob", "session/s0", SessionEnded())):
        with pytest.raises(Refused):
            ledger.emit(author, stream, data)
    return ledger


def test_replay_of_the_log_gives_identical_state_records(lived: Ledger) -> None:
    replay = replayed(stored_entries(lived.log))
    assert packed(replay) == stored_state(lived.log)
    assert (replay.state.size, replay.ledger) == (lived.head()[0], lived.id)


def test_log_in_which_most_things_have_happened_is_whole(lived: Ledger) -> None:
    assert len(check_log(lived.log)) == lived.head()[0]


def test_replay_finds_every_event_where_it_stands(lived: Ledger) -> None:
    entries = stored_entries(lived.log)
    indexes = replayed(entries).state.indexes
    with lived.log.snapshot() as snapshot:
        for identity, (stream, index) in indexes.items():
            assert stream == head_of(decode_entry(entries[index]).body).stream
            assert snapshot.index_of(stream, identity) == index
    assert sorted(index for _, index in indexes.values()) == list(range(len(entries)))


@pytest.mark.parametrize("lost", [1, 4, 5, 6])
def test_replay_without_one_entry_does_not_pass_for_the_whole(lived: Ledger, lost: int) -> None:
    entries, state = stored_entries(lived.log), stored_state(lived.log)
    try:
        replay = replayed(entries[:lost] + entries[lost + 1 :])
    except Refused:
        return
    assert packed(replay) != state


def test_repeated_entry_is_refused_in_a_replay(lived: Ledger) -> None:
    entries = stored_entries(lived.log)
    with pytest.raises(Refused) as refused:
        replayed([*entries, entries[-1]])
    assert refused.value.code == "PARTIAL_RETRY"


def test_entry_with_another_clock_is_decided_by_that_clock(ledger: Ledger) -> None:
    session = ledger.delegate("alice", key_named("session"), seconds=60)
    ledger.emit("alice", "session/s1", SessionStarted(), key=session)
    entries = stored_entries(ledger.log)
    late = decode_entry(entries[-1])
    fields: dict[str, Any] = {name: getattr(late, name) for name in late.__struct_fields__}
    moved = type(late)(**(fields | {"accepted_ms": START_MS + 60_000})).encode()
    with pytest.raises(Refused) as refused:
        replayed([*entries[:-1], moved])
    assert refused.value.code == "KEY_EXPIRED"


def test_state_read_back_from_disk_decides_as_the_cache_does(lived: Ledger) -> None:
    fresh = Gate(lived.log, clock_ms=lived.clock)
    again = lived.sign("alice", Draft(stream="session/s1", data=FindingLogged(finding="late"), idem="f0"))
    for gate in (lived.gate, fresh):
        with pytest.raises(Refused) as refused:
            gate.submit(again)
        assert refused.value.code == "IDEMPOTENCY_CONFLICT"
    accepted = fresh.submit(lived.sign("alice", Draft(stream="session/s2", data=SessionStarted())))[0]
    assert lived.claim("h2").index == accepted.index + 1


def test_two_gates_on_one_log_never_decide_on_what_the_other_made_stale(ledger: Ledger) -> None:
    other = Gate(ledger.log, clock_ms=ledger.clock)
    started = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))
    ledger.submit(started)
    other.submit(ledger.sign("alice", Draft(stream="session/s1", data=FindingLogged(finding="one"), expect=1)))
    ledger.emit("alice", "session/s1", FindingLogged(finding="two"), expect=2)
    other.submit(ledger.sign(ROOT, Draft(stream="agent/alice", data=KeyRevoked(key=ledger.keys["alice"].public.hex()))))
    with pytest.raises(Refused) as refused:
        ledger.emit("alice", "session/s1", FindingLogged(finding="three"))
    assert refused.value.code == "KEY_REVOKED"
