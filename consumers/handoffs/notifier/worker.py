"""The notifier: follows the log, checks who waits for whom, and records new episodes with their notifications.

It signs nothing. A check is one query to the views. The notifier checks at every start, and after it has read events
that can change the answer to the end of the log. It also checks every ``sweep_interval_s``, because no event reports
that a lease expires. Checks leave out work that an agent has claimed and only has to continue. At its first start the
notifier records the present waits as known and notifies nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.handoffs.notifier.delivery import Sender
from deedbook.consumers.handoffs.notifier.episodes import (
    EpisodeKey,
    OpenEpisode,
    WaitRecord,
    episode_id,
    episodes,
    interrupted,
    notification_of,
)
from deedbook.consumers.handoffs.notifier.settings import Channel
from deedbook.consumers.handoffs.notifier.store import NotifierStore
from deedbook.consumers.sdk.quotation import origin_of
from deedbook.ledger.client.client import Ask, Client, every_row, rows_per_page
from deedbook.ledger.events import KINDS as ALL_KINDS
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.home import Home

kinds_kept_max: Final = 10_000
looks_max: Final = 3


def waiting_of(item: dict[str, Any]) -> WaitRecord:
    """Return an item of ``handoffs.next`` as a ``WaitRecord``."""
    same = {name: item[name] for name in ("title", "status", "since_index", "since_ms")}
    # The sender is not ``from``, because in an imported file that is only a claim.
    return WaitRecord(
        key=EpisodeKey(item["kind"], item["id"], item["agent"], item["action"]),
        sender=item["author"],
        receiver=item["to"] or None,
        reasoning_refs=tuple(item["reasoning_refs"]),
        **same,
    )


NAME: Final = "notifier"
KINDS: Final = frozenset(
    name
    for name, kind in ALL_KINDS.items()
    if kind.stream in {"handoff", "review", "question"} or name == "record.imported"
)
poll_wait_s: Final = 0.5
sweep_interval_s: Final = 30.0
pause_max_s: Final = 10.0


def unix_ms() -> int:
    """Return the time in unix milliseconds."""
    return time.time_ns() // 1_000_000


class NotifierWorker:
    """Notifies agents, once for each waiting episode, that something waits for them."""

    def __init__(
        self,
        client: Client,
        answer: Ask,
        store: Path,
        channels: Sequence[Channel],
        *,
        clock_ms: Callable[[], int] = unix_ms,
        sweep_s: float = sweep_interval_s,
        behind: Callable[[Sequence[str]], Sequence[Mapping[str, Any]]] = lambda _: (),
    ) -> None:
        """Follow ``client``, ask ``answer``, use ``store``, send to ``channels``; ``behind`` cites reasonings."""
        self._client = client
        self._answer = answer
        # An entry never changes, so its kind is read once.
        self._kind_of = lru_cache(kinds_kept_max)(lambda index: read_event(index, client.entry(index)).kind)
        self._path = store
        self._channels = tuple(channels)
        self._home = Home(store.parent)  # the folder of the store, and of the keys that say how strict the gate is
        self._clock_ms = clock_ms
        self._sweep_s = sweep_s
        self._behind = behind

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Notify until ``stop`` is set; or until all entries before ``until`` were read and all due deliveries tried.

        Raises Unavailable: ledger or store cannot be used; ``STORE_IN_USE`` when another notifier has the store.
        """
        with closing(NotifierStore(self._path)) as store, store.held(NAME):
            store.bury_strangers([channel.name for channel in self._channels])
            senders = [Sender(channel, self._path, self._clock_ms) for channel in self._channels]
            if until is not None:
                self._follow(store, stop, until, [])
                for sender in senders:
                    sender.send_due(store, stop)
                return
            ended = threading.Event()
            with ThreadPoolExecutor(max(1, len(senders)), thread_name_prefix="deedbook-notify") as pool:
                sending = [pool.submit(sender.run, ended) for sender in senders]
                try:
                    self._follow(store, stop, None, sending)
                finally:
                    ended.set()
            for future in sending:
                future.result()

    def _follow(
        self, store: NotifierStore, stop: threading.Event, until: int | None, sending: list[Future[None]]
    ) -> None:
        """Read the log and check, until ``stop`` is set or a sender failed."""
        position = store.position(NAME)
        if position is None:  # the present waits are recorded, and nobody is notified
            position, waiting = self._look()
            with store.transaction():
                self._open(store, waiting, position, is_notified=False)
                store.move(NAME, position)
        looked_s = ready_s = 0.0
        must_look = True
        while not stop.is_set() and not any(future.done() for future in sending):
            page = self._client.entries(position, kinds=KINDS, wait_s=0.0 if must_look else poll_wait_s)
            events = [read_event(index, data) for index, data in page.entries]
            must_look = must_look or bool(events) or time.monotonic() - looked_s >= self._sweep_s
            if must_look and page.next_index >= page.size:
                stop.wait(max(0.0, ready_s - time.monotonic()))
                began_s = time.monotonic()
                seen_size, waiting = self._look()
                self._record(store, events, page.next_index, waiting, seen_size)
                must_look, looked_s = False, time.monotonic()
                # A pause as long as the check took, so that checks never take more than half of the time.
                ready_s = looked_s + min(looked_s - began_s, pause_max_s)
            elif page.next_index != position:
                self._record(store, events, page.next_index, None, 0)
            position = page.next_index
            if until is not None and position >= until and not must_look:
                return

    def _look(self) -> tuple[int, list[WaitRecord]]:
        """Return every wait, and a size of the log: the views' answer includes at least this many entries.

        A wait that changes between the reading of two pages could be on neither of them. Then all pages are read again,
        up to ``looks_max`` times. A wait missed after that is found by the check for its event.
        """
        size = self._client.head().size
        for _ in range(looks_max):
            items = list(every_row(self._answer, "handoffs.next", {}))
            now = self._client.head().size
            if len(items) <= rows_per_page or now == size:
                break
            size = now
        sent_back = "handoff.changes_requested"
        waits = (it for it in items if it["action"] != "continue" or self._kind_of(it["since_index"]) == sent_back)
        return size, [*map(waiting_of, waits)]

    def _record(
        self, store: NotifierStore, events: list[Event], position: int, waiting: list[WaitRecord] | None, seen_size: int
    ) -> None:
        """Commit ended episodes, the result of a check and the position, in one transaction."""
        with store.transaction():
            known = store.open_episodes()
            over = interrupted(known, [(event.index, event.kind, event.name) for event in events])
            store.end(over)  # even if the check failed: the next check must find these waits as new episodes
            if waiting is not None:
                begun, ended = episodes(known.keys() - over, waiting)
                store.end(ended)
                self._open(store, begun, seen_size, is_notified=True)
            store.move(NAME, position)

    def _open(self, store: NotifierStore, begun: list[WaitRecord], seen_size: int, *, is_notified: bool) -> None:
        now_ms = self._clock_ms()
        for waiting in begun:
            identity = episode_id(self._client.ledger, waiting.key, seen_size, now_ms)
            store.begin(waiting, OpenEpisode(identity, max(seen_size, waiting.since_index + 1)), now_ms)
            if not is_notified:
                continue
            origin = origin_of(self._client)
            behind = self._behind(waiting.reasoning_refs)
            notification = notification_of(self._client.ledger, identity, waiting, now_ms, origin, citations=behind)
            for channel in self._channels:
                if channel.takes(waiting.key.agent, waiting.key.action):
                    store.add_delivery(channel.name, notification, now_ms)
