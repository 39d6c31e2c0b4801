"""The text of a handoff on a terminal, in the order of its file."""

from __future__ import annotations

from typing import Any

import click

from consumers.sdk.text import clean


def print_handoff(found: dict[str, Any]) -> None:
    """Print a handoff in the order of its file."""
    click.secho(clean(found["title"]), bold=True)
    click.echo(f"{clean(found['id'])}  [{found['status']} → {found['to']}]")
    click.echo(f"from {found['from']} to {found['to']}, reviewed by {found['reviewer'] or found['from']}")
    click.echo(f"version {found['version']}")
    click.echo(clean(found["why"]["sentence"]))
    if found["depends_on"]:
        others = (f"{one['id']} ({one['status'] or 'missing'})" for one in found["depends_on"])
        click.echo(f"depends on {clean(', '.join(others))}")
    _print_relations(found)
    _print_text("Task", found["task"])
    _print_lists(found)
    _print_text("Context", found["context"])
    click.echo("\nLog")
    for line in found["log"]:
        click.echo(f"  {clean(line['line'])}")


def _print_text(heading: str, text: str) -> None:
    if text:
        click.echo(f"\n{heading}\n{clean(text)}")


def _print_relations(found: dict[str, Any]) -> None:
    if found["importer"]:
        said = found["claimed_status"] or "no status"
        claim = f", which says {clean(said)!r}" if found["claimed_status"] is not None else ""
        click.echo(f"imported by {found['importer']} from {clean(found['source'])}{claim}")
    for word, others in (("answers", [found["answers"]]), ("answered by", [one["id"] for one in found["answered_by"]])):
        if any(others):
            click.echo(f"{word} {clean(', '.join(others))}")
    if found["superseded_by"]:
        click.echo(f"superseded by {clean(found['superseded_by'])}")


def _print_lists(found: dict[str, Any]) -> None:
    for heading, rows in (("Tasks", found["tasks"]), ("Acceptance criteria", found["criteria"])):
        if rows:
            click.echo(f"\n{heading}")
        for number, one in enumerate(rows, 1):
            mark = "x" if one.get("done") or one.get("mark") in ("checked", "claimed") else " "
            note = f"  (waived: {clean(one['waived_because'])})" if one.get("mark") == "waived" else ""
            note = "  (ticked in the imported file)" if one.get("mark") == "claimed" else note
            click.echo(f"  {number}. [{mark}] {clean(one['text'])}{note}")
