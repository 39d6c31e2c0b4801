"""Prints events as they are accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.sdk.events import EventMarks, describe
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.events.body import Event
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

    ``line`` prints an event as a JSON document; None prints it as a line of text.
    """
    suspects = EventMarks(ask, is_filtered=bool(kinds or stream or author))
    for item in follow(client, start, kinds=kinds, stream=stream):
        if isinstance(item, int) or (author is not None and item.author != author):
            continue
        mark = suspects.mark(item)
        if line is not None:
            line(describe(item) | mark)
        else:
            print_event(item, output.marks_cell(mark))


def print_event(event: Event, mark: str = "") -> None:
    """Print one event on a line."""
    cells = (event.index, output.when(event.accepted_ms), event.author, event.kind, event.stream)
    output.print_lines("  ".join(filter(None, (*map(str, cells), mark, first_words(event.data)))))
