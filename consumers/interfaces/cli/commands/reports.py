"""`deed report`: makes, resumes from, finds and compares the reports of sessions.

An agent first reads the output of `deed report resume`, so it has headings and is never cut.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Group, with_contents
from deedbook.consumers.interfaces.cli.commands import session_report as made
from deedbook.consumers.interfaces.cli.output import (
    imported_by,
    limit_option,
    page_options,
    period_options,
    print_table,
    show_page,
    since_option,
    warn,
)
from deedbook.consumers.interfaces.cli.session_choice import chosen_session
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import counted, sanitize_line, shorten
from deedbook.consumers.sessions.query import mode_of, query_reports
from deedbook.consumers.sessions.resume import resume as resume_sessions
from deedbook.consumers.sessions.resume import whole
from deedbook.consumers.sessions.resumed_text import resumed_text
from deedbook.ledger.errors import Refused

resumed_max: Final = 5
MODES: Final = ("last", "last_n", "session_id")
LEVELS: Final = ("summary", "detailed", "full")

ai_id_option: Final = click.option("--ai-id", metavar="LABEL", help="Only this agent's (default: all agents).")


@click.group(cls=Group, aliases={"make": "generate", "new": "generate", "list": "query", "last": "resume"})
def report() -> None:
    """Make reports of sessions; resume from them, find and compare them."""


@report.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--task-summary", metavar="TEXT|@FILE", help="What was done, in 2 or 3 sentences (default: the task).")
@click.option("--finding", "findings", multiple=True, help="A finding; give 3 to 5 (default: the session's).")
@click.option("--unknown", "unknowns", multiple=True, help="What is still open (default: the session's).")
@click.option("--context", metavar="TEXT|@FILE", help="What the next session should know (default: the session's).")
@click.option("--artifact", "artifacts", multiple=True, help="A file, commit or page that was made.")
@click.option("--keep", is_flag=True, help="Store each artifact that is a local file as a blob.")
def generate(app: App, /, session_id: str | None, **options: Any) -> None:
    """Make the report of a session that the acting agent owns.

    Missing options are filled from the session's records. Each call adds a version; the latest counts.
    """
    options["artifacts"] = with_contents(app, options["artifacts"]) if options.pop("keep") else options["artifacts"]
    report = made.make_report(app, chosen_session(app, session_id), made.inputs_from(options))
    warn(() if app.as_json else report["warnings"])
    app.show("report", report, lambda: made.print_made(report))


@report.command(looks_back=True)
@ai_id_option
@click.option("--resume-mode", type=click.Choice(MODES), help="Which sessions (default: last; with --count, last_n).")
@click.option("--session-id", metavar="ID", help="With --resume-mode session_id: the session to resume.")
@click.option("--count", type=click.IntRange(1, resumed_max), help="How many of the last sessions.")
@click.option(
    "--detail-level",
    type=click.Choice(LEVELS),
    default="summary",
    show_default=True,
    help="At most 400, 800 or 1,250 tokens a session.",
)
def resume(  # noqa: PLR0917 - the options, in the order of the API
    app: App, ai_id: str | None, resume_mode: str | None, session_id: str | None, count: int | None, detail_level: str
) -> None:
    """Print what an agent needs to continue: its own last session or, if it has none, the last of another agent.

    With --count, several sessions are printed. Dead ends come first, then task, findings, open questions, next steps,
    and what was left out.
    """
    mode = mode_of(resume_mode, session_id, count)
    get_blob = app.client().get_blob
    agent = app.settings().agent
    answer = resume_sessions(app.query_with, get_blob, ai_id, mode, session_id, count or 1, detail_level, agent=agent)
    lines = resumed_text(answer).splitlines()

    def text() -> None:
        for line in lines:
            echo(line, bold=line[:1].isalpha())

    app.show("resumed", answer, text)


@report.command(looks_back=True)
@ai_id_option
@click.option("--since", metavar="TIME", help='A date or time (UTC), or as "7 days ago".')
@click.option(
    "--until", metavar="TIME", help='The same up to then: "2025-11-01" and "yesterday" mean the end of the day.'
)
@click.option("--task-pattern", metavar="RE2", help="A pattern in task, outcome or findings, in any case.")
@page_options(default=10)
def query(app: App, **filters: Any) -> None:
    """Find reports by agent, time and a pattern in task, outcome or findings, newest first."""
    page = query_reports(app.query_with, datetime.now(UTC), **filters)
    rows = [
        (
            reported_at(report),
            report["session_id"],
            report["ai_id"],
            f"{report['epistemic_growth']:+.2f}" if report["is_assessed"] else "-",
            len(report["key_findings"]),
            _about(report),
        )
        for report in page["reports"]
    ]
    header = ("reported", "session", "agent", "growth", "findings", "task")
    show_page(app, "reports.list", page, lambda: print_table(header, rows))


@report.command(looks_back=True, unseals=True)
@click.argument("session_id", metavar="SESSION")
@click.option("--version", metavar="ID", help="The id of an earlier version (default: the latest).")
@click.option("--markdown", "form", flag_value="markdown", help="Print the markdown alone.")
@click.option("--compressed", "form", flag_value="compressed", help="Print the compressed JSON alone.")
def show(app: App, session_id: str, version: str | None, form: str | None) -> None:
    """Show the report of a session and its versions. SESSION may also be the id of a report."""
    answer = _find_report(app, session_id.removeprefix("session/"), version)
    if answer["report"]["long_texts"]:
        # A resume refers to this verb for everything that it left out, so nothing may be left out here.
        answer["report"] = whole(answer["report"], app.client().get_blob)

    texts = {"markdown": answer["report"]["markdown"].rstrip("\n"), "compressed": answer["report"]["compressed_json"]}
    app.show("reports.show", answer, texts[form] if form else lambda: _print_report(answer))


@report.command(looks_back=True)
@click.argument("task", metavar="TEXT")
@ai_id_option
@since_option("Only what was written since")
@limit_option(5)
def similar(app: App, **filters: Any) -> None:
    """Find the sessions most similar to a task, also those without a report."""
    _show(app, "search.similar", filters, _print_similar)


@report.command(looks_back=True)
@period_options("Only reports since then")
@limit_option(20)
def overlap(app: App, **filters: Any) -> None:
    """Show pairs of reports about nearly the same work, even if they use different words."""
    _show(app, "reports.overlap", filters, _print_overlaps)


@report.command(looks_back=True)
@ai_id_option
@period_options("Only reports since then")
@limit_option(50, "Points of each agent.")
def calibration(app: App, **filters: Any) -> None:
    """Show how well agents assess themselves, report by report and over time."""
    _show(app, "reports.calibration", filters, _print_calibration)


@report.command(looks_back=True)
@since_option("Only events since then")
def metrics(app: App, **filters: Any) -> None:
    """Show what transfers cost, keep and save in this ledger: tokens, fidelity, coverage, time, questions."""
    _show(app, "reports.metrics", filters, _print_metrics)


def _show(app: App, query: str, filters: dict[str, Any], text: Callable[[dict[str, Any]], None]) -> None:
    answer = app.query(query, **filters)
    app.show(query, answer, lambda: text(answer))


def _find_report(app: App, name: str, version: str | None) -> dict[str, Any]:
    try:
        return app.query("reports.show", id=name, version=version)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise

        advice = "`deed report query` finds those there are"
        if "session_id" in refusal.details:
            advice = f"`deed report generate {quote(name)}` makes one"
        raise Refused(refusal.code, f"{refusal.message}: {advice}", **refusal.details) from refusal


_line_cells_max: Final = 110


def _print_report(answer: dict[str, Any]) -> None:
    report, versions = answer["report"], answer["versions"]
    echo(report["markdown"].rstrip("\n"))
    echo(f"\n-- {report['calibration_status']} by its vectors, {answer['grounds']['text']}")
    position = next(number for number, version in enumerate(versions, 1) if version["report_id"] == report["report_id"])
    echo(f"-- version {position} of {len(versions)}: {report['report_id']} (entry {report['event_index']})")
    for version in versions:
        if version["report_id"] != report["report_id"]:
            echo(f"   also {version['report_id']} {version['timestamp']}")


def _print_similar(answer: dict[str, Any]) -> None:
    rows = [
        (f"{session['score']:.2f}", session["near"], session["session_id"], session["ai_id"], _about(session))
        for session in answer["items"]
    ]
    print_table(("score", "", "session", "agent", "task"), rows)
    if answer["items"] and all(session["near"] == "far" for session in answer["items"]):
        echo("-- these are the nearest, and far: nothing here says much of that task")


def _print_overlaps(answer: dict[str, Any]) -> None:
    if not answer["items"]:
        echo("(none)")
    for overlap in answer["items"]:
        echo(f"{overlap['score']:.2f}  both speak of {sanitize_line(', '.join(overlap['shared']))}", bold=True)
        for session in overlap["sessions"]:
            echo(f"  {session['session_id']}  {session['ai_id']}: {_about(session)}")
    left = f"; {answer['not_compared']} older ones were not compared" if answer["not_compared"] else ""
    echo(f"-- {answer['total']} found, above {answer['threshold']:.2f} of 1{left}")


def reported_at(report: dict[str, Any]) -> str:
    """Return the time of a report; "undated" if it was imported without one: its timestamp is that of the import."""
    has_time = report["imported"] is None or report["imported"]["claimed_at"] is not None
    return report["timestamp"][:19] if has_time else "undated"


def _about(session: dict[str, Any]) -> str:
    """Return task and outcome of a session; without these, the similar passage or the first finding."""
    outcome = f" → {sanitize_line(session['outcome'])}" if session["outcome"] else ""
    about = sanitize_line(session["task"]) + outcome
    if not about:
        passage = session.get("excerpt") or next(iter(session["key_findings"]), "")
        about = f"“{sanitize_line(passage)}”"
    return shorten(about, _line_cells_max) + imported_by(session["imported"])


def _print_calibration(answer: dict[str, Any]) -> None:
    if not answer["items"]:
        echo("(none)")
    for number, agent in enumerate(answer["items"]):
        if number:
            echo()
        echo(agent["ai_id"], bold=True)
        echo(f"  {agent['meaning']}")
        echo(f"  {agent['grounds']['text']}")
        labels = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in agent["counts"].items() if count)
        claimed = f" ({agent['claimed']} imported: their vectors are claims)" if agent["claimed"] else ""
        echo(f"  {counted(agent['total'], 'report')}: {labels}{claimed}")
        rows = [
            (
                f"  {point['timestamp']}",
                point["session_id"],
                _signed(point["dk"]),
                _signed(point["du"]),
                _signed(point["bias"]),
                point["status"],
                imported_by(point["imported"]).strip() or point["grounds"]["text"].removeprefix("grounded on "),
            )
            for point in agent["points"]
        ]
        print_table(("  report", "session", "know grew", "uncertainty fell", "bias", "label", "grounded on"), rows)


def _print_metrics(answer: dict[str, Any]) -> None:
    tokens, time, questions = answer["tokens"], answer["time"], answer["questions"]
    transfers = [(f"brief, {level}", row) for level, row in tokens["briefs"].items()]
    transfers += [("snapshot", tokens["snapshots"]), ("report", tokens["reports"])]
    echo("Tokens of a transfer", bold=True)
    rows = [
        (name, *_cells(row["transferred"]), _mean(row["full"]), _share(row["saved"]), _target("<", row["target"]))
        for name, row in transfers
    ]
    print_table(("", "count", "mean", "median", "max", "whole graph", "saved", "target"), rows)
    if not answer["exact"]:
        echo("(tokens of reports are an estimate: the extra `tokens` counts them exactly)")
    echo("\nFidelity, and coverage of key facts", bold=True)
    rows = []
    for level, row in answer["fidelity"].items():
        coverage = (_mean(row["coverage"], 2), _target(">", row["coverage_target"]))
        rows.append((f"brief, {level}", *_cells(row["fidelity"], 2), _target(">", row["target"]), *coverage))
    print_table(("", "count", "mean", "median", "max", "target", "coverage", "target"), rows)
    echo("\nSeconds by the ledger's clock", bold=True)
    rows = [
        ("end of a session to the next one that resumes it", *_cells(time["pause_s"], 1)),
        ("start of that session to its first record", *_cells(time["until_ready_s"], 1)),
        ("approval of a handoff to its claim", *_cells(time["until_claimed_s"], 1)),
    ]
    print_table(("from", "count", "mean", "median", "max"), rows)
    if time["pause_s"] is None:
        echo("(no session says which one it continues: `deed session start --resumes ID`)")
    echo("\nQuestions that came up", bold=True)
    rows = [
        ("unknowns of a session that resumes another", *_cells(questions["resumed_sessions"], 2)),
        ("unknowns of another session", *_cells(questions["other_sessions"], 2)),
        ("unknowns and reviews of a receiver, from claim to completion", *_cells(questions["completed_handoffs"], 2)),
    ]
    print_table(("in", "count", "mean", "median", "max"), rows)


def _cells(figure: dict[str, Any] | None, digits: int = 0) -> tuple[str, ...]:
    if figure is None:
        return ("0", "-", "-", "-")
    return (str(figure["count"]), *(f"{figure[name]:.{digits}f}" for name in ("mean", "median", "max")))


def _mean(figure: dict[str, Any] | None, digits: int = 0) -> str:
    return "-" if figure is None else f"{figure['mean']:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _target(sign: str, value: float | None) -> str:
    return "-" if value is None else f"{sign} {value:g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"
