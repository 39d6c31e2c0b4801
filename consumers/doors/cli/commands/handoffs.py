"""`baton handoff`: hand work over and see where it stands (seed 002)."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from consumers.doors.cli.app import App, read_text
from consumers.doors.cli.commands.events import fields_of
from consumers.doors.cli.program import Group, Lazy
from consumers.handoffs import acts
from consumers.sdk.names import default_id
from consumers.sdk.text import clean
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events import handoff as kinds
from ledger.events.fields import REF_PATTERN, EventData

LAZY: Final = {
    "amend": Lazy("amending:amend", "Change a handoff before work on it begins."),
    "supersede": Lazy("amending:supersede", "Put another handoff in the place of this one."),
    "import": Lazy("handoff_files:import_", "Import handoff files, proposals and active.md tables."),
    "render": Lazy("handoff_files:render", "Print the markdown file of a handoff."),
    "watch": Lazy("handoff_files:watch", "Keep a folder of handoff files in step with the ledger."),
    "graph": Lazy("handoff_graph:graph", "Draw who waits for whom: a tree, Mermaid or DOT."),
    "list": Lazy("handoff_list:list_", "List handoffs, newest first, or show a board."),
    "show": Lazy("handoff_list:show", "Show one handoff: its state and why, tasks, criteria, history."),
}


@click.group(cls=Group, lazy=LAZY, aliases={"new": "create", "close": "complete", "link": "create", "done": "complete"})
def handoff() -> None:
    """Hand work over: create, approve, claim, check, complete, verify."""


@handoff.command()
@click.option("--to", required=True, metavar="NAME", help="Who receives the work.")
@click.option("--title", required=True)
@click.option("--id", "id_", help="Its id, and the name of its file (default: day and title).")
@click.option("--reviewer", metavar="NAME", help="Who approves it (default: default_reviewer of config.toml).")
@click.option("--task", "tasks", multiple=True, help="A step of the work; may be given more than once.")
@click.option("--criterion", "criteria", multiple=True, help="An acceptance criterion; may be given more than once.")
@click.option(
    "--depends-on", multiple=True, metavar="ID", help="A handoff that must be done first; ids may be joined by commas."
)
@click.option("--unlock-at", type=click.Choice(["completed", "verified"]), default="completed", show_default=True)
@click.option("--body", metavar="TEXT|@FILE", help="What is to be done, in words.")
@click.option("--context", metavar="TEXT|@FILE", help="What the receiver should know.")
@click.option("--proposal", metavar="PATH", help="The proposal it belongs to.")
@click.option("--answers", metavar="ID", help="The handoff that this one is the return of.")
@click.option("--reasoning", metavar="REF", help="The reasoning behind it (a whole reference).")
@click.pass_obj
def create(app: App, /, to: str, title: str, id_: str | None, reviewer: str | None, **given: Any) -> None:
    """Create a handoff from the acting agent to NAME; it waits for its reviewer's approval."""
    name = id_.removesuffix(".md") if id_ else default_id(title)
    fields = {
        "title": title,
        "proposal": given["proposal"],
        "depends_on": list(given["depends_on"]),
        "unlock_at": given["unlock_at"],
        "task": read_text(given["body"], "--body"),
        "tasks": list(given["tasks"]),
        "criteria": list(given["criteria"]),
        "context": read_text(given["context"], "--context"),
        "answers": given["answers"],
        "reasoning_ref": given["reasoning"],
    }
    emit(app, name, acts.created_by(app.acting(), app.settings(), to=to, reviewer=reviewer, **fields))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def why(app: App, id_: str) -> None:
    """Say in one sentence why a handoff is not ready, or that it is."""
    found = app.query("handoffs.why", id=id_)
    app.show("why", found, lambda: click.echo(clean(found["sentence"])))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--version", help="The version you have read, as `show` prints it (default: the present one).")
@click.option("--comment", default="")
@click.pass_obj
def approve(app: App, id_: str, version: str | None, comment: str) -> None:
    """Let exactly this version be worked on. Signed with the reviewer's identity key."""
    if version is not None and not re.match(REF_PATTERN, version):
        raise Refused("USAGE", "--version takes a whole version, sha256:…, as `baton handoff show ID` prints it")
    found = find(app, id_)
    emit(app, found["id"], kinds.HandoffApproved(version=version or found["version"], comment=comment))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True)
@click.pass_obj
def reject(app: App, id_: str, reason: str) -> None:
    """Refuse a handoff."""
    emit(app, find(app, id_)["id"], kinds.HandoffRejected(reason=reason))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--lease-minutes", type=click.IntRange(1, 60 * 24 * 30), help="Give it up unless completed by then.")
