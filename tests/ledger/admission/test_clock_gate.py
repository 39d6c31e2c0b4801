"""After its clock has jumped, the gate refuses events until root sets the ledger's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import Clock, Ledger, key_named
from checking import check_log

from deedbook.ledger.admission.check import check
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import ClockSet
from deedbook.ledger.events.handoff import HandoffCompleted
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.limits import clock_max_ms

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted

DAY_S = 86_400
SESSION_KEY = key_named("alice's session")
YEAR_2099_S = 73 * 365 * DAY_S


def clock_set(ledger: Ledger, *, author: str = "root", time: str = "", **more: Any) -> Accepted:
    """Set the ledger's clock to that of its machine, or to another time."""
    return ledger.emit(author, "ledger", ClockSet(time=time or ledger.clock.text(), reason="it stood wrong"), **more)


def started(ledger: Ledger, name: str) -> Accepted:
    return ledger.emit("alice", f"session/{name}", SessionStarted())


def refusal(act: Any, *given: Any, **named: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        act(*given, **named)
    return refused.value


@pytest.mark.parametrize("distance_s", [30 * DAY_S + 1, YEAR_2099_S, -DAY_S - 1, -40 * 365 * DAY_S])
def test_jump_is_refused_until_the_root_says_what_time_it_is(ledger: Ledger, distance_s: int) -> None:
    before = ledger.head()
    ledger.clock.advance(distance_s)
    answer = refusal(started, ledger, "s1")
    assert (answer.code, answer.recoverable, ledger.head()) == ("CLOCK_JUMPED", False, before)
    assert "deed clock set --as root" in answer.message
    assert clock_set(ledger).accepted_ms == started(ledger, "s1").accepted_ms == ledger.clock.now_ms
    check_log(ledger.log)


@pytest.mark.parametrize("system_ms", [-1, -(10**14), clock_max_ms + 1])
def test_nothing_is_accepted_outside_the_years_that_dates_have(ledger: Ledger, system_ms: int) -> None:
    time, ledger.clock.now_ms = ledger.clock.text(), system_ms
    drafts = (
        [Draft(stream="session/s1", data=SessionStarted())],
        [Draft(stream="ledger", data=ClockSet(time=time, reason="r"))],
    )
    for author, (draft,) in zip(("alice", "root"), drafts, strict=True):
        clock, ledger.clock = ledger.clock, Clock()
        submission = ledger.sign(author, draft)
        ledger.clock = clock
        assert refusal(ledger.submit, submission).code == "CLOCK_JUMPED"


def test_two_machines_with_clocks_far_apart_do_not_take_turns(ledger: Ledger) -> None:
    ledger.clock.advance(25 * DAY_S)
    started(ledger, "ahead")
    ledger.clock.advance(-25 * DAY_S)
    assert refusal(started, ledger, "behind").code == "CLOCK_JUMPED"
    clock_set(ledger)
    started(ledger, "behind")


def test_first_answer_is_given_again_whatever_the_clock_says(ledger: Ledger) -> None:
    submission = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))
    first = ledger.submit(submission)[0]
    ledger.clock.advance(YEAR_2099_S)
    again = ledger.submit(submission)[0]
    assert (again.index, again.accepted_ms, again.is_repeat) == (first.index, first.accepted_ms, True)


def test_jump_refuses_each_of_a_group_and_the_one_that_sets_the_clock_lets_the_later_ones_in(ledger: Ledger) -> None:
    ledger.clock.advance(YEAR_2099_S)
    setting = Draft(stream="ledger", data=ClockSet(time=ledger.clock.text(), reason="r"))
    group = [
        ledger.sign("alice", Draft(stream="session/early", data=SessionStarted())),
        ledger.sign("root", setting),
        ledger.sign("alice", Draft(stream="session/late", data=SessionStarted())),
    ]
    early, setting_answer, late = ledger.gate.admit([check(one) for one in group])
    assert isinstance(early, Refused)
    assert early.code == "CLOCK_JUMPED"
    assert not isinstance(setting_answer, Refused)
    assert not isinstance(late, Refused)
    assert setting_answer[0].accepted_ms == late[0].accepted_ms == ledger.clock.now_ms
    check_log(ledger.log)


def test_only_the_root_sets_the_clock_by_its_own_key_alone_and_to_the_machines_time(ledger: Ledger) -> None:
    ledger.clock.advance(-5 * DAY_S)
    assert refusal(clock_set, ledger, author="rita").code == "NOT_AUTHORIZED"
    assert refusal(clock_set, ledger, author="node").code == "NOT_AUTHORIZED"
    assert refusal(clock_set, ledger, time="2099-01-01T00:00:00Z").code == "CLOCK_JUMPED"
    both = [Draft(stream="ledger", data=ClockSet(time=ledger.clock.text(), reason=reason)) for reason in "ab"]
    assert refusal(ledger.submit, ledger.sign("root", *both)).code == "INVALID_FIELD"
    ledger.clock.advance(5 * DAY_S)
    ledger.delegate("root", SESSION_KEY)
    assert refusal(clock_set, ledger, key=SESSION_KEY).code == "KEY_OUT_OF_SCOPE"


def test_clock_may_be_set_twice_and_goes_back_each_time(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.clock.advance(-3600)
        assert clock_set(ledger).accepted_ms == ledger.clock.now_ms
    check_log(ledger.log)


def test_lease_granted_under_a_wrong_clock_lapses_and_one_that_seemed_to_lapse_holds_on(ledger: Ledger) -> None:
    for name in ("before", "meanwhile"):
        ledger.approve(name, ledger.hand_over(name))
    ledger.claim("before", lease_seconds=3600)
    ledger.clock.advance(20 * DAY_S)
    ledger.claim("meanwhile", lease_seconds=3600)
    assert refusal(ledger.emit, "bob", "handoff/before", HandoffCompleted()).code == "TRANSITION_NOT_ALLOWED"
    ledger.clock.advance(-20 * DAY_S + 60)
    clock_set(ledger)
    assert refusal(ledger.emit, "bob", "handoff/meanwhile", HandoffCompleted()).code == "TRANSITION_NOT_ALLOWED"
    ledger.claim("meanwhile", lease_seconds=60)
    ledger.emit("bob", "handoff/before", HandoffCompleted())
    ledger.emit("bob", "handoff/meanwhile", HandoffCompleted())
    check_log(ledger.log)


def test_session_keys_expire_by_the_clock_that_was_set_right(ledger: Ledger) -> None:
    early, late, later = (key_named(name) for name in ("early", "late", "later"))
    ledger.delegate("alice", early, seconds=3600)
    ledger.clock.advance(20 * DAY_S)
    ledger.delegate("alice", late, seconds=3600)
    with_key = {"author": "alice", "stream": "session/s1", "data": SessionStarted()}
    assert refusal(ledger.emit, key=early, **with_key).code == "KEY_EXPIRED"
    ledger.clock.advance(-20 * DAY_S + 60)
    clock_set(ledger)
    assert refusal(ledger.emit, key=late, **with_key).code == "KEY_EXPIRED"
    ledger.emit(key=early, **with_key)
    ledger.delegate("alice", later, seconds=3600)
    ledger.emit("alice", "session/s2", SessionStarted(), key=later)
    check_log(ledger.log)
