"""Prints events as they are accepted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.events import EventMarks, describe
from deedbook.consumers.sdk.reactor import wait_for_server
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.trust.history import HeadHistory
from deedbook.projections.search.texts import first_words


def follow_events(  # noqa: PLR0917 - the arguments of a list, and the place of its output
    client: Client,
    ask: Ask,
    kinds: tuple[str, ...],
    stream: str | None,
    author: str | None,
    start: int,
    *,
    line: Callable[[Any], None] | None,
) -> None:
    """Print events from an index on as they are accepted, each with the marks of the views (``ask``).

    Waits while the server is gone, and says so on standard error.

    ``line`` prints an event as a JSON document; None prints it as a line of text.
    """
    suspects = EventMarks(ask, is_filtered=bool(kinds or stream or author))
    for item in _across_outages(client, start, kinds, stream):
        if author is not None and item.author != author:
            continue
        mark = suspects.mark(item)
        if line is not None:
            line(describe(item) | mark)
        else:
            print_event(item, output.marks_cell(mark))


def _across_outages(client: Client, start: int, kinds: tuple[str, ...], stream: str | None) -> Iterator[Event]:
    """Yield events from ``start`` on, across outages of the server."""
    position, past = start, HeadHistory()
    while True:
        try:
            for item in follow(client, position, kinds=kinds, stream=stream, past=past):
                position = item if isinstance(item, int) else item.index + 1
                if not isinstance(item, int):
                    yield item
        except Unavailable as error:
            if error.code != "BUS_UNAVAILABLE":
                raise
            tell_outage(error)
        wait_for_server(client, threading.Event(), tell_outage)


def tell_outage(news: Unavailable | int) -> None:
    """Print on standard error that the server is gone, or with the size of its log that it is back."""
    if isinstance(news, Unavailable):
        echo(f"the server is gone, waiting for it: {news.message}", err=True)
    else:
        echo(f"the server is back, with {news} entries", err=True)


def print_event(event: Event, mark: str = "") -> None:
    """Print one event on a line."""
    cells = (event.index, output.when(event.accepted_ms), event.author, event.kind, event.stream)
    output.print_lines("  ".join(filter(None, (*map(str, cells), mark, first_words(event.data)))))
