"""Following a log: its events in order, without a gap, across a history reset."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from deedbook.ledger.client.client import Client, read_reset
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.trust.history import HeadHistory, answer_questions

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

# How long one read waits for news, and so how long whoever follows may take to see that it should stop.
poll_wait_s: Final = 1.0


def follow(
    client: Client,
    start: int,
    *,
    kinds: Collection[str] = (),
    stream: str | None = None,
    stop: threading.Event | None = None,
    wait_s: float = poll_wait_s,
    past: HeadHistory | None = None,
) -> Iterator[Event | int]:
    """Yield events from ``start`` on for ever, in order, without a gap; and, as an int, each index read up to.

    The int lets a subscriber move its position past events that did not match, or, after a history reset, back to where
    it goes on (``past.reset_position``). StreamHeads when ``stop`` is set. ``past`` is what the follower has trusted
    before (see ``ledger.trust.store``): each page must go on from it. Raises Corrupted: ``HISTORY_CHANGED``.
    """
    position, past = start, HeadHistory() if past is None else past
    while stop is None or not stop.is_set():
        page = client.entries(position, kinds=kinds, stream=stream, wait_s=wait_s, old_size=past.size)
        place = answer_questions(
            past.extend(page.consistency_proof, position), client.consistency, partial(read_reset, client)
        )
        if place != position:
            position = place  # the page was read on another branch: a history reset leads back to where this one begins
            yield position
            continue
        for index, data in page.entries:
            yield read_event(index, data)
        if page.next_index != position:
            position = page.next_index
            yield position
