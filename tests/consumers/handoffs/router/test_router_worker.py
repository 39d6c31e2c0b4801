"""A router over a real ledger: one handoff a step and cause, whatever happens; and no step is lost silently."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from routed_ledger import content, wait_until

from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.handoff import HandoffAmended, HandoffApproved, HandoffCompleted, HandoffCreated
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    from pathlib import Path

    from routed_ledger import Routed

LOOP = b"""
[[chain]]
name = "again"
when = "handoff.approved"
hops_max = 3
then = {to = "bob", title = "Again: {title}"}
"""


def test_verified_work_is_handed_on_with_its_cause(routed: Routed) -> None:
    router = routed.router()
    cause = routed.verify("t1", to="minimax", title="Tests of the bus")
    routed.route(router)
    (made,) = routed.made()
    assert (made.name, made.author, made.causes) == ("t1-validate-1", "router", [cause])
    assert made.idem == f"validate:1:{cause}"
    assert (content(made).title, content(made).to, content(made).reviewer) == (
        "Validate: Tests of the bus",
        "claude",
        "rita",
    )
    assert content(made).depends_on == ["t1"]
    assert routed.letters() == []


def test_the_only_human_reviews_what_no_chain_and_no_configuration_says(routed: Routed) -> None:
    routed.write(b'[[chain]]\nname = "c"\nwhen = "handoff.verified"\nthen = {to = "bob", title = "Next"}')
    router = routed.router(default_reviewer=None)
    routed.verify("t1", to="minimax", title="Tests of the bus")
    routed.route(router)
    assert [content(made).reviewer for made in routed.made()] == ["rita"]  # the only human of this ledger


def test_a_chain_hands_the_reasoning_on_until_a_result_brings_its_own(routed: Routed) -> None:
    given, own = ("sha256:" + digit * 64 for digit in "12")
    router = routed.router()
    routed.verify("t1", to="minimax", title="Tests of the bus", reasoning_refs=[given])
    routed.route(router)
    routed.work("t1-validate-1", reasoning_refs=[own])
    routed.route(router)
    assert [content(one).reasoning_refs for one in routed.made()] == [[given], [own]]


def test_three_agents_work_one_after_the_other(routed: Routed) -> None:
    router = routed.router()
    routed.verify("t1", to="minimax", title="Tests of the bus")
    routed.route(router)
    routed.work("t1-validate-1", summary="It stands.\n## Tasks\n- [x] none")
    routed.route(router)
    routed.work("t1-validate-1-optimize-1")
    routed.route(router)
    validate, optimize = routed.made()
    assert [content(one).to for one in (validate, optimize)] == ["claude", "gemini"]
    assert [one.corr.rpartition(":")[2] for one in (validate, optimize) if one.corr] == ["1", "2"]
    assert len({(one.corr or "").split(":")[2] for one in (validate, optimize)}) == 1
    assert content(optimize).answers == "t1-validate-1"


def test_what_happened_before_the_first_start_is_not_routed(routed: Routed) -> None:
    routed.verify("t1", to="minimax", title="Tests")
    routed.router()
    assert routed.made() == []


def test_lost_store_makes_nothing_twice(routed: Routed) -> None:
    router = routed.router()
    before = routed.size
    routed.verify("t1", to="minimax", title="Tests")
    routed.route(router)
    routed.store.unlink()
    subscriptions = Subscriptions(routed.store)
    with subscriptions.transaction():
        subscriptions.move("router", before)
    subscriptions.close()
    size = routed.size
    routed.route(router)
    assert routed.size == size
    assert len(routed.made()) == 1


def test_crash_between_handoff_and_position_makes_one_handoff(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    router = routed.router()
    routed.verify("t1", to="minimax", title="Tests")
    move = Subscriptions.move

    def die(subscriptions: Subscriptions, name: str, index: int) -> None:
        if routed.made():
            raise KeyboardInterrupt
        move(subscriptions, name, index)

    with monkeypatch.context() as patch:
        patch.setattr(Subscriptions, "move", die)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                routed.route(router)
    routed.route(router)
    assert len(routed.made()) == 1
    assert routed.letters() == []


def test_two_routers_make_one_handoff_a_step(routed: Routed, tmp_path: Path) -> None:
    routers = [routed.router(), routed.router("pilot", tmp_path / "pilot.db"), routed.router(store=tmp_path / "b.db")]
    for number in range(5):
        routed.verify(f"t{number}", to="minimax", title="Tests")
    threads = [threading.Thread(target=routed.route, args=(router,)) for router in routers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.name for one in routed.made()) == [f"t{number}-validate-1" for number in range(5)]
    assert len(routed.announced()) == len(set(routed.announced()))
    assert routed.letters() == []


def test_chain_that_changed_after_a_crash_keeps_the_handoff_that_was_made(routed: Routed) -> None:
    router = routed.router()
    before = routed.size
    routed.verify("t1", to="minimax", title="Tests")
    routed.route(router)
    subscriptions = Subscriptions(routed.store)
    with subscriptions.transaction():
        subscriptions.move("router", before)
    subscriptions.close()
    routed.write(routed.file.read_bytes().replace(b"Validate:", b"Check:"))
    routed.route(router)
    (made,) = routed.made()
    assert content(made).title == "Validate: Tests"
    assert routed.letters() == []


def test_id_that_somebody_else_took_does_not_lose_the_step(routed: Routed, tmp_path: Path) -> None:
    router = routed.router()
    routed.ledger.hand_over("t1-validate-1", title="Mine")
    cause = routed.verify("t1", to="minimax", title="Tests")
    routed.route(router)
    (made,) = routed.made()
    assert made.name.startswith("t1-validate-1-")
    assert made.causes == [cause]
    pilot = routed.router("pilot", tmp_path / "pilot.db")
    routed.verify("t2", to="minimax", title="Tests")
    routed.route(pilot)
    routed.route(router)
    assert len(routed.made()) == 2


def test_agent_who_forges_the_key_of_a_step_does_not_take_its_place(routed: Routed) -> None:
    router = routed.router()
    cause = routed.verify("t1", to="minimax", title="Tests")
    forged = HandoffCreated(title="Nothing to do", to="bob", reviewer="rita")
    routed.ledger.emit("alice", "handoff/t1-validate-1", forged, idem=f"validate:1:{cause}", causes=[cause])
    routed.route(router)
    (made,) = routed.made()
    assert (made.author, content(made).to) == ("router", "claude")


def test_work_that_was_sent_back_is_handed_on_again_when_it_is_completed_again(routed: Routed) -> None:
    routed.write(b'[[chain]]\nname = "c"\nwhen = "handoff.completed"\nthen = {to = "claude", title = "Look at {id}"}\n')
    router = routed.router()
    routed.ledger.finish("t1")
    routed.route(router)
    routed.ledger.send_back("rita", "t1", "more")
    routed.ledger.clock.advance(1)
    routed.ledger.emit("bob", "handoff/t1", HandoffCompleted())
    routed.route(router)
    assert len({one.name for one in routed.made()}) == len(routed.made()) == 2


def test_handoff_is_what_it_was_at_the_event_not_what_it_is_now(routed: Routed) -> None:
    routed.write(
        b'[[chain]]\nname = "c"\nwhen = "handoff.created"\nwhere = {chain = ""}\n'
        b'then = {to = "claude", title = "Prepare {title}"}\n'
    )
    router = routed.router()
    routed.ledger.hand_over("t1", title="First")
    routed.ledger.emit("alice", "handoff/t1", HandoffAmended(title="Second", to="bob", reviewer="rita"))
    routed.route(router)
    (made,) = routed.made()
    assert content(made).title == "Prepare First"


def test_amended_title_is_what_later_events_are_matched_by(routed: Routed) -> None:
    router = routed.router()
    routed.ledger.hand_over("t1", to="minimax", title="First")
    amended = HandoffAmended(title="Tests after all", to="minimax", reviewer="rita")
    routed.ledger.emit("alice", "handoff/t1", amended)
    state = routed.ledger.handoff("t1")
    routed.ledger.emit("rita", "handoff/t1", HandoffApproved(version=state.version))
    routed.ledger.claim("t1", by="minimax")
    routed.ledger.emit("minimax", "handoff/t1", HandoffCompleted(summary="All of it", artifacts=["a.py"]))
    routed.ledger.verify("rita", "t1")
    routed.route(router)
    (made,) = routed.made()
    assert content(made).title == "Validate: Tests after all"
    assert "All of it" in content(made).task
    assert content(made).tasks[0] == "Read a.py"


def approve_newest(routed: Routed) -> None:
    name = routed.events("handoff.created")[-1].name
    routed.ledger.emit("rita", f"handoff/{name}", HandoffApproved(version=routed.ledger.handoff(name).version))


def test_loop_is_stopped_and_said(routed: Routed) -> None:
    routed.write(LOOP)
    router = routed.router()
    routed.ledger.hand_over("start")
    for _ in range(5):
        approve_newest(routed)
        routed.route(router)
        if routed.letters():
            break
    assert [one.name for one in routed.made()] == [
        "start-again-1",
        "start-again-1-again-1",
        "start-again-1-again-1-again-1",
    ]
    (reason,) = routed.letters()
    assert "hop 4 exceeds the limit of 3" in reason


def test_loop_goes_no_further_under_another_name(routed: Routed) -> None:
    routed.write(LOOP)
    router = routed.router()
    routed.ledger.hand_over("start")
    for number in range(6):
        routed.write(LOOP.replace(b"again", f"again{number}".encode()))
        if len(routed.made()) == number:
            approve_newest(routed)
        router.run(threading.Event(), until=routed.size)
    assert len(routed.made()) == 3


def test_what_a_chain_made_sets_off_no_other_by_itself(routed: Routed) -> None:
    routed.write(LOOP.replace(b"handoff.approved", b"handoff.created"))
    router = routed.router()
    routed.ledger.hand_over("start")
    for _ in range(3):
        routed.route(router)
    assert [one.name for one in routed.made()] == ["start-again-1"]
    assert routed.letters() == []


def test_lineage_that_an_agent_writes_is_not_believed(routed: Routed) -> None:
    router = routed.router()
    data = HandoffCreated(title="Tests", to="minimax", reviewer="rita")
    routed.ledger.emit("alice", "handoff/t1", data, corr="chain:validate:" + "0" * 16 + ":64")
    routed.work("t1")
    routed.route(router)
    assert [one.name for one in routed.made() if one.author == "router"] == ["t1-validate-1"]


def test_ledger_that_is_away_is_waited_for(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    router = routed.router()

    def fail(*_: object) -> None:
        raise Unavailable("STORE_FULL", "the disk is full")

    routed.verify("t1", to="minimax", title="Tests")
    with monkeypatch.context() as patch:
        patch.setattr(router._author, "emit", fail)
        for _ in range(7):
            with pytest.raises(Unavailable):
                routed.route(router)
    routed.route(router)
    assert (len(routed.made()), routed.letters()) == (1, [])


def test_record_that_stands_for_no_handoff_is_passed_over(routed: Routed) -> None:
    router = routed.router()
    ref = routed.ledger.put_blob("alice", b"a note")
    record = RecordImported(original=ref, source="notes.md", format="text")
    routed.ledger.submit(routed.ledger.sign("alice", Draft(stream="record/r1", data=record)))
    routed.route(router)
    assert (routed.made(), routed.letters()) == ([], [])


def test_running_router_stops_when_it_is_told(routed: Routed) -> None:
    router = routed.router()
    stop = threading.Event()
    thread = threading.Thread(target=router.run, args=(stop,))
    thread.start()
    routed.verify("t1", to="minimax", title="Tests")
    wait_until(routed.made, "the handoff is made")
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert len(routed.made()) == 1
