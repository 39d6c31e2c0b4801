"""`deed log`: lists events of the ledger, or follows them live."""

from __future__ import annotations

from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.ledger.format.forms import is_own

WITHHELD: Final = "[erased in the longer history that this machine knows]"


@click.command("log", cls=ReadingCommand, only_looks=True, looks_back=True, unseals=True)
@click.option("--kind", help="Only this kind.")
@click.option("--stream", help="Only this stream.")
@click.option("--author", help="Only events of this agent.")
@click.option("--agent", help="Only events of this agent, and imported records that claim it as their author.")
@output.period_options("Only events at or after this time")
@click.option("--after", type=click.IntRange(-1), help="Only entries after this index, the oldest first.")
@click.option("--before", type=click.IntRange(0), help="Only entries before this index, the newest first.")
@click.option("--reverse", is_flag=True, help="The oldest first, from the beginning of the log.")
@output.limit_option()
@click.option(
    "--follow", "is_following", is_flag=True, help="Print events in the order of the log, then new events as they come."
)
def log_(app: ReadingApp, /, *, kind: str | None, is_following: bool, after: int | None, **filters: Any) -> None:
    """List the last 50 events, newest first; with --after or --reverse in the order of the log."""
    if kind:
        check_kinds((kind,), app.query_with)
        if is_own(kind):
            load("..sdk.declared:check_declared")(app.query_with, kind)
    before, is_newest = filters.pop("before"), not filters.pop("reverse") and after is None
    if before is not None and not (is_newest and not is_following):
        raise click.UsageError("--before lists older entries: omit --after, --reverse and --follow")
    selection = {"kind": kind, "newest": is_newest, "after": before if is_newest else after}
    if is_following and any(filters[name] is not None for name in ("agent", "since", "until")):
        raise click.UsageError("--follow prints what comes: omit --agent, --since and --until")
    if is_following:
        start = 0 if after is None else after + 1
        if is_newest and (last := app.query("catalog.find", **selection, **filters)["items"]):
            start = last[-1]["event_index"]  # the oldest of them; events that are appended meanwhile come after it
        app.follow((kind,) if kind else (), filters["stream"], filters["author"], start)
        return
    answer = app.query("catalog.find", **selection, **filters)
    withheld = app.withheld()
    rows = [
        (
            event["event_index"],
            output.when(event["accepted_ms"]),
            event["author"],
            event["kind"],
            event["stream"],
            " ".join(filter(None, (_marks(event), WITHHELD if event["event_index"] in withheld else _words(event)))),
        )
        for event in answer["items"]
    ]
    if app.as_json:
        items = app.described(answer["items"])
        items = [item | {"data": {"text": WITHHELD}} if item["index"] in withheld else item for item in items]
        answer |= app.displayed({"items": items})
    header = ("index", "accepted", "author", "kind", "stream", "text")
    output.show_page(
        app, "events", answer, lambda: output.print_table(header, rows), cursor="before" if is_newest else "after"
    )


def _words(event: dict[str, Any]) -> str:
    """Return the text of an event; for a declared kind, a text that is made with its schema."""
    words: str = event["did"] if is_own(event["kind"]) else event["text"] or event["did"]
    return words


def _marks(event: dict[str, Any]) -> str:
    skipped = f"[skipped: {event['skipped']}]" if event["skipped"] is not None else ""
    return " ".join(filter(None, (output.marks_cell(event), skipped)))
