"""Telling what becomes of a task while its agents search: the tree drawn anew, or a line an event (seed 003)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from consumers.doors.cli.output import when
from consumers.doors.cli.tot_text import print_lines
from consumers.sdk.text import one_line
from consumers.thoughts.logs import derived_line, ends
from ledger.client import read_event
from ledger.events import tot as kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from consumers.doors.cli.app import App
    from ledger.events.body import Event

Draw: TypeAlias = "Callable[[dict[str, Any]], Iterator[str]]"

wait_s: Final = 1.0


def progress(app: App) -> Callable[[Event], None] | None:
    """Return what tells people, beside the answer, what the agents say; None for programs and pipes."""
    if app.as_json or not sys.stderr.isatty():
        return None

    def tell(event: Event) -> None:
        for entry in entries_of(event):
            click.echo(f"{event.index}  {_line(entry)}", err=True)

    return tell


def follow_task(app: App, task_id: str, drawn: Draw) -> None:
    """Show a task while it is searched: on a terminal the tree, drawn anew; piped, lines and then the tree."""
    client, position, size, is_over = app.client(), 0, 0, False
    while not (is_over and position >= size):
        page = client.entries(position, stream=f"tot/{task_id}", wait_s=wait_s)
        events = [read_event(index, data) for index, data in page.entries]
        position, size = page.next_index, page.size
        is_over = is_over or any(map(ends, events))
        if events:
            show_progress(app, task_id, events, drawn)
    if not app.as_json and not sys.stdout.isatty():
        print_lines(drawn(app.query("tot.tree", id=task_id)))


def show_progress(app: App, task_id: str, events: list[Event], drawn: Draw) -> None:
    """Print what became of a task by some new events."""
    if not app.as_json and not sys.stdout.isatty():
        for event in events:
            for entry in entries_of(event):
                click.echo(f"{event.index}  {when(event.accepted_ms)}  {_line(entry)}")
        return
    tree = app.query("tot.tree", id=task_id)
    if not app.as_json:
        click.clear()
    app.show("thought_tree", tree, lambda: print_lines(drawn(tree)))


def entries_of(event: Event) -> list[kinds.LogEntry]:
    """Return the lines for people of an event."""
    if isinstance(event.data, kinds.TotLogWritten):
        return list(event.data.entries)
    derived = derived_line(event, None)
    return [] if derived is None else [derived]


def _line(entry: kinds.LogEntry) -> str:
    """Return what an entry says on one line: a thought that holds more cannot look like another agent's."""
    return one_line(entry.msg)
