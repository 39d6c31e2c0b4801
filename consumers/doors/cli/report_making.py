"""Making a report from the command line: what its options say, publishing and mirroring it, and what is printed."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from consumers.doors.cli.app import App, read_text
from consumers.sdk.text import clean
from consumers.sessions.copies import with_copies
from consumers.sessions.generator import ReportInputs
from consumers.sessions.report import publish_report


def make_report(app: App, session_id: str, given: ReportInputs) -> dict[str, Any]:
    """Publish the report of a session and mirror it; return the seed's answer with ``stored`` and ``warnings``.

    Raises:
        Refused: ``NOT_FOUND``, ``NOT_AUTHORIZED``, ``INVALID_FIELD`` where there is nothing to say, and what admission
            refuses. Unavailable: the ledger cannot be written.
    """
    made = publish_report(app.author(), app.query_with, session_id, given)
    return with_copies(app.query_with, app.settings(), made)


def inputs_from(given: dict[str, Any]) -> ReportInputs:
    """Return what the options of a report say; what was not given is derived from the session."""
    told, context = given["task_summary"], given["context"]
    return ReportInputs(
        task_summary=None if told is None else read_text(told, "--task-summary"),
        key_findings=list(given["findings"]) or None,
        remaining_unknowns=list(given["unknowns"]) or None,
        next_session_context=None if context is None else read_text(context, "--context"),
        artifacts_created=list(given["artifacts"]) or None,
    )


def remedy(session_id: str, code: str) -> str:
    """Return the command that makes a report which failed with ``code``: where nothing was said, somebody must."""
    if code == "INVALID_FIELD":
        return f"baton report generate {quote(session_id)} --task-summary TEXT --finding TEXT"
    return "baton session sweep"


def print_made(made: dict[str, Any]) -> None:
    """Print what report was made and where it is."""
    about = "" if made["exact"] else "about "
    said = "stands already" if made["is_repeat"] else f"entry {made['event_index']}"
    click.echo(f"report {made['report_id'][:19]}…  {made['report_type']}, {about}{made['token_count']} tokens ({said})")
    command = f"baton report show {quote(made['session_id'])}"
    click.echo(f"  in {clean(made['storage_location'])}; read it with: {clean(command)}")


def print_warnings(made: dict[str, Any]) -> None:
    """Print what the author should know, where it does not mix with the answer."""
    for warning in made["warnings"]:
        click.echo(f"warning: {clean(warning)}", err=True)
