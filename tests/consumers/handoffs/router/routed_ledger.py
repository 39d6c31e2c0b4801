"""A ledger whose handoffs are routed: the cast of the three-agent chain, and a router over a file of chains."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from building import Ledger
from chain_files import STORY

from deedbook.consumers.handoffs.router.chains_file import ChainsFile
from deedbook.consumers.handoffs.router.worker import RouterWorker
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Author
from deedbook.ledger.events.handoff import HandoffCompleted, HandoffCreated, HandoffCriterionChecked
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.events.body import Event

CAST: Final = ("minimax", "claude", "gemini")
wait_max_s: Final = 60.0


class Routed:
    """A ledger with the cast and its views, and the operations of the router's tests on it."""

    def __init__(self, ledger: Ledger, client: LocalClient, reader: Reader, folder: Path) -> None:
        self.ledger = ledger
        self.client = client
        self.reader = reader
        self.file = folder / "chains.toml"
        self.store = folder / "router.db"
        for name in CAST:
            ledger.register(name)
        self.write(STORY)

    def write(self, content: bytes) -> None:
        """Write the file of chains."""
        self.file.write_bytes(content)

    def router(
        self, name: str = "router", store: Path | None = None, default_reviewer: str | None = "rita"
    ) -> RouterWorker:
        """Return a router for all later events, registered as a service if it is new."""
        if name not in self.ledger.keys:
            self.ledger.register(name, "service")
        key = self.ledger.keys[name]
        author = Author(self.client, name, lambda _: key)
        worker = RouterWorker(author, self.reader.answer, store or self.store, ChainsFile(self.file, default_reviewer))
        self.route(worker)
        return worker

    def route(self, worker: RouterWorker) -> None:
        """Let a router handle all events, and the resulting events, until there are no more."""
        size = -1
        while size != self.size:
            size = self.size
            worker.run(threading.Event(), until=size)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.ledger.head()[0]

    def verify(self, name: str, **fields: Any) -> str:
        """Take a new handoff through to verified; return the id of that event."""
        self.ledger.finish(name, verify=True, **fields)
        return self.ledger.event(-1).id

    def work(self, name: str, **completion: Any) -> None:
        """Let the receiver and the reviewer of a pending handoff take it through to verified."""
        (created,) = [event for event in self.events("handoff.created") if event.name == name]
        self.ledger.approve(name, created.data, sender=created.author)
        self.ledger.claim(name, by=created.data.to)
        for position in range(len(created.data.criteria)):
            self.tick(created.data.to, name, position)
        self.ledger.emit(created.data.to, f"handoff/{name}", HandoffCompleted(**completion))
        self.ledger.verify(created.data.reviewer, name)

    def tick(self, who: str, name: str, position: int) -> None:
        """Check a criterion."""
        self.ledger.emit(who, f"handoff/{name}", HandoffCriterionChecked(position=position))

    def events(self, kind: str) -> list[Event]:
        """Return all events of a kind."""
        found = (self.ledger.event(index) for index in range(self.size))
        return [event for event in found if event.kind == kind]

    def made(self) -> list[Event]:
        """Return the events that routers created."""
        return [event for event in self.events("handoff.created") if (event.corr or "").startswith("chain:")]

    def announced(self) -> list[str]:
        """Return the ids of the handoffs that were announced as ready, in order."""
        return [event.name for event in self.events("handoff.ready")]

    def letters(self) -> list[str]:
        """Return why events were not routed."""
        subscriptions = Subscriptions(self.store)
        try:
            return [letter.error for letter in subscriptions.dead_letters("router")]
        finally:
            subscriptions.close()


def wait_until(what: Callable[[], Any], said: str) -> Any:
    """Return the result of ``what()`` once it is true."""
    deadline = time.monotonic() + wait_max_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {said}")


def content(event: Event) -> HandoffCreated:
    """Return the content of a created handoff."""
    assert isinstance(event.data, HandoffCreated)
    return event.data
