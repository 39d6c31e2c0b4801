"""`deed report`: makes, resumes from, finds and compares the reports of sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.output import (
    ai_id_option,
    imported_by,
    limit_option,
    page_options,
    period_options,
    print_table,
    show_page,
    since_option,
)
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingGroup
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import Lazy
from deedbook.consumers.sdk.text import counted, sanitize_line, shorten
from deedbook.consumers.sessions.query import query_reports
from deedbook.consumers.sessions.report_texts import whole
from deedbook.ledger.errors import Refused

VERBS: Final = {
    "generate": Lazy("report_generation:generate", "Make the report of a session that the acting agent owns."),
    "resume": Lazy(
        "report_resumption:resume",
        "Print what an agent needs to continue: its own last session or, if it has none, the last of another agent.",
    ),
}
"""Verbs that are imported only when called: one signs, one counts tokens. The others need no keys and no tokenizer."""


@click.group(
    cls=ReadingGroup, lazy=VERBS, aliases={"make": "generate", "new": "generate", "list": "query", "last": "resume"}
)
def report() -> None:
    """Make reports of sessions; resume from them, find and compare them."""


@report.command(looks_back=True)
@ai_id_option
@click.option("--since", metavar="TIME", help='A date or time (UTC), or a text such as "7 days ago".')
@click.option(
    "--until", metavar="TIME", help='The end of the period: "2025-11-01" and "yesterday" mean the end of the day.'
)
@click.option("--task-pattern", metavar="RE2", help="A pattern in task, outcome or findings, in any case.")
@page_options(default=10)
def query(app: ReadingApp, **filters: Any) -> None:
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
def show(app: ReadingApp, session_id: str, version: str | None, form: str | None) -> None:
    """Show the report of a session and its versions. SESSION may also be the id of a report."""
    answer = _find_report(app, session_id.removeprefix("session/"), version)
    if answer["report"]["long_texts"]:
        # A resume refers to this verb for everything that it left out, so nothing may be left out here.
        answer["report"] = whole(answer["report"], app.get_blob)

    texts = {"markdown": answer["report"]["markdown"].rstrip("\n"), "compressed": answer["report"]["compressed_json"]}
    app.show("reports.show", answer, texts[form] if form else lambda: _print_report(answer))


@report.command(looks_back=True)
@click.argument("task", metavar="TEXT")
@ai_id_option
@since_option("Only texts written at or after this time")
@limit_option(5)
def similar(app: ReadingApp, **filters: Any) -> None:
    """Find the sessions most similar to a task, also those without a report."""
    _show(app, "search.similar", filters, _print_similar)


@report.command(looks_back=True)
@period_options("Only reports at or after this time")
@limit_option(20)
def overlap(app: ReadingApp, **filters: Any) -> None:
    """Show pairs of reports about nearly the same work, even if they use different words."""
    _show(app, "reports.overlap", filters, _print_overlaps)


@report.command(looks_back=True)
@ai_id_option
@period_options("Only reports at or after this time")
@limit_option(50, "Points of each agent.")
def calibration(app: ReadingApp, **filters: Any) -> None:
    """Show how well agents assess themselves, report by report and over time."""
    _show(app, "reports.calibration", filters, _print_calibration)


@report.command(looks_back=True)
@since_option("Only events at or after this time")
def metrics(app: ReadingApp, **filters: Any) -> None:
    """Show what transfers cost, keep and save in this ledger: tokens, fidelity, coverage, time, questions."""
    _show(app, "reports.metrics", filters, _print_metrics)


def _show(app: ReadingApp, query: str, filters: dict[str, Any], text: Callable[[dict[str, Any]], None]) -> None:
    answer = app.query(query, **filters)
    app.show(query, answer, lambda: text(answer))


def _find_report(app: ReadingApp, name: str, version: str | None) -> dict[str, Any]:
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
    """Return the time of a report; "undated" if it was imported without one (the timestamp is that of the import)."""
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
                imported_by(point["imported"]).strip() or point["grounds"]["text"].removeprefix("evidence: "),
            )
            for point in agent["points"]
        ]
        print_table(("  report", "session", "know grew", "uncertainty fell", "bias", "label", "evidence"), rows)


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
