"""Makes reports of sessions on the command line: a single one, or by `deed session sweep` all missing ones."""

from __future__ import annotations

import time
from datetime import timedelta
from shlex import quote
from typing import Any

import click

from deedbook.consumers.interfaces.cli.app import App, Command, read_text
from deedbook.consumers.interfaces.cli.durations import parse_ttl
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import counted
from deedbook.consumers.sessions.copies import with_copies
from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.report import publish_report
from deedbook.consumers.sessions.sweep import SweepFailure, SweepResult
from deedbook.consumers.sessions.sweep import sweep as sweep_sessions
from deedbook.ledger.errors import Exit, Refused


def make_report(app: App, session_id: str, inputs: ReportInputs) -> dict[str, Any]:
    """Publish the report of a session and copy it to its stores; the answer has ``stored`` and ``warnings``."""
    try:
        report = publish_report(app.author(), app.query_with, session_id, inputs)
    except Refused as refusal:
        refusal.message = with_options(refusal.message)
        raise
    return with_copies(app.query_with, app.settings(), report)


def with_options(message: str) -> str:
    """Return the message of a report that cannot be made, with the options of the command line."""
    return message.replace("task_summary", "--task-summary").replace("key_findings", "--finding")


def inputs_from(options: dict[str, Any]) -> ReportInputs:
    """Return the inputs of a report from its options; missing ones are derived from the session."""
    summary, context = options["task_summary"], options["context"]
    findings, unknowns, artifacts = (list(options[of]) or None for of in ("findings", "unknowns", "artifacts"))
    return ReportInputs(
        task_summary=None if summary is None else read_text(summary, "--task-summary"),
        key_findings=findings,
        remaining_unknowns=unknowns,
        artifacts_created=artifacts,
        next_session_context=None if context is None else read_text(context, "--context"),
    )


def remedy(session_id: str, code: str, *, has_findings: bool = False) -> str:
    """Return the command that makes a report which failed with ``code``.

    ``INVALID_FIELD`` means that the session has no task or no finding, so an agent must write them.
    """
    if code == "INVALID_FIELD":
        finding = "" if has_findings else " --finding TEXT"
        return f"deed report generate {quote(session_id)} --task-summary TEXT{finding}"
    return "deed session sweep"


def print_made(report: dict[str, Any]) -> None:
    """Print the id, type, size and entry of a report."""
    about = "" if report["exact"] else "about "
    position = "already recorded" if report["is_repeat"] else f"entry {report['event_index']}"
    tokens = f"{about}{report['token_count']} tokens"
    echo(f"report {report['report_id'][:19]}…  {tokens} ({position})")
    command = f"deed report show {quote(report['session_id'])}"
    written = [copy["location"] for copy in report.get("stored", ()) if copy["status"] == "written"]
    places = ", ".join(written) or report["storage_location"]
    echo(f"  in {places}; read it with: {command}")


@click.command(cls=Command)
@click.option(
    "--older-than",
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Idle for at least this long: 30m, 12h, 7d, or 0.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def sweep(app: App, *, older_than: str, dry_run: bool) -> None:
    """End your idle sessions, and make the reports that are missing.

    A report is missing after a POSTFLIGHT, and after a CHECK of a session that is over. Reports that cannot be made are
    listed with the reason, and the exit code is that of the first error. A session without a task or a finding is
    listed with the command that makes its report, and does not change the exit code. Running sweep again does nothing
    more.
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
    unmade = [it._asdict() | {"error": it.error.to_dict(), "command": _command_for(it)} for it in swept.unmade]
    answer = swept._asdict() | {"unmade": unmade, "dry_run": dry_run}
    # A session without a task or a finding is no error: only its agent can add them.
    failed = [unmade.error for unmade in swept.unmade if unmade.error.code != "INVALID_FIELD"]
    exit_code = failed[0].exit_code if failed else Exit.OK
    app.show("swept", answer, lambda: _print_swept(swept, dry_run=dry_run), exit_code=exit_code)


def _command_for(unmade: SweepFailure) -> str | None:
    return remedy(unmade.session_id, unmade.error.code) if unmade.what == "report" else None


def _print_swept(swept: SweepResult, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    for name in swept.ended:
        echo(f"{would}ended     {name}")
    for report in swept.reported:
        echo(f"{would}reported  {report['session_id']}")
    for unmade in swept.unmade:
        error = f"{unmade.error.code}: {unmade.error.message}"
        echo(f"not made: {unmade.what} of {unmade.session_id}: {error}")
        if (command := _command_for(unmade)) is not None:
            echo(f"  {command}")
    outcome = f"{len(swept.ended)} ended, {counted(len(swept.reported), 'report')}, {len(swept.unmade)} not made"
    echo(f"{outcome}{' (dry run: nothing was done)' if dry_run else ''}")
