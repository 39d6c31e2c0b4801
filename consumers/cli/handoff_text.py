"""The text of handoffs on a terminal: ids made of titles, lists of ids, and a handoff in the order of its file."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

import click

from consumers.cli.tables import clean
from ledger.errors import Refused


def default_id(title: str) -> str:
    """Return ``YYYY-MM-DD-`` and the title in lower-case words; letters of other scripts stay."""
    plain = unicodedata.normalize("NFKC", title).lower()
    slug = re.sub(r"[^\w]+", "-", plain).strip("-_")[:80].strip("-_")
    if not slug:
        raise Refused("USAGE", "the title has no word to make an id of: give one with --id")
    return f"{datetime.now(UTC):%Y-%m-%d}-{slug}"


def split_ids(text: str) -> list[str]:
    """Return the ids in ``a.md, b``; ``(none)`` is no dependency."""
    found = [one.strip().removesuffix(".md") for one in text.split(",")]
    return [one for one in found if one and one != "(none)"]


def print_handoff(found: dict[str, Any]) -> None:
    """Print a handoff in the order of its file."""
    click.secho(clean(found["title"]), bold=True)
    click.echo(f"{found['id']}  [{found['status']} → {found['to']}]  version {found['version'][7:19]}")
    click.echo(f"from {found['from']} to {found['to']}, reviewed by {found['reviewer'] or found['from']}")
    click.echo(clean(found["why"]["sentence"]))
    if found["depends_on"]:
        click.echo(
            "depends on " + ", ".join(f"{one['id']} ({one['status'] or 'missing'})" for one in found["depends_on"])
        )
    for heading in ("task", "context"):
        if found[heading]:
            click.echo(f"\n{heading.capitalize()}\n{clean(found[heading])}")
    for heading, rows in (("Tasks", found["tasks"]), ("Acceptance criteria", found["criteria"])):
        if rows:
            click.echo(f"\n{heading}")
        for number, one in enumerate(rows, 1):
            mark = "x" if one.get("done") or one.get("mark") == "checked" else " "
            note = f"  (waived: {clean(one['waived_because'])})" if one.get("mark") == "waived" else ""
            click.echo(f"  {number}. [{mark}] {clean(one['text'])}{note}")
    click.echo("\nLog")
    for line in found["log"]:
        click.echo(f"  {clean(line['line'])}")
