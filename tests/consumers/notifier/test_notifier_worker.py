"""Once per waiting episode over many events; nothing lost and one id per episode, whatever fails in between."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from building import Clock, Ledger
from waits import Waits, wait_for
from webhook_receiver import Receiver, Reply

from consumers.notifier import NotifierStore, NotifierWorker
from consumers.notifier.worker import KINDS
from ledger.errors import Refused, Unavailable
from ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffBlocked,
    HandoffChangesRequested,
    HandoffCompleted,
    HandoffLogged,
    HandoffReleased,
    HandoffVerified,
)
from ledger.events.review import ReviewAnswered, ReviewRequested
from ledger.lifecycle.handoff import compute_version
from projections.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from consumers.notifier import Channel
    from ledger.local import LocalClient

    Hook = Callable[..., Channel]


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    with Reader(local_client, ledger.settings()) as made:
        yield made


class Notifying:
    """A notifier that reads and sends what is there, each time it is told to."""

    def __init__(self, ledger: Ledger, client: LocalClient, answer: Any, path: Path, channels: list[Channel]) -> None:
        self.ledger, self.client, self.answer, self.path = ledger, client, answer, path
        self.channels, self.clock = channels, Clock()

    def catch_up(self, **more: Any) -> None:
        self.ledger.clock.advance(1)  # the same event signed at the same moment would be the same event
        worker = NotifierWorker(
            self.client, self.answer, self.path, self.channels, clock_ms=self.clock, **({"sweep_s": 1e9} | more)
        )
        worker.run(threading.Event(), until=self.ledger.head()[0])

    @contextlib.contextmanager
    def store(self) -> Iterator[NotifierStore]:
        store = NotifierStore(self.path)
        try:
            yield store
        finally:
            store.close()

    def pending(self) -> list[tuple[int, str]]:
        """Return attempts and last errors of what is to be sent."""
        with self.store() as store:
            return [(one.attempts, one.error) for one in store.listed_deliveries(dead=False)[0]]

    def dead(self) -> list[tuple[int, str]]:
        with self.store() as store:
            return [(one.attempts, one.error) for one in store.listed_deliveries(dead=True)[0]]


@pytest.fixture
def notifying(ledger: Ledger, local_client: LocalClient, reader: Reader, path: Path, hook: Hook) -> Notifying:
    """A notifier on the real views, started once while nothing waits."""
    made = Notifying(ledger, local_client, reader.answer, path, [hook()])
    made.catch_up()
    return made


@pytest.fixture
def scripted(ledger: Ledger, local_client: LocalClient, path: Path, hook: Hook) -> Notifying:
    """A notifier on views that a test says, started once while nothing waits."""
    made = Notifying(ledger, local_client, Waits(), path, [hook()])
    made.catch_up()
    return made


def told(receiver: Receiver) -> list[tuple[str, str, str]]:
    """Return who was told to do what with which subject, in order."""
    data = [one.document["data"] for one in receiver.received]
    return [(one["agent"], one["action"], one["subject"]) for one in data]


# Once per episode


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
    ledger.emit("rita", "handoff/h1", HandoffChangesRequested(reasons=["no"]))
    notifying.catch_up()
    ledger.emit("bob", "handoff/h1", HandoffLogged(text="again"))
    notifying.catch_up()
    ledger.emit("bob", "handoff/h1", HandoffCompleted())
    notifying.catch_up()
    ledger.emit("rita", "handoff/h1", HandoffVerified())
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
    ledger.emit("rita", "handoff/h1", HandoffChangesRequested(reasons=["no"]))
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
    assert told(receiver) == []
    ledger.finish("first", verify=True)
    notifying.catch_up()
    assert told(receiver) == [("bob", "claim", "later")]


def test_lease_that_ran_out_is_found_by_a_look_without_any_event(
    notifying: Notifying, ledger: Ledger, receiver: Receiver
) -> None:
    # The ledger's clock stands in the past, so by the views' clock the lease ran out as soon as it was taken.
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


def wait_until(is_true: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(3_000):
        if is_true():
            return
        pause.wait(0.02)
    raise AssertionError("never")


# The first start


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


def test_first_start_tells_of_what_waits_already_when_asked_to(
    ledger: Ledger, local_client: LocalClient, reader: Reader, path: Path, hook: Hook, receiver: Receiver
) -> None:
    ledger.hand_over("old")
    notifying = Notifying(ledger, local_client, reader.answer, path, [hook()])
    notifying.catch_up(notify_existing=True)
    notifying.catch_up(notify_existing=True)
    assert told(receiver) == [("rita", "approve", "old")]


# Channels


def test_channel_tells_only_its_agents_of_only_its_actions(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    scripted.channels = [hook(agents=["bob"], actions=["claim"])]
    scripted.answer.items = [wait_for("bob", "claim", "a"), wait_for("bob", "approve", "b"), wait_for("rita", "claim")]
    scripted.catch_up()
    assert told(receiver) == [("bob", "claim", "a")]


def test_two_channels_are_told_with_one_id(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    scripted.channels = [hook(name="one"), hook(name="two")]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1


def test_waits_beyond_one_page_are_all_read(
    scripted: Notifying, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.notifier.waiting.page_rows", 10)
    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(31)]
    scripted.catch_up()
    scripted.catch_up()
    assert sorted(name for _, _, name in told(receiver)) == sorted(f"h{number}" for number in range(31))


def test_channel_that_is_gone_from_the_settings_leaves_dead_letters(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(500)]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    scripted.channels = []
    scripted.catch_up()
    assert scripted.dead() == [(1, "the channel is configured no longer")]


# Failing, retrying, giving up


def test_failed_delivery_is_tried_again_with_its_id_and_a_new_time(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(500), Reply(429, {"Retry-After": "60"}), Reply(200)]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    scripted.catch_up()
    assert len(receiver.received) == 1  # not before its time
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


def test_receiver_that_is_gone_is_sent_nothing_more_until_a_retry(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(410)]
    scripted.answer.items = [wait_for("bob", "claim", "a"), wait_for("bob", "claim", "b")]
    scripted.catch_up()
    scripted.answer.items.append(wait_for("bob", "claim", "c"))
    scripted.catch_up()
    assert len(receiver.received) == 1
    assert [error for _, error in scripted.dead()] == ["the receiver answered 410: it wants no more"] * 3
    with scripted.store() as store:
        assert store.retry(None, scripted.clock()) == 3
    scripted.catch_up()
    assert sorted(name for _, _, name in told(receiver)[1:]) == ["a", "b", "c"]


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


# The store


def test_second_notifier_on_one_store_is_refused(scripted: Notifying) -> None:
    ended = threading.Event()
    worker = NotifierWorker(scripted.client, scripted.answer, scripted.path, [])
    thread = threading.Thread(target=worker.run, args=(ended,))
    asked = scripted.answer.asked
    thread.start()
    try:
        wait_until(lambda: scripted.answer.asked > asked)
        with pytest.raises(Unavailable) as refused:
            scripted.catch_up()
    finally:
        ended.set()
        thread.join()
    assert refused.value.code == "STORE_IN_USE"


def test_store_that_cannot_be_made_is_unavailable(scripted: Notifying, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    scripted.path = tmp_path / "file" / "notifier.db"
    with pytest.raises(Unavailable) as refused:
        scripted.catch_up()
    assert refused.value.code == "STORE_UNAVAILABLE"


def test_file_that_is_no_database_is_unavailable(scripted: Notifying, tmp_path: Path) -> None:
    scripted.path = tmp_path / "other.db"
    scripted.path.write_bytes(b"something else " * 1000)
    with pytest.raises(Unavailable) as refused:
        scripted.catch_up()
    assert refused.value.code == "STORE_UNAVAILABLE"


def test_full_store_records_nothing_by_half(
    scripted: Notifying, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_whole = NotifierStore.__init__

    def open_nearly_full(store: NotifierStore, path: Path) -> None:
        open_whole(store, path)
        (pages,) = store.subscriptions.db.execute("PRAGMA page_count").fetchone()
        store.subscriptions.db.execute(f"PRAGMA max_page_count = {pages + 8}")

    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(60)]
    with monkeypatch.context() as patch:
        patch.setattr(NotifierStore, "__init__", open_nearly_full)
        with pytest.raises(Unavailable) as refused:
            scripted.catch_up()
    assert refused.value.code == "STORE_FULL"
    with scripted.store() as store:
        assert (store.open_episodes(), store.listed_deliveries(dead=False)[1]) == ({}, 0)
    scripted.catch_up()
    assert len(receiver.ids) == len(set(receiver.ids)) == 60


def test_views_that_cannot_answer_move_nothing(scripted: Notifying, ledger: Ledger, receiver: Receiver) -> None:
    ledger.hand_over("h1")
    answer = scripted.answer

    def unavailable(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable("STORE_FULL", "the views' disk is full")

    scripted.answer = unavailable
    with pytest.raises(Unavailable):
        scripted.catch_up()
    with scripted.store() as store:
        assert store.subscriptions.position("notifier") == ledger.head()[0] - 1
    answer.items = [wait_for("rita", "approve")]
    scripted.answer = answer
    scripted.catch_up()
    assert told(receiver) == [("rita", "approve", "h1")]
    with scripted.store() as store:
        assert store.subscriptions.position("notifier") == ledger.head()[0]


def test_number_of_dead_letters_is_limited(scripted: Notifying, monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    monkeypatch.setattr("consumers.notifier.store.dead_letters_max", 5)
    scripted.channels = [hook(webhook="http://127.0.0.1:1/", attempts_max=1)]
    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(9)]
    scripted.catch_up()
    assert len(scripted.dead()) == 5


def test_kinds_that_matter_are_followed() -> None:
    assert {"handoff.created", "handoff.completed", "review.requested", "record.imported"} <= KINDS
    assert "finding.logged" not in KINDS
