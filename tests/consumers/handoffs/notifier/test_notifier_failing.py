"""A failed delivery is tried again under one id, until it is given up or sent by hand; it blocks no other."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from notifying import Notifying, wait_until
from waits import wait_for
from webhook_receiver import Receiver, Reply

from deedbook.consumers.handoffs.notifier.worker import NotifierWorker
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from notifying import Hook


def test_failed_delivery_is_tried_again_with_its_id_and_a_new_time(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(500), Reply(429, {"Retry-After": "60"}), Reply(200)]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    scripted.catch_up()
    assert len(receiver.received) == 1  # not sent before it is due
    assert scripted.pending() == [(1, "the receiver answered 500")]
    for seconds, count in ((5, 2), (59, 2), (1, 3)):
        scripted.clock.advance(seconds)
        scripted.catch_up()
        assert len(receiver.received) == count
    assert len(set(receiver.ids)) == 1
    assert len({one.body for one in receiver.received}) == 1
    assert len({one.headers["webhook-timestamp"] for one in receiver.received}) == 3
    assert len({one.headers["webhook-signature"] for one in receiver.received}) == 3
    assert scripted.pending() == []


def test_what_a_notifier_was_killed_at_is_tried_again_as_late_as_what_failed(
    scripted: Notifying, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.answer.items = [wait_for("bob", "claim", name) for name in ("h1", "h2")]
    with monkeypatch.context() as patched:
        patched.setattr("deedbook.consumers.handoffs.notifier.delivery.attempt", lambda *_, **__: sys.exit())
        for attempts in ([0, 1], [1, 1]):  # a failed delivery blocks no other
            with pytest.raises(SystemExit):
                scripted.catch_up()
            assert sorted(count for count, _ in scripted.pending()) == attempts
    for seconds, count in ((0, 0), (4, 0), (1, 2)):
        scripted.clock.advance(seconds)
        scripted.catch_up()
        assert len(receiver.received) == count
    assert len(set(receiver.ids)) == 2


def test_attempts_end_in_a_dead_letter_that_can_be_retried(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    scripted.channels = [hook(attempts_max=3)]
    receiver.script = [Reply(500)] * 3
    scripted.answer.items = [wait_for("bob", "claim")]
    for _ in range(6):
        scripted.catch_up()
        scripted.clock.advance(86_400)
    assert len(receiver.received) == 3
    assert (scripted.pending(), scripted.dead()) == ([], [(3, "the receiver answered 500")])
    with scripted.store() as store:
        assert store.retry(receiver.ids[0], scripted.clock()) == 1
    scripted.catch_up()
    assert len(receiver.received) == 4
    assert len(set(receiver.ids)) == 1
    assert (scripted.pending(), scripted.dead()) == ([], [])


def test_refused_delivery_is_a_dead_letter_at_once(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(404)]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    assert (scripted.pending(), scripted.dead()) == ([], [(1, "the receiver answered 404")])


def test_retry_of_what_is_no_dead_letter_is_refused(scripted: Notifying) -> None:
    with scripted.store() as store, pytest.raises(Refused) as refused:
        store.retry("abc", 0)
    assert refused.value.code == "NOT_FOUND"


def test_slow_receiver_holds_up_no_other_channel(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    slow = Receiver()
    slow.script = [Reply(waits=True)]
    scripted.channels = [hook(name="slow", webhook=slow.url, timeout_s=60), hook(name="fast")]
    scripted.answer.items = [wait_for("bob", "claim")]
    ended = threading.Event()
    worker = NotifierWorker(scripted.client, scripted.answer, scripted.path, scripted.channels)
    thread = threading.Thread(target=worker.run, args=(ended,))
    thread.start()
    try:
        wait_until(lambda: receiver.received and slow.received)
    finally:
        ended.set()
        slow.close()
        thread.join()
    assert receiver.ids == slow.ids


def test_number_of_dead_letters_is_limited(scripted: Notifying, monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    monkeypatch.setattr("deedbook.consumers.handoffs.notifier.store.dead_letters_max", 5)
    scripted.channels = [hook(webhook="http://127.0.0.1:1/", attempts_max=1)]
    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(9)]
    scripted.catch_up()
    assert len(scripted.dead()) == 5
