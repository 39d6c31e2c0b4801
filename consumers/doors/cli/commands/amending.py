"""`baton handoff amend` and `supersede`: the sender changes what is handed over, or puts another in its place."""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.app import App, read_text
from consumers.doors.cli.commands.handoffs import emit, find
from consumers.doors.cli.program import Command
from consumers.handoffs.acts import amendment_of
from consumers.handoffs.files.content import content_from
from consumers.sdk.names import split_ids
from ledger.events import handoff as kinds


@click.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--title", help="What it is, in one line.")
@click.option("--to", metavar="NAME", help="Who receives the work.")
@click.option("--reviewer", metavar="NAME", help="Who approves it; `none` for nobody (only a human may).")
@click.option("--task", "tasks", multiple=True, help="All steps of the work, anew; may be given more than once.")
@click.option("--add-task", multiple=True, help="A further step.")
@click.option("--criterion", "criteria", multiple=True, help="All acceptance criteria, anew.")
@click.option("--add-criterion", multiple=True, help="A further acceptance criterion.")
@click.option("--depends-on", multiple=True, metavar="ID", help="All dependencies, anew; `(none)` for none.")
@click.option("--unlock-at", type=click.Choice(["completed", "verified"]), help="When its dependencies let it start.")
@click.option("--body", metavar="TEXT|@FILE", help="What is to be done, in words.")
@click.option("--context", metavar="TEXT|@FILE", help="What the receiver should know.")
@click.option("--proposal", metavar="PATH", help="The proposal it belongs to.")
@click.option("--answers", metavar="ID", help="The handoff that this one is the return of.")
@click.option("--reasoning", "reasoning_ref", metavar="REF", help="The reasoning behind it (a whole reference).")
@click.option("--reason", default="", help="Why it changes.")
@click.pass_obj
def amend(app: App, /, id_: str, reason: str, **given: Any) -> None:
    """Change a handoff before work on it begins: it then needs a new approval, and ticks are taken back."""
    shown = find(app, id_)
    changes = changes_of(content_from(shown), given)
    emit(app, shown["id"], amendment_of(shown, changes, reason, app.client()))


@click.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--by", required=True, metavar="ID", help="The handoff that takes its place.")
@click.option("--reason", default="", help="Why.")
@click.pass_obj
def supersede(app: App, id_: str, by: str, reason: str) -> None:
    """Put another handoff in the place of this one; what waits for this one must be amended to wait for the other."""
    data = kinds.HandoffSuperseded(by=find(app, by)["id"], reason=reason)
    emit(app, find(app, id_)["id"], data)


def changes_of(content: kinds.HandoffContent, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that options name, with the values they are to have."""
    changes: dict[str, Any] = {
        name: given[name]
        for name in ("title", "to", "unlock_at", "proposal", "reasoning_ref")
        if given[name] is not None
    }
    if given["answers"] is not None:
        changes["answers"] = given["answers"].removesuffix(".md")
    if given["reviewer"] is not None:
        changes["reviewer"] = None if given["reviewer"] == "none" else given["reviewer"]
    for name, added in (("tasks", "add_task"), ("criteria", "add_criterion")):
        if given[name] or given[added]:
            changes[name] = [*(given[name] or getattr(content, name)), *given[added]]
    if given["depends_on"]:
        changes["depends_on"] = [one for text in given["depends_on"] for one in split_ids(text)]
    if given["body"] is not None:
        changes["task"] = read_text(given["body"], "--body")
    if given["context"] is not None:
        changes["context"] = read_text(given["context"], "--context")
    return changes
