"""Reports on a terminal. What `baton report resume` prints, an agent reads first: headings, and nothing cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from consumers.doors.cli.output import imported_by, print_table
from consumers.sdk.text import clean, one_line, shorten

# The six answers stand there even where there is nothing to say; the others only where there is.
SIX: Final = {
    "key_findings": "What was learned",
    "knowledge_gaps_filled": "Gaps filled",
    "remaining_unknowns": "Still unknown",
    "next_steps": "Next steps",
}
BESIDE: Final = {"accomplished": "What was done", "investigation_tools": "Tools used", "artifacts_created": "Artifacts"}
MORE: Final = {
    "summary": "--detail-level detailed adds tools, artifacts and what was done; full adds assessments and the report",
    "detailed": "--detail-level full adds assessments and the whole report",
}
_line_cells_max: Final = 110


def print_resumed(answer: dict[str, Any]) -> None:
    """Print the answer of ``consumers.sessions.resume.resume``."""
    if not answer["sessions"]:
        click.echo(clean(answer.get("message", "No sessions found")))
        return
    if answer["dead_ends"]:
        click.secho("Dead ends: do not try these again", bold=True)
        for dead_end in answer["dead_ends"]:
            # Without a name it is the resumed session's own.
            whose = f"  [{dead_end['session']}]" if "session" in dead_end else ""
            whose += f"  [imported by {dead_end['imported']}]" if "imported" in dead_end else ""
            _item(f"{dead_end['approach']}: {dead_end['why_failed']}{whose}")
        if left_out := answer.get("dead_ends_left_out"):
            click.echo(f"  ({left_out} more left out)")
        click.echo()
    for number, session in enumerate(answer["sessions"]):
        if number:
            click.echo()
        _print_session(session)
    about = "" if answer["tokens_exact"] else "about "
    count = f"{answer['total_sessions']} session{'s' if answer['total_sessions'] != 1 else ''}"
    click.echo(f"\n-- {count}, {about}{answer['token_estimate']} tokens as JSON, {answer['detail_level']}")
    if more := MORE.get(answer["detail_level"]):
        click.echo(f"   {more}")


def _print_session(session: dict[str, Any]) -> None:
    click.secho(f"Session {clean(session['session_id'])}", bold=True)
    names = ("ai_id", "timestamp", "duration", "report_type", "calibration_status")
    facts = [session[name] for name in names]
    click.echo(f"  {', '.join(clean(str(fact)) for fact in facts if fact)}")
    if mark := session.get("imported"):
        click.echo(f"  Imported by {clean(mark['by'])} from {clean(mark['format'])}: it says this of itself.")
    if session.get("no_report"):
        click.echo("  There is no report: this is taken from the session's events.")
    _section("Task", [session["task"]])
    changes = [f"{name.replace('_', ' ')} {value:+.2f}" for name, value in session["epistemic_deltas"].items()]
    _section("What changed", [", ".join(changes)] if changes else [])
    for name, title in SIX.items():
        _section(title, [_gap(value) if isinstance(value, dict) else value for value in session[name]])
    if session["next_session_context"]:
        _section("Context", [session["next_session_context"]])
    for name, title in BESIDE.items():
        if session.get(name):
            _section(title, session[name])
    if session.get("assessments"):
        _section("Assessments", [_assessment(value) for value in session["assessments"]])
    if session.get("full_markdown"):
        click.secho("Full report", bold=True)
        click.echo(clean(session["full_markdown"]).rstrip("\n"))
    if session.get("left_out"):
        _section("Left out", left_out_lines(session["left_out"]))


def left_out_lines(left_out: dict[str, Any]) -> list[str]:
    """Return what an answer left out of a session, and the command that shows it."""
    parts = []
    for name, value in left_out.items():
        if name != "see":
            words = ", ".join(str(part).replace("_", " ") for part in value) if isinstance(value, list) else value
            parts.append(f"{name.replace('_', ' ')}: {words}")
    return ["; ".join(parts), f"to be had with: {left_out['see']}"]


def print_reports(reports: Sequence[dict[str, Any]]) -> None:
    """Print reports of a query, each with its task and key findings."""
    if not reports:
        click.echo("(none)")
    for number, report in enumerate(reports):
        if number:
            click.echo()
        growth = f"{report['epistemic_growth']:+.2f}" if report["is_assessed"] else "not assessed"
        click.secho(f"{clean(report['session_id'])}", bold=True, nl=False)
        click.echo(
            f"  {clean(report['ai_id'])}  {report['timestamp']}  growth {growth}{imported_by(report['imported'])}"
        )
        click.echo(f"  {one_line(report['task'])}")
        for finding in report["key_findings"]:
            _item(finding)


def print_report(answer: dict[str, Any]) -> None:
    """Print a report with its versions."""
    report, versions = answer["report"], answer["versions"]
    click.echo(clean(report["markdown"]).rstrip("\n"))
    place = next(number for number, version in enumerate(versions, 1) if version["report_id"] == report["report_id"])
    click.echo(f"\n-- version {place} of {len(versions)}: {report['report_id']} (entry {report['event_index']})")
    for version in versions:
        if version["report_id"] != report["report_id"]:
            click.echo(f"   also {version['report_id']} {version['timestamp']}")


def print_similar(answer: dict[str, Any]) -> None:
    """Print sessions similar to a task, and what was compared."""
    rows = [
        (f"{report['score']:.2f}", report["like"], report["session_id"], report["ai_id"],
         _beginning(report["task_summary"]) + imported_by(report["imported"]))
        for report in answer["reports"]
    ]  # fmt: skip
    print_table(("score", "by", "session", "agent", "task"), rows)
    _compared(answer)


def print_overlaps(answer: dict[str, Any]) -> None:
    """Print pairs of reports about nearly the same."""
    if not answer["overlaps"]:
        click.echo("(none)")
    for overlap in answer["overlaps"]:
        alike = ", ".join(f"{what} {score:.2f}" for what, score in overlap["alike"].items())
        click.secho(f"{overlap['score']:.2f}  {alike}", bold=True)
        for session in overlap["sessions"]:
            about = _beginning(session["task_summary"]) + imported_by(session["imported"])
            click.echo(f"  {clean(session['session_id'])}  {clean(session['ai_id'])}: {about}")
        nearest = overlap["nearest_findings"]
        click.echo(f"  nearest findings ({nearest['score']:.2f}):")
        for finding in nearest["findings"]:
            _item(_beginning(finding))
    _compared(answer)


def print_calibration(answer: dict[str, Any]) -> None:
    """Print how well each agent judges itself, and report by report."""
    if not answer["agents"]:
        click.echo("(none)")
    if answer["imported_left_out"]:
        click.echo(f"({answer['imported_left_out']} imported reports do not count: another tool measured them)")
    for number, agent in enumerate(answer["agents"]):
        if number:
            click.echo()
        click.secho(clean(agent["ai_id"]), bold=True)
        click.echo(f"  {agent['meaning']}")
        counted = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in agent["counts"].items() if count)
        click.echo(f"  {agent['total']} reports: {counted}")
        rows = [
            (f"  {point['timestamp']}", point["session_id"], _signed(point["dk"]), _signed(point["du"]),
             _signed(point["bias"]), point["status"])
            for point in agent["points"]
        ]  # fmt: skip
        print_table(("  report", "session", "know grew", "uncertainty fell", "bias", "label"), rows)


def _compared(answer: dict[str, Any]) -> None:
    embedder = answer["embedder"]
    left = f"; {answer['not_compared']} older ones were not compared" if answer["not_compared"] else ""
    counted = f"{answer['total_found']} found, above {answer['threshold']:.2f} of 1"
    click.echo(f"-- {counted} by {embedder['name']}, which knows spellings, not meanings{left}")


def _section(title: str, texts: Sequence[str]) -> None:
    click.secho(title, bold=True)
    for text in texts:
        _item(text)
    if not texts:
        click.echo("  (none)")


def _item(text: str) -> None:
    lines = clean(text).strip().splitlines() or [""]
    click.echo(f"  - {lines[0]}")
    for line in lines[1:]:
        click.echo(f"    {line}")


def _gap(gap: dict[str, Any]) -> str:
    change = f" ({gap['confidence_change']:+.2f})" if "confidence_change" in gap else ""
    return f"{gap['gap']}: {gap['before']} → {gap['after']}{change}"


def _assessment(assessment: dict[str, Any]) -> str:
    vectors = ", ".join(f"{name} {value:.2f}" for name, value in assessment.get("vectors", {}).items())
    phase = f"{assessment['phase']} {assessment['round']}" if assessment.get("round") else assessment["phase"]
    return ": ".join(filter(None, (phase, vectors, assessment.get("reasoning"))))


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _beginning(text: str) -> str:
    return shorten(one_line(text), _line_cells_max)
