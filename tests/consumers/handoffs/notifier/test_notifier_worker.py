"""The notifier sends one notice for each wait, however many events come, and none for waits before its first start."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger
from notifying import Notifying, told, wait_until
from waits import wait_for
from webhook_receiver import Receiver

from deedbook.consumers.handoffs.notifier.worker import KINDS, NotifierWorker
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffBlocked,
    HandoffCompleted,
    HandoffLogged,
    HandoffReleased,
)
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from notifying import Hook

    from deedbook.ledger.client.local import LocalClient


def test_whole_life_of_a_handoff_tells_each_party_once_a_step(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    data = ledger.hand_over("h1")
    notifying.catch_up()
    ledger.approve("h1", data)
    notifying.catch_up()
    ledger.claim("h1")
    for number in range(20):
        ledger.emit("bob", "handoff/h1", HandoffLogged(text=f"step {number}"))
        notifying.catch_up()
    ledger.emit("bob", "handoff/h1", HandoffCompleted())
    notifying.catch_up()
    ledger.send_back("rita", "h1", "no")
    notifying.catch_up()
    ledger.emit("bob", "handoff/h1", HandoffLogged(text="again"))
    notifying.catch_up()
    ledger.emit("bob", "handoff/h1", HandoffCompleted())
    notifying.catch_up()
    ledger.verify("rita", "h1")
    notifying.catch_up()
    assert told(receiver) == [
        ("rita", "approve", "h1"),
        ("bob", "claim", "h1"),
        ("rita", "verify", "h1"),
        ("bob", "continue", "h1"),
        ("rita", "verify", "h1"),
    ]
    assert len(set(receiver.ids)) == 5
    with notifying.store() as store:
        assert (store.open_episodes(), store.listed_deliveries(dead=False)[1]) == ({}, 0)


def test_what_was_interrupted_while_nobody_looked_is_told_again(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    data = ledger.hand_over("h1")
    ledger.approve("h1", data)
    notifying.catch_up()
    for _ in range(2):
        ledger.claim("h1")
        ledger.emit("bob", "handoff/h1", HandoffReleased(reason="later"))
    for _ in range(2):
        notifying.catch_up()
        assert told(receiver) == [("bob", "claim", "h1")] * 2
    assert len(set(receiver.ids)) == 2


def test_changes_that_were_made_while_nobody_looked_are_to_be_verified_anew(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    ledger.finish("h1")
    notifying.catch_up()
    ledger.send_back("rita", "h1", "no")
    ledger.emit("bob", "handoff/h1", HandoffCompleted())
    notifying.catch_up()
    assert told(receiver) == [("rita", "verify", "h1")] * 2


def test_amended_handoff_that_waits_for_the_same_reviewer_is_told_once(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    ledger.hand_over("h1")
    notifying.catch_up()
    for title in ("a", "b"):
        ledger.emit("alice", "handoff/h1", HandoffAmended(title=title, to="bob", reviewer="rita", reason="clearer"))
        notifying.catch_up()
    assert told(receiver) == [("rita", "approve", "h1")]


def test_amended_handoff_that_was_approved_waits_for_its_approval_again(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    data = ledger.hand_over("h1")
    notifying.catch_up()
    ledger.approve("h1", data)
    amended = HandoffAmended(title="b", to="bob", reviewer="rita", reason="clearer")
    ledger.emit("alice", "handoff/h1", amended)
    notifying.catch_up()
    assert told(receiver) == [("rita", "approve", "h1")] * 2
    ledger.emit("rita", "handoff/h1", HandoffApproved(version=ledger.handoff("h1").version))
    assert compute_version("alice", data) != ledger.handoff("h1").version
    notifying.catch_up()
    assert told(receiver)[2:] == [("bob", "claim", "h1")]


def test_claimed_work_is_nobodys_news_and_a_block_is_the_reviewers(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    data = ledger.hand_over("h1")
    ledger.approve("h1", data)
    ledger.claim("h1")
    notifying.catch_up()
    assert told(receiver) == []
    ledger.emit("bob", "handoff/h1", HandoffBlocked(reason="a secret reason"))
    notifying.catch_up()
    assert ("rita", "unblock", "h1") in told(receiver)
    assert all(agent != "bob" for agent, _, _ in told(receiver))
    assert b"secret reason" not in b"".join(one.body for one in receiver.received)


def test_completed_dependency_makes_the_next_one_ready_and_told(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    data = ledger.hand_over("later", depends_on=["first"])
    ledger.approve("later", data)
    notifying.catch_up()
    # Nobody has created the handoff it depends on. This may be a slip, so its sender gets a notice.
    assert told(receiver) == [("alice", "amend", "later")]
    ledger.finish("first", verify=True)
    notifying.catch_up()
    assert told(receiver)[1:] == [("bob", "claim", "later")]


def test_lease_that_ran_out_is_found_by_a_look_without_any_event(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    # The ledger's clock is in the past, so by the views' clock the lease expired at the moment of the claim.
    data = ledger.hand_over("h1")
    ledger.approve("h1", data)
    notifying.catch_up()
    ledger.claim("h1", lease_seconds=60)
    notifying.catch_up()
    assert told(receiver) == [("bob", "claim", "h1")] * 2


def test_open_review_is_told_to_the_human_until_it_is_answered(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    ledger.emit("alice", "review/r1", ReviewRequested(question="May I?", rule="low-trust"))
    notifying.catch_up()
    notifying.catch_up()
    assert told(receiver) == [("rita", "review", "r1")]
    ledger.emit("rita", "review/r1", ReviewAnswered(verdict="approved"))
    notifying.catch_up()
    with notifying.store() as store:
        assert store.open_episodes() == {}


def test_periodic_look_finds_what_no_event_told(scripted: Notifying, receiver: Receiver, ledger: Ledger) -> None:
    ended = threading.Event()
    worker = NotifierWorker(scripted.client, scripted.answer, scripted.path, scripted.channels, sweep_s=0.0)
    thread = threading.Thread(target=worker.run, args=(ended,))
    thread.start()
    try:
        wait_until(lambda: scripted.answer.asked > 2)
        scripted.answer.items = [wait_for("bob", "claim")]
        wait_until(lambda: receiver.received)
        asked = scripted.answer.asked
        wait_until(lambda: scripted.answer.asked > asked + 2)
    finally:
        ended.set()
        thread.join()
    assert told(receiver) == [("bob", "claim", "h1")]


def test_first_start_tells_nobody_of_what_waits_already(
    ledger: Ledger, local_client: LocalClient, reader: Reader, path: Path, hook: Hook, receiver: Receiver
) -> None:
    ledger.hand_over("old")
    notifying = Notifying(ledger, local_client, reader.answer, path, [hook()])
    notifying.catch_up()
    notifying.catch_up()
    assert receiver.received == []
    ledger.hand_over("new")
    notifying.catch_up()
    assert told(receiver) == [("rita", "approve", "new")]


def test_views_that_cannot_answer_move_nothing(scripted: Notifying, ledger: Ledger, receiver: Receiver) -> None:
    ledger.hand_over("h1")
    answer = scripted.answer

    def unavailable(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable("STORE_FULL", "the views' disk is full")

    scripted.answer = unavailable
    with pytest.raises(Unavailable):
        scripted.catch_up()
    with scripted.store() as store:
        assert store.position("notifier") == ledger.head()[0] - 1
    answer.items = [wait_for("rita", "approve")]
    scripted.answer = answer
    scripted.catch_up()
    assert told(receiver) == [("rita", "approve", "h1")]
    with scripted.store() as store:
        assert store.position("notifier") == ledger.head()[0]


def test_kinds_that_matter_are_followed() -> None:
    assert {"handoff.created", "handoff.completed", "review.requested", "record.imported"} <= KINDS
    assert "finding.logged" not in KINDS
