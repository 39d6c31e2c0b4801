"""A notifier that a test drives: its notices, the ones still to be sent, and the ones it gave up."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from building import Clock, Ledger
from webhook_receiver import Receiver

from deedbook.consumers.handoffs.notifier.store import NotifierStore
from deedbook.consumers.handoffs.notifier.worker import NotifierWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deedbook.consumers.handoffs.notifier.settings import Channel
    from deedbook.ledger.client.local import LocalClient

    Hook = Callable[..., Channel]


class Notifying:
    """A notifier that reads events and sends notices each time that a test calls it."""

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
        """Return attempts and last errors of the notices to be sent."""
        with self.store() as store:
            return [(one.attempts, one.error) for one in store.listed_deliveries(dead=False)[0]]

    def dead(self) -> list[tuple[int, str]]:
        with self.store() as store:
            return [(one.attempts, one.error) for one in store.listed_deliveries(dead=True)[0]]


def told(receiver: Receiver) -> list[tuple[str, str, str]]:
    """Return agent, action and subject of each notice, in order."""
    data = [one.document["data"] for one in receiver.received]
    return [(one["agent"], one["action"], one["subject"]) for one in data]


def wait_until(is_true: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(3_000):
        if is_true():
            return
        pause.wait(0.02)
    raise AssertionError("never")