@click.pass_obj
def claim(app: App, id_: str, lease_minutes: int | None) -> None:
    """Start work on a handoff that is approved and whose dependencies are done."""
    lease = None if lease_minutes is None else 60 * lease_minutes
    emit(app, find(app, id_)["id"], kinds.HandoffClaimed(lease_seconds=lease))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--task", "tasks", multiple=True, type=click.IntRange(1), help="The number of a task, from 1.")
@click.option(
    "--criterion", "criteria", multiple=True, type=click.IntRange(1), help="The number of a criterion, from 1."
)
@click.option("--all", "is_all", is_flag=True, help="Every task and criterion that is open.")
@click.option("--undo", is_flag=True, help="Take the tick back.")
@click.pass_obj
def check(app: App, id_: str, tasks: tuple[int, ...], criteria: tuple[int, ...], *, is_all: bool, undo: bool) -> None:
    """Tick tasks and acceptance criteria."""
    found = find(app, id_)
    drafts = acts.ticks_of(found, tasks, criteria, is_all=is_all, undo=undo)
    emit(app, found["id"], *drafts)


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--criterion", type=click.IntRange(1), required=True, help="The number of the criterion, from 1.")
@click.option("--reason", required=True)
@click.pass_obj
def waive(app: App, id_: str, criterion: int, reason: str) -> None:
    """Do without an acceptance criterion, as the reviewer."""
    found = find(app, id_)
    position = acts.position_of(found["criteria"], "criterion", criterion)
    emit(app, found["id"], kinds.HandoffCriterionWaived(position=position, reason=reason))


@handoff.command("log")
@click.argument("id_", metavar="ID")
@click.argument("text")
@click.pass_obj
def log_(app: App, id_: str, text: str) -> None:
    """Add a line to a handoff's log."""
    emit(app, find(app, id_)["id"], kinds.HandoffLogged(text=text))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--reason", default="")
@click.pass_obj
def release(app: App, id_: str, reason: str) -> None:
    """Give the work back."""
    emit(app, find(app, id_)["id"], kinds.HandoffReleased(reason=reason))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True)
@click.pass_obj
def block(app: App, id_: str, reason: str) -> None:
    """Say that the work cannot go on, and why."""
    emit(app, find(app, id_)["id"], kinds.HandoffBlocked(reason=reason))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--comment", default="")
@click.pass_obj
def unblock(app: App, id_: str, comment: str) -> None:
    """Say that what blocked the work is gone."""
    emit(app, find(app, id_)["id"], kinds.HandoffUnblocked(comment=comment))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--summary", default="", help="What was done.")
@click.option("--artifact", "artifacts", multiple=True, help="A file, commit or page that was made.")
@click.option("--reasoning", metavar="REF", help="The reasoning behind it (a whole reference).")
@click.pass_obj
def complete(app: App, id_: str, summary: str, artifacts: tuple[str, ...], reasoning: str | None) -> None:
    """Say that the work is done; every acceptance criterion must be checked or waived."""
    data = kinds.HandoffCompleted(summary=summary, artifacts=list(artifacts), reasoning_ref=reasoning)
    emit(app, find(app, id_)["id"], data)


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--comment", default="")
@click.pass_obj
def verify(app: App, id_: str, comment: str) -> None:
    """Accept the result, as the reviewer."""
    emit(app, find(app, id_)["id"], kinds.HandoffVerified(comment=comment))


@handoff.command("request-changes")
@click.argument("id_", metavar="ID")
@click.option("--reason", "reasons", multiple=True, required=True, help="May be given more than once.")
@click.pass_obj
def request_changes(app: App, id_: str, reasons: tuple[str, ...]) -> None:
    """Send completed work back, as the reviewer."""
    emit(app, find(app, id_)["id"], kinds.HandoffChangesRequested(reasons=list(reasons)))


@handoff.command()
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True)
@click.pass_obj
def cancel(app: App, id_: str, reason: str) -> None:
    """Call the work off."""
    emit(app, find(app, id_)["id"], kinds.HandoffCancelled(reason=reason))


def emit(app: App, name: str, *data: EventData, expect: int | None = None) -> None:
    """Sign and append events of one handoff, the first at version ``expect`` of it, and say where it stands now."""
    stream = f"handoff/{name}"
    first, *others = data
    drafts = [Draft(stream=stream, data=first, expect=expect), *(Draft(stream=stream, data=one) for one in others)]
    accepted = app.author().emit(*drafts)
    found = app.query("handoffs.show", id=name)
    answer = {
        "id": name,
        "status": found["status"],
        "version": found["version"],
        "accepted": [fields_of(one) for one in accepted],
    }
    at = ", ".join(str(one.index) for one in accepted)
    app.show("handoff", answer, lambda: click.echo(f"{name} is {found['status']} (entry {at})"))


def find(app: App, id_: str) -> dict[str, Any]:
    """Return a handoff by its id, with or without .md."""
    return app.query("handoffs.show", id=id_)
