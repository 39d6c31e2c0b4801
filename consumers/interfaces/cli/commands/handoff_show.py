"""`deed handoff show`, `deed next`: all of one handoff, and what waits for an agent."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import click

from deedbook.consumers.handoffs.operations import NOTES, with_commands
from deedbook.consumers.handoffs.receiver import later
from deedbook.consumers.interfaces.cli import output, signed_history
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.handoff_list import rows_max
from deedbook.consumers.interfaces.cli.reasoning_text import print_citations
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.reasoning.citations import Citations
from deedbook.consumers.sdk.quotation import gate_state
from deedbook.consumers.sdk.text import quote_text, sanitize_line, sanitize_text
from deedbook.ledger.client.spool import spools
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.trust.history import root_digits_shown


@click.command(cls=Command, looks_back=True)
@click.argument("id_", metavar="ID")
@click.option("--history", is_flag=True, help="List every event with its signer, key and validity.")
@click.option("--version", "is_brief", is_flag=True, help="Print only the version, as `approve --version` takes it.")
@web_option("handoff", "id_")
def show(app: App, id_: str, *, history: bool, is_brief: bool) -> None:
    """Show one handoff: its state and why, tasks, criteria, history."""
    if is_brief:
        version = app.query("handoffs.facts", id=id_)["version"]
        app.show("version", {"version": version}, version)
        return

    found = with_citations(app, app.query("handoffs.show", id=id_))
    found["gate"] = gate_state(app.ledger_home(), app.client())
    if history:
        found["history"] = signed_history.signed_history(app, found)

    def text() -> None:
        print_handoff(found)
        if history:
            signed_history.print_history(found["history"])
        click.echo(f"\n{as_of_line(found['as_of'])}")
        click.echo(f"gate: {found['gate'] or 'not to be seen from here (ask `deed doctor` beside the ledger)'}")

    app.show("handoffs.show", found, text)


def with_citations(app: App, found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of ``handoffs.show`` with the reasonings that stand behind it."""
    if not (found["result_refs"] or found["reasoning_refs"]):  # as most have none, and briefs load much
        return {**found, "result_reasoning": [], "reasoning": []}

    return Citations(app.query_with, asker=app.settings().agent).shown(found)


def as_of_line(as_of: dict[str, Any]) -> str:
    """Return in a sentence what an answer was checked against."""
    line = f"checked: every signature, as of {as_of['size']} entries with tree head {as_of['root'][:root_digits_shown]}"
    if as_of["ends"] is not None:
        line += ", where the ledger's key signed that nothing of it is left out"
    if as_of.get("witnessed") is not None:
        line += f"; {as_of['witnessed']}"
    if not as_of["is_pinned"]:
        line += " (self-asserted: no root is pinned here, see `deed trust --root`)"
    for one in as_of["ignored"]:
        line += f"\n  entry {one['index']} counts for nothing ({one['code']}): {sanitize_text(one['message'])}"
    return line


def print_handoff(found: dict[str, Any]) -> None:
    """Print a handoff in the order of its file."""
    click.secho(quote_text(found["title"]), bold=True)
    click.echo(f"{sanitize_text(found['id'])}  [{found['status']} → {found['to']}]")
    click.echo(quote_text(f"from {found['from']} to {found['to']}, reviewed by {found['reviewer'] or found['from']}"))
    click.echo(f"version {found['version']}")
    click.echo(quote_text(found["why"]["sentence"]))
    if found["depends_on"]:
        others = (f"{one['id']} ({one['status'] or 'missing'})" for one in found["depends_on"])
        click.echo(f"depends on {sanitize_text(', '.join(others))}")
    _print_relations(found)
    _print_notes(found["notes"] | {"later": later(found)})
    if found["task"]:
        click.echo(f"\nTask  {quote_text(found['task'], '  ')}")
    _print_lists(found)
    for of, heading in (("result_reasoning", "Reasoning behind the result"), ("reasoning", "Reasoning")):
        if found.get(of):
            click.echo()
            print_citations(found[of], heading, "")
    if found["context"]:
        click.echo(f"\nContext  {quote_text(found['context'], '  ')}")
    click.echo("\nLog")
    for line in found["log"]:
        # To the minute by its author's clock; of an imported line only the day is known.
        moment = f"{line['day']} {line['at'][11:16]}Z" if line["at"].startswith(line["day"]) else line["day"]
        click.echo(f"  - {moment} [{line['author']}] {quote_text(line['text'])}")


