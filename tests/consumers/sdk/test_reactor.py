"""An effect happens once, whatever is killed; an event that always fails becomes a dead letter; no event is skipped."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscription_store import SubscriptionStore
from deedbook.consumers.sdk.subscriptions import Subscriptions, open_subscriptions
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.events.body import Event

SESSION = "session/s1"


@pytest.fixture
def subscriptions(store: Path | str) -> Iterator[SubscriptionStore]:
    """A store with a table for effects."""
    opened = open_subscriptions(store)
    opened.run("CREATE TABLE done (event_index INTEGER, finding TEXT)")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _session(ledger: Ledger) -> None:
    ledger.emit("alice", SESSION, SessionStarted())


def find(ledger: Ledger, *texts: str) -> None:
    """Append findings."""
    for text in texts:
        ledger.emit("alice", SESSION, FindingLogged(finding=text))


def done(subscriptions: SubscriptionStore) -> list[str]:
    """Return the findings whose effect happened, in order."""
    order = "rowid" if isinstance(subscriptions, Subscriptions) else "ctid"
    return [finding for (finding,) in subscriptions.run(f"SELECT finding FROM done ORDER BY {order}")]


class Fails:
    """Raises for some findings, as long as a test wants it, and counts the attempts."""

    def __init__(self) -> None:
        self.errors: dict[str, BaseException] = {}
        self.tried: list[str] = []

    def __call__(self, event: Event, db: sqlite3.Connection) -> None:
        finding = event.data.finding
        self.tried.append(finding)
        mark = "?" if isinstance(db, sqlite3.Connection) else "%s"
        db.execute(f"INSERT INTO done VALUES ({mark}, {mark})", (event.index, finding))
        if finding in self.errors:
            raise self.errors[finding]


@pytest.fixture
def effect() -> Fails:
    """The effect under test."""
    return Fails()


@pytest.fixture
def reactor(local_client: LocalClient, subscriptions: SubscriptionStore, effect: Fails) -> Reactor:
    """A subscription to findings, from the start of the log."""
    made = Reactor(local_client, subscriptions, "rows", attempts=3, retry_wait_s=0.001, wait_s=0.05)
    made.on("finding.logged")(effect)
    made.start_at(0)
    return made


def run(reactor: Reactor, ledger: Ledger) -> None:
    """React to all events so far."""
    reactor.run(threading.Event(), until=ledger.head()[0])


# Calls


def test_functions_of_one_kind_are_all_called_in_one_transaction_where_their_condition_holds(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore
) -> None:
    seen: list[str] = []

    @reactor.on("finding.logged", where=lambda event: event.data.finding != "a")
    def second(event: Event, db: sqlite3.Connection) -> None:
        seen.append(event.data.finding)
        assert db.execute("SELECT count(*) FROM done").fetchone() == (2,)  # with the first function's row

    find(ledger, "a", "b")
    run(reactor, ledger)
    assert done(subscriptions) == ["a", "b"]
    assert seen == ["b"]


def test_an_event_costs_two_transactions_also_when_it_is_the_last_of_what_was_read(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(ledger, "a", "b", "c")
    begun, begin = list[None](), subscriptions.transaction
    monkeypatch.setattr(subscriptions, "transaction", lambda: (begun.append(None), begin())[1])
    run(reactor, ledger)
    assert len(begun) == 2 * 3  # the attempt, and its effect with the position
    ledger.emit("alice", "session/s2", SessionStarted())  # no function subscribes to it: only the position moves
    run(reactor, ledger)
    assert (len(begun), subscriptions.position("rows")) == (2 * 3 + 1, ledger.head()[0])
    assert subscriptions.past("rows").size == ledger.head()[0]


def test_a_second_run_of_one_name_is_refused_and_another_name_is_not(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, store: Path | str
) -> None:
    find(ledger, "a")
    again = open_subscriptions(store)
    with subscriptions.held("rows"):
        with pytest.raises(Unavailable, match="already running") as refused:
            run(reactor, ledger)
        assert refused.value.code == "STORE_IN_USE"
        with again.held("other"):
            pass
    run(reactor, ledger)
    assert done(subscriptions) == ["a"]
    again.close()


# Once, in order, without a gap


def test_effects_happen_once_and_in_the_order_of_the_log(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore
) -> None:
    find(ledger, "a", "b")
    run(reactor, ledger)
    ledger.hand_over("h1")
    find(ledger, "c")
    run(reactor, ledger)
    run(reactor, ledger)
    assert done(subscriptions) == ["a", "b", "c"]
    assert subscriptions.position("rows") == ledger.head()[0]


def test_position_moves_past_what_was_not_asked_for(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore
) -> None:
    ledger.hand_over("h1")
    run(reactor, ledger)
    assert subscriptions.position("rows") == ledger.head()[0]


def test_new_subscription_begins_at_the_head_or_where_it_is_told(
    local_client: LocalClient, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "before")
    for name, start in (("head", None), ("start", 0), ("known", 0)):
        made = Reactor(local_client, subscriptions, name, wait_s=0.05)
        made.on("finding.logged")(effect)
        if start is not None:
            made.start_at(start)
        if name == "known":
            made.start_at(ledger.head()[0])  # The subscription is not new any more, so this changes nothing.
        run(made, ledger)
        effect.tried.append("|")
    assert effect.tried == ["|", "before", "|", "before", "|"]


def test_kinds_have_functions_of_their_own(
    local_client: LocalClient, ledger: Ledger, subscriptions: SubscriptionStore
) -> None:
    seen: list[str] = []
    made = Reactor(local_client, subscriptions, "both", wait_s=0.05)
    made.on("finding.logged", "session.started")(lambda event, _: seen.append(event.kind))
    made.on("handoff.created")(lambda event, _: seen.append(event.name))
    made.start_at(0)
    find(ledger, "a")
    ledger.hand_over("h1")
    run(made, ledger)
    assert seen == ["session.started", "finding.logged", "h1"]


def test_event_that_comes_while_it_waits_is_handled(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore
) -> None:
    until = ledger.head()[0] + 1
    running = threading.Thread(target=lambda: reactor.run(threading.Event(), until=until))
    running.start()
    find(ledger, "late")
    running.join(30)
    assert not running.is_alive()
    assert done(subscriptions) == ["late"]


def test_stopping_ends_a_subscriber_that_waits(reactor: Reactor) -> None:
    stop = threading.Event()
    running = threading.Thread(target=lambda: reactor.run(stop))
    running.start()
    stop.set()
    running.join(30)
    assert not running.is_alive()


def test_stopping_ends_a_subscriber_that_waits_to_try_again(
    local_client: LocalClient, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    made = Reactor(local_client, subscriptions, "slow", retry_wait_s=1000)
    made.on("finding.logged")(effect)
    made.start_at(0)
    find(ledger, "bad")
    effect.errors["bad"] = RuntimeError("no")
    stop = threading.Event()
    running = threading.Thread(target=lambda: made.run(stop))
    running.start()
    while not effect.tried:
        running.join(0.01)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    assert subscriptions.position("slow") == 0
    assert subscriptions.dead_letters("slow") == []


# Failures


def test_effect_that_fails_is_tried_again_and_leaves_nothing_of_the_failed_attempts(
    local_client: LocalClient, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    class Once(Exception):
        pass

    reactor = Reactor(local_client, subscriptions, "rows", attempts=3, retry_wait_s=0.001, wait_s=0.05)
    reactor.start_at(0)

    def heal(event: Event, db: sqlite3.Connection) -> None:
        try:
            effect(event, db)
        except Once:
            del effect.errors["bad"]
            raise

    reactor.on("finding.logged")(heal)
    effect.errors["bad"] = Once()
    find(ledger, "bad", "good")
    run(reactor, ledger)
    assert effect.tried == ["bad", "bad", "good"]
    assert done(subscriptions) == ["bad", "good"]
    assert subscriptions.dead_letters("rows") == []


def test_poison_event_becomes_a_dead_letter_and_the_next_is_handled(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "good", "bad", "better")
    effect.errors["bad"] = ValueError("cannot be read")
    run(reactor, ledger)
    assert effect.tried == ["good", "bad", "bad", "bad", "better"]
    assert done(subscriptions) == ["good", "better"]
    (letter,) = subscriptions.dead_letters("rows")
    assert (letter.event_index, letter.error) == (ledger.head()[0] - 2, "ValueError: cannot be read")
    assert letter.event_id == ledger.event(letter.event_index).id
    run(reactor, ledger)
    assert len(effect.tried) == 5


def test_dead_letter_is_retried_and_forgotten_in_one_transaction(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "bad")
    effect.errors["bad"] = ValueError("no")
    run(reactor, ledger)
    (letter,) = subscriptions.dead_letters("rows")
    with pytest.raises(ValueError, match="no"):
        reactor.retry(letter.event_index)
    assert subscriptions.dead_letters("rows") == [letter]
    assert done(subscriptions) == []
    effect.errors.clear()
    reactor.retry(letter.event_index)
    assert subscriptions.dead_letters("rows") == []
    assert done(subscriptions) == ["bad"]
    with pytest.raises(Refused) as refused:
        reactor.retry(letter.event_index)
    assert refused.value.code == "NOT_FOUND"
    assert done(subscriptions) == ["bad"]


def test_dead_letter_of_a_kind_that_is_no_longer_asked_for_stays(
    reactor: Reactor, local_client: LocalClient, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "bad")
    effect.errors["bad"] = ValueError("no")
    run(reactor, ledger)
    with pytest.raises(Refused) as refused:
        Reactor(local_client, subscriptions, "rows").retry(ledger.head()[0] - 1)
    assert refused.value.code == "USAGE"
    assert len(subscriptions.dead_letters("rows")) == 1


def test_outage_never_makes_a_dead_letter(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "bad")
    effect.errors["bad"] = Unavailable("BUS_UNAVAILABLE", "away")
    for _ in range(10):
        with pytest.raises(Unavailable):
            run(reactor, ledger)
    assert subscriptions.dead_letters("rows") == []
    effect.errors.clear()
    run(reactor, ledger)
    assert done(subscriptions) == ["bad"]


def test_attempt_is_counted_before_the_effect(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, store: Path | str
) -> None:
    counts: list[int] = []

    def count(event: Event, _: sqlite3.Connection) -> None:
        other = open_subscriptions(store)
        counts.append(other.run("SELECT count FROM deedbook_attempts")[0][0])
        other.close()
        if len(counts) < 3:
            raise RuntimeError

    reactor.on("finding.logged")(count)
    find(ledger, "a")
    run(reactor, ledger)
    assert counts == [1, 2, 3]


def test_interrupted_effect_is_rolled_back_and_happens_next_time(
    reactor: Reactor, ledger: Ledger, subscriptions: SubscriptionStore, effect: Fails
) -> None:
    find(ledger, "a")
    effect.errors["a"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(reactor, ledger)
    effect.errors.clear()
    run(reactor, ledger)
    assert done(subscriptions) == ["a"]
