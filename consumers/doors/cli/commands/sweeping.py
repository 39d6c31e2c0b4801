"""`baton session sweep`: end what never closed, and make the reports that are missing (SEEDS, 004)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.commands.agents import parse_ttl
from consumers.doors.cli.program import Command
from consumers.doors.cli.report_making import make_report, remedy
from consumers.sdk.text import clean
from consumers.sessions.generator import ReportInputs
from consumers.sessions.sweep import Swept
from consumers.sessions.sweep import sweep as sweep_sessions


@click.command(cls=Command)
@click.option(
    "--older-than", default="24h", show_default=True, metavar="TIME", help="Idle for so long: 30m, 12h, 7d, or 0."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.pass_obj
def sweep(app: App, *, older_than: str, dry_run: bool) -> None:
    """End your sessions in which nothing happened for long, and make the reports that are missing.

    A report is missing after a POSTFLIGHT, and after a CHECK of a session that is over. What cannot be made is listed
    with its reason. The exit code is 0 where something still has to be said by somebody (a session without a finding),
    and that of the first error otherwise. Running it again does nothing more.
    """
    idle = timedelta() if older_than == "0" else parse_ttl(older_than)
    swept = sweep_sessions(
        app.author(),
        app.query_with,
        lambda name: make_report(app, name, ReportInputs()),
        now_ms=time.time_ns() // 1_000_000,
        older_than_ms=idle // timedelta(milliseconds=1),
        is_dry=dry_run,
    )
    app.show("swept", plain(swept, dry_run=dry_run), lambda: print_swept(swept, dry_run=dry_run))
    failed = [one.error for one in swept.unmade if not is_for_a_person(one.error.code)]
    if failed:
        click.get_current_context().exit(failed[0].exit_code)


def is_for_a_person(code: str) -> bool:
    """Return whether only somebody who says more can mend it: the report has nothing to say."""
    return code == "INVALID_FIELD"


def plain(swept: Swept, *, dry_run: bool) -> dict[str, Any]:
    """Return what was done as JSON values."""
    unmade = [
        {"session_id": one.session_id, "what": one.what, "error": one.error.to_dict(), "command": command_for(one)}
        for one in swept.unmade
    ]
    return swept._asdict() | {"unmade": unmade, "dry_run": dry_run}


def command_for(one: Any) -> str | None:
    """Return the command with which somebody makes by hand what could not be made."""
    return remedy(one.session_id, one.error.code) if one.what == "report" else None


def print_swept(swept: Swept, *, dry_run: bool) -> None:
    """Print what was done, a line for each session."""
    would = "would be " if dry_run else ""
    for name in swept.ended:
        click.echo(f"{would}ended     {clean(name)}")
    for made in swept.reported:
        click.echo(f"{would}reported  {clean(made['session_id'])}")
    for one in swept.unmade:
        click.echo(f"not made: {one.what} of {clean(one.session_id)}: {one.error.code}: {clean(one.error.message)}")
        if (command := command_for(one)) is not None:
            click.echo(f"  {command}")
    counted = f"{len(swept.ended)} ended, {len(swept.reported)} reports, {len(swept.unmade)} not made"
    click.echo(f"{counted}{' (dry run: nothing was done)' if dry_run else ''}")
