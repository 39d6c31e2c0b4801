"""`deed show`, `why`: show one event, and the evidence that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from deedbook.consumers.auditor.provenance import write_provenance
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.sdk.events import whole_event
from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry, to_dsse


@click.command(cls=Command, only_looks=True, reads_bundle=True, unseals=True)
@click.argument("ref", metavar="INDEX|REF")
@click.option("--dsse", is_flag=True, help="Print the event as a signed DSSE JSON envelope that others can verify.")
@web_option("event", "ref")
def show(app: App, ref: str, *, dsse: bool) -> None:
    """Show one event, by index or reference.

    INDEX is the position of the event in the log. REF is its id (event:…), the SHA-256 of its body (sha256:…), at
    least 12 of the first hex digits of either, or a stream such as handoff/ID (its last event).
    """
    index = app.ledger().index_of(ref)
    raw = app.client().entry(index)
    if app.bundle is None and read_event(index, raw).erased is None:
        if index in app.withheld():
            message = f"the longer history that this machine knows erased entry {index}: its body here is not shown"
            raise Corrupted("ERASED_BODY_SERVED", message, index=index)
        app.client().streams.check_not_erased(index)
    if dsse:
        entry = decode_entry(raw)
        envelope = to_dsse(entry, read_batch_path(app.client(), index, entry))
        app.show("dsse", envelope, lambda: app.line(envelope))
        return

    data = app.displayed(whole_event(index, raw, app.plain))
    app.show("event", data, lambda: output.print_fields(data))


@click.command(cls=Command, looks_back=True)
@click.argument("ref", metavar="INDEX|REF|STREAM")
@click.option("--back", is_flag=True, help="Show only the evidence that it rests on.")
@click.option("--forward", is_flag=True, help="Show only the events that rest on it.")
@click.option(
    "--depth", type=click.IntRange(1, 32), default=8, show_default=True, help="The maximum number of steps to follow."
)
@output.limit_option(100)
@click.option("--after", type=click.IntRange(1), help="Continue after an earlier page; with --back or --forward.")
@click.option("--prov", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write W3C PROV instead.")
@web_option("event", "ref")
def why(
    app: App, ref: str, *, back: bool, forward: bool, depth: int, limit: int, after: int | None, prov: Path | None
) -> None:
    """Show the evidence that an event rests on, and the events that rest on it.

    Follows causes, references to reasoning, dependencies and answers between handoffs, the steps of a handoff,
    reasoning or review, snapshots and blobs. REF is an event, a reasoning, a handoff or other stream (its last event),
    or a blob. To learn why a handoff is not ready, use `deed handoff why ID`.

    --prov writes PROV-JSON, or PROV-N where FILE ends in .provn. An existing FILE is replaced only if it is PROV of
    this ledger.
    """
    direction = "both" if back == forward else "back" if back else "forward"
    arguments = {"id": ref, "direction": direction, "depth": depth}
    if prov is not None:
        humans = {agent["name"] for agent in app.query("agents.list")["agents"] if "human" in agent["roles"]}
        count = write_provenance(prov, _walked(app, arguments), ledger=app.client().ledger, humans=humans)
        app.show("provenance", {"file": str(prov), "events": count}, f"{count} events in {prov!s}")
        return
    answer = app.query("catalog.why", **arguments, limit=limit, after=after)
    answer["unresolved"] = [step | {"blob_bytes": _blob_size(app, step["ref"])} for step in answer["unresolved"]]
    output.show_page(app, "catalog.why", answer, lambda: _print_walk(answer))


def _print_walk(answer: dict[str, Any]) -> None:
    output.print_lines(answer["ref"] if answer["event"] is None else _step_line(answer["event"]))
    for name, heading, flag in (("causes", "rests on", "--back"), ("effects", "led to", "--forward")):
        if answer[name]:
            total = answer[f"{name}_total"]
            more = f", of which these are {len(answer[name])}; {flag} goes on" if total > len(answer[name]) else ""
            echo(f"{heading} ({total}{more}):")
        for step in answer[name]:
            output.print_lines(f"{'  ' * step['depth']}{_step_line(step)}  [{step['via']} of {step['of']}]")
    for step in answer["unresolved"]:
        what = "not in this ledger" if step["blob_bytes"] is None else f"a blob of {step['blob_bytes']} bytes"
        echo(f"{step['ref']}: {what}  [{step['via']} of {step['of']}]")
    if not answer["is_complete"]:
        echo("there is more behind: --depth goes further")


def _step_line(event: dict[str, Any]) -> str:
    line = f"{event['event_index']}  {event['kind']}  {event['stream']}"
    return f"{line}  by  {event['author']}  {output.marks_cell(event)}".rstrip()


def _blob_size(app: App, ref: str) -> int | None:
    try:
        return app.client().stat_blob(ref).size if ref.startswith(("blake3:", "sha256:")) else None
    except Refused:
        return None


def _walked(app: App, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every event of a walk, and the event where it begins."""
    for direction in ("back", "forward"):
        after: int | None = None
        while arguments["direction"] in {direction, "both"}:
            page = app.query(
                "catalog.why", **arguments | {"direction": direction, "after": after, "limit": output.rows_max}
            )
            yield from filter(None, (page["event"], *page["causes"], *page["effects"]))
            if (after := page["next"]) is None:
                break
