"""Follows a log: yields its events in order, without a gap, across a history reset."""

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

# One read waits this long for new entries, so ``follow`` may notice ``stop`` this much later.
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
    """Yield events from index ``start`` on, in order and without a gap, and after them the next index to read (an int).

    With the int a subscriber moves its position past events that did not match. After a history reset the int leads
    back (``past.reset_position``). Waits for new events until ``stop`` is set. ``past`` are the heads that the
    subscriber trusts: each page must continue them. Raises Corrupted: ``HISTORY_CHANGED``.
    """
    position, past = start, HeadHistory() if past is None else past
    while stop is None or not stop.is_set():
        page = client.entries(position, kinds=kinds, stream=stream, wait_s=wait_s, old_size=past.size)
        checked_position = answer_questions(
            past.extend(page.consistency_proof, position), client.consistency, partial(read_reset, client)
        )
        if checked_position != position:
            position = checked_position  # the page is of a new branch: a history reset leads back to its beginning
            yield position
            continue
        for index, data in page.entries:
            yield read_event(index, data)
        if page.next_index != position:
            position = page.next_index
            yield position
