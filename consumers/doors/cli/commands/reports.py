"""`baton report`: what sessions learned, made, taken up again, found and compared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import click

from consumers.doors.cli import report_text
from consumers.doors.cli.app import App
from consumers.doors.cli.output import page_options, show_page
from consumers.doors.cli.program import Group
from consumers.doors.cli.session_choice import chosen_session
from ledger.errors import Refused

rows_max: Final = 500
resumed_max: Final = 5
MODES: Final = ("last", "last_n", "session_id")
LEVELS: Final = ("summary", "detailed", "full")

ai_id_option: Final = click.option("--ai-id", metavar="LABEL", help="Only this agent's (default: all agents).")


@click.group(cls=Group, aliases={"make": "generate", "new": "generate", "list": "query", "last": "resume"})
def report() -> None:
    """Make reports of what sessions learned; resume from them, find them, compare them."""


@report.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--task-summary", metavar="TEXT|@FILE", help="What was done, in 2 or 3 sentences (default: the task).")
@click.option(
    "--finding", "findings", multiple=True, help="What was found out, 3 to 5 times (default: from the session)."
)
@click.option("--unknown", "unknowns", multiple=True, help="What is still open (default: from the session).")
@click.option("--context", metavar="TEXT|@FILE", help="What the next session should know (default: from the session).")
@click.option("--artifact", "artifacts", multiple=True, help="A file, commit or page that was made.")
def generate(app: App, /, session_id: str | None, **given: Any) -> None:
    """Make the report of a session; the acting agent must own it.

    What is not given is taken from what the session recorded. Making it again adds a version, and the latest counts.
    """
    from consumers.doors.cli.commands.session_report import (  # noqa: PLC0415 - who reads reports signs nothing
        inputs_from,
        make_report,
        print_made,
        print_warnings,
    )

    report = make_report(app, chosen_session(app, session_id), inputs_from(given))
    if not app.as_json:
        print_warnings(report)
    app.show("report", report, lambda: print_made(report))


@report.command()
@ai_id_option
@click.option("--resume-mode", type=click.Choice(MODES), help="Which sessions (default: last; with --count, last_n).")
@click.option("--session-id", metavar="ID", help="The session to take up, with --resume-mode session_id.")
@click.option("--count", type=click.IntRange(1, resumed_max), help="How many of the last sessions.")
@click.option("--detail-level", type=click.Choice(LEVELS), default="summary", show_default=True,
              help="At most 400, 800 or 1,250 tokens a session.")  # fmt: skip
def resume(  # noqa: PLR0917 - the options, in the order of the API
    app: App, ai_id: str | None, resume_mode: str | None, session_id: str | None, count: int | None, detail_level: str
) -> None:
    """Print what an agent should know to go on: the last session's report, or several.

    Dead ends come first, then the task, what was learned, what is open, what is next; and what was left out.
    """
    from consumers.sessions.resume import resume as resume_sessions  # noqa: PLC0415 - loads the tokenizer

    mode = mode_of(resume_mode, session_id, count)
    get_blob = app.client().get_blob
    answer = resume_sessions(app.query_with, get_blob, ai_id, mode, session_id, count or 1, detail_level)
    app.show("resumed", answer, lambda: report_text.print_resumed(answer))


@report.command()
@ai_id_option
@click.option("--since", metavar="TIME", help='A date or time (UTC), or as "7 days ago".')
@click.option(
    "--task-pattern", metavar="RE2", help="A pattern that the task matches; upper and lower case are the same."
)
@page_options(default=10)
def query(
    app: App, *, ai_id: str | None, since: str | None, task_pattern: str | None, limit: int, cursor: int | None
) -> None:
    """Find reports, newest first: by agent, time and a pattern of the task."""
    from consumers.sessions.query import query_reports  # noqa: PLC0415 - not for the other verbs

    page = query_reports(app.query_with, datetime.now(UTC), ai_id, since, task_pattern, limit, cursor)
    show_page(app, "reports", page, lambda: report_text.print_reports(page["reports"]))


@report.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--version", metavar="ID", help="The id of an earlier version (default: the latest).")
@click.option("--markdown", "form", flag_value="markdown", help="Print the markdown alone.")
@click.option("--compressed", "form", flag_value="compressed", help="Print the compressed JSON alone.")
def show(app: App, session_id: str, version: str | None, form: str | None) -> None:
    """Show the report of a session, and which versions there are; SESSION may be the id of a report, too."""
    answer = find_report(app, session_id.removeprefix("session/"), version)
    if answer["report"]["long_texts"]:
        from consumers.sessions.resume import whole  # noqa: PLC0415 - few reports have texts in blobs

        # Here a resume sends whoever wants what it left out, so nothing may be left out here.
        answer["report"] = whole(answer["report"], app.client().get_blob)

    def text() -> None:
        if form == "markdown":
            click.echo(answer["report"]["markdown"].rstrip("\n"))
        elif form == "compressed":
            click.echo(answer["report"]["compressed_json"])
        else:
            report_text.print_report(answer)

    app.show("report", answer, text)


@report.command()
@click.argument("task", metavar="TEXT")
@ai_id_option
@click.option("--limit", type=click.IntRange(1, rows_max), default=5, show_default=True)
def similar(app: App, task: str, ai_id: str | None, limit: int) -> None:
    """Find sessions similar to a task in words, most similar first."""
    answer = app.query("reports.similar", task=task, ai_id=ai_id, limit=limit)
    app.show("similar", answer, lambda: report_text.print_similar(answer))


@report.command()
@click.option("--since", metavar="TIME", help='Only reports since then: a date or time (UTC), or as "7 days ago".')
@click.option("--limit", type=click.IntRange(1, rows_max), default=20, show_default=True)
def overlap(app: App, since: str | None, limit: int) -> None:
    """Show where work may have been done twice: pairs of reports about nearly the same."""
    answer = app.query("reports.overlap", since_ms=since_ms(since), limit=limit)
    app.show("overlap", answer, lambda: report_text.print_overlaps(answer))


@report.command()
@ai_id_option
@click.option("--since", metavar="TIME", help='Only reports since then: a date or time (UTC), or as "7 days ago".')
@click.option("--limit", type=click.IntRange(1, rows_max), default=50, show_default=True, help="Points of each agent.")
def calibration(app: App, ai_id: str | None, since: str | None, limit: int) -> None:
    """Show how well agents judge themselves: report by report, and over time."""
    answer = app.query("reports.calibration", ai_id=ai_id, since_ms=since_ms(since), limit=limit)
    app.show("calibration", answer, lambda: report_text.print_calibration(answer))


def find_report(app: App, name: str, version: str | None) -> dict[str, Any]:
    """Return a report with its versions."""
    try:
        return app.query("reports.show", id=name, version=version)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        from shlex import quote  # noqa: PLC0415 - only advice needs it

        advice = "`baton report query` finds those there are"
        if "session_id" in refusal.details:
            advice = f"`baton report generate {quote(name)}` makes one"
        raise Refused(refusal.code, f"{refusal.message}: {advice}", **refusal.details) from refusal


def mode_of(mode: str | None, session_id: str | None, count: int | None) -> str:
    """Return which sessions are meant: the mode given, or that which the other options mean."""
    meant = "session_id" if session_id is not None else "last_n" if (count or 1) > 1 else "last"
    if mode in (None, meant) or (mode, meant) == ("last_n", "last"):
        return mode or meant
    if mode == "session_id":
        raise Refused("USAGE", "--resume-mode session_id needs --session-id ID")
    if session_id is not None:
        raise Refused("USAGE", f"--session-id goes with --resume-mode session_id, not {mode}")
    return "last_n"


def since_ms(text: str | None) -> int | None:
    """Return the Unix milliseconds that a text stands for; None for none."""
    if text is None:
        return None
    from consumers.sessions.query import parse_since  # noqa: PLC0415 - relative times load dateparser

    return parse_since(text, datetime.now(UTC))