def _print_relations(found: dict[str, Any]) -> None:
    if found["importer"]:
        said = found["claimed_status"] or "no status"
        claim = f", which says {sanitize_text(said)!r}" if found["claimed_status"] is not None else ""
        click.echo(f"imported by {found['importer']} from {sanitize_text(found['source'])}{claim}")
    for word, others in (("answers", [found["answers"]]), ("answered by", [one["id"] for one in found["answered_by"]])):
        if any(others):
            click.echo(f"{word} {sanitize_text(', '.join(others))}")
    if found["superseded_by"]:
        click.echo(f"superseded by {sanitize_text(found['superseded_by'])}")


def _print_notes(notes: dict[str, list[str]]) -> None:
    """Print first what a receiver needs before he opens a file."""
    if any(notes.values()):
        click.secho("\nWhat its sender knows", bold=True)
    headings = {"tested_by": "tested by", "traps": "trap"}
    for kind in (*NOTES, "later"):
        heading = headings.get(kind, kind)
        for text in notes[kind]:
            file, is_kept, ref = text.rpartition(" kept: ")
            # Its sender wrote it: only what is a reference stands in a command of ours.
            is_known = is_kept and kind == "tested_by" and re.match(REF_PATTERN, ref)
            click.echo(
                f"  kept: {quote_text(file)}: `deed blob get {ref}`" if is_known else f"  {heading}: {quote_text(text)}"
            )


_MARK_NOTES: Final = {
    "claimed": "  (ticked in the imported file)",
    "asked": "  (its reviewer is asked to waive it: {})",
    "waived": "  (waived: {})",
}


def _print_lists(found: dict[str, Any]) -> None:
    for heading, rows in (("Tasks", found["tasks"]), ("Acceptance criteria", found["criteria"])):
        if rows:
            click.echo(f"\n{heading}")
        for number, one in enumerate(rows, 1):
            mark = "x" if one.get("done") or one.get("mark") in ("checked", "claimed") else " "
            note = _MARK_NOTES.get(one.get("mark"), "").format(quote_text(one.get("waiver_reason", "")))
            click.echo(f"  {number}. [{mark}] {quote_text(one['text'])}{note}")
            if one.get("evidence"):
                click.echo(quote_text(f"       {one['evidence']}"))


@click.command("next", cls=Command, looks_back=True)
@click.option("--all", "is_all", is_flag=True, help="What waits for everybody, agent by agent.")
@click.option("--limit", type=click.IntRange(1, rows_max), default=50, show_default=True, help="Rows of a page.")
@click.option("--cursor", help="Continue after an earlier page.")
def next_(app: App, *, is_all: bool, limit: int, cursor: str | None) -> None:
    """Show what waits for the acting agent, most urgent first; without --as, for everybody."""
    agent = None if is_all else app.settings().agent
    answer = app.query("handoffs.next", agent=agent, limit=limit, after=cursor)
    answer = with_commands(answer, is_asked=not app.as_json and sys.stdin.isatty() and sys.stdout.isatty())
    if any(item["reasoning_refs"] for item in answer["items"]):
        answer = Citations(app.query_with, 0, agent).waiting(answer)  # their briefs are for `handoff show` to tell
    kept = [(name, *one.counts()) for name, one in spools(app.settings().home) if agent in (None, name)]
    if kept := [one for one in kept if any(one[1:])]:
        answer["spool"] = [dict(zip(("agent", "waiting", "rejected"), one, strict=True)) for one in kept]
        for name, waiting, rejected in kept:
            what = f"of {name} {waiting} operations wait to be recorded, {rejected} were refused: `deed spool list`"
            click.secho(what, fg="yellow", err=True)
    output.show_page(app, "handoffs.next", answer, lambda: print_items(answer["items"], agent))


def print_items(items: list[dict[str, Any]], agent: str | None) -> None:
    """Print each item with its command below it; ``agent`` None: under a heading for each agent."""
    if not items:
        click.echo("nothing waits for " + ("anybody" if agent is None else agent))
    shown: str | None = None
    for item in items:
        if agent is None and item["agent"] != shown:
            shown = item["agent"]
            click.secho(shown, bold=True)
        where = f"[{item['status']} → {item['to'] or '?'}]" if item["kind"] == "handoff" else "[review]"
        since, doubt = output.when(item["since_ms"]), output.compromised_cell(item)
        output.print_lines(
            f"{item['action']:8}  {where} {sanitize_line(item['title'])}  (since {since})",
            f"          {sanitize_line(item['why'])}{'  ' if doubt else ''}{doubt}",
        )
        output.print_command(sanitize_line(item["command"]), " " * 10)
        output.print_lines(*(f"          reasoning {one['said']}" for one in item.get("reasoning", ())))
