"""`baton reasoning validate`: check somebody's reasoning against a folder or a commit, and publish what was found.

A reasoning that does not pass ends with exit code 6, its report in the error's details; it is published all the same.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from consumers.doors.cli.program import Command
from consumers.sdk.text import clean
from ledger.errors import Corrupted, Refused

if TYPE_CHECKING:
    from consumers.doors.cli.app import App
    from consumers.reasoning.validator.publishing import Validated

issues_shown_max: Final = 500


@click.command(cls=Command)
@click.argument("ref", metavar="ID|REF")
@click.option("--tree", type=click.Path(path_type=Path, file_okay=False), help="The folder that the evidence is in.")
@click.option("--commit", help="Check what this commit of the folder's repository holds, not the folder as it is now.")
@click.option("--publish/--no-publish", default=None, help="Publish the report (default: if --as names who may).")
@click.pass_obj
def validate(app: App, ref: str, *, tree: Path | None, commit: str | None, publish: bool | None) -> None:
    """Check evidence, assumptions and structure of a reasoning before anybody acts on it."""
    from consumers.reasoning.validator import open_tree, validate_ref  # noqa: PLC0415 - only this verb validates

    if commit is not None and tree is None:
        raise Refused("USAGE", "--commit is of the repository in a folder: name it with --tree DIR")
    with open_tree(tree, commit) if tree is not None else nullcontext() as opened:
        done = validate_ref(app.query_with, ref, tree=opened)
    data = done.report.to_dict() | {"reasoning_id": done.reasoning_id, "published": None}
    if publish or (publish is None and app.settings().agent is not None):
        data |= publish_report(app, done, asked=publish is True)
    conclude(app, done, data)


def publish_report(app: App, done: Validated, *, asked: bool) -> dict[str, Any]:
    """Publish a report; where nobody asked for that, an agent that may not publish it only hears why."""
    from consumers.reasoning.validator import publish  # noqa: PLC0415 - only this verb validates

    try:
        return {"published": publish(app.author(), done)}
    except Refused as refusal:
        if asked or refusal.code != "NOT_AUTHORIZED":
            raise
        return {"not_published": refusal.message}


def conclude(app: App, done: Validated, data: dict[str, Any]) -> None:
    """Print a report; one that does not pass ends with exit code 6.

    Raises:
        Corrupted: ``VERIFICATION_FAILED``, with the report in its details.
    """
    counts = data["counts"]
    said = f"{counts['evidence_ok']} of {counts['evidence']} references stand"
    if not done.report.passed:
        if not app.as_json:
            for issue in done.report.issues[:issues_shown_max]:
                click.echo(clean(f"step {issue.step or '-'}: {issue.code}: {issue.message}"), err=True)
        raise Corrupted("VERIFICATION_FAILED", f"{done.reasoning_id} does not pass: {said}", report=data)

    def text() -> None:
        click.echo(f"{done.reasoning_id} passes: {said}, {counts['inferences_sound']} inferences are sound (structure)")
        for check in done.report.assumptions:
            click.echo(clean(f"assumption, step {check.step}: {check.status}: {check.text} {check.method}".rstrip()))
        if "not_published" in data:
            click.echo(f"not published: {data['not_published']}", err=True)

    app.show("validation", data, text)
