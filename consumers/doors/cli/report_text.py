"""Reports on a terminal. What `baton report resume` prints is what an agent reads first: headings, and nothing cut off.

The dead ends of the work come first, then six answers (what was the task, what changed, what was learned,
which gaps were filled, what is unknown, what is next), and at the end what was left out and how to get it.
"""

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
BESIDE: Final = {
    "accomplished": "What was done",
    "investigation_tools": "Tools used",
    "artifacts_created": "Artifacts",
}
MORE: Final = {
    "summary": "--detail-level detailed adds tools, artifacts and what was done; full adds assessments and the report",
    "detailed": "--detail-level full adds assessments and the whole report",
}
_line_cells_max: Final = 110


def print_resumed(found: dict[str, Any]) -> None:
    """Print the answer of ``consumers.sessions.resume.resume``."""
    if not found["sessions"]:
        click.echo(clean(found.get("message", "No sessions found")))
        return
    if found["dead_ends"]:
        _heading("Dead ends: do not try these again")
        for one in found["dead_ends"]:
            # Without a name it is the resumed session's own.
            session = f"  [{one['session']}]" if "session" in one else ""
            session += f"  [imported by {one['imported']}]" if "imported" in one else ""
            _item(f"{one['approach']}: {one['why_failed']}{session}")
        if left_out := found.get("dead_ends_left_out"):
            click.echo(f"  ({left_out} more left out)")
        click.echo()
    for number, one in enumerate(found["sessions"]):
        if number:
            click.echo()
        _print_session(one)
    about = "" if found["tokens_exact"] else "about "
    said = f"{found['total_sessions']} session{'s' if found['total_sessions'] != 1 else ''}"
    click.echo(f"\n-- {said}, {about}{found['token_estimate']} tokens as JSON, {found['detail_level']}")
    if more := MORE.get(found["detail_level"]):
        click.echo(f"   {more}")


def _print_session(one: dict[str, Any]) -> None:
    click.secho(f"Session {clean(one['session_id'])}", bold=True)
    facts = [one["ai_id"], one["timestamp"], one["duration"], one["report_type"], one["calibration_status"]]
    click.echo(f"  {', '.join(clean(str(fact)) for fact in facts if fact)}")
    if mark := one.get("imported"):
        click.echo(f"  Imported by {clean(mark['by'])} from {clean(mark['format'])}: it says this of itself.")
    if one.get("no_report"):
        click.echo("  There is no report: this is taken from the session's events.")
    _section("Task", [one["task"]])
    _section("What changed", [_deltas(one["epistemic_deltas"])] if one["epistemic_deltas"] else [])
    for name, title in SIX.items():
        _section(title, [_gap(each) if isinstance(each, dict) else each for each in one[name]])
    if one["next_session_context"]:
        _section("Context", [one["next_session_context"]])
    for name, title in BESIDE.items():
        if one.get(name):
            _section(title, one[name])
    if one.get("assessments"):
        _section("Assessments", [_assessment(each) for each in one["assessments"]])
    if one.get("full_markdown"):
        _heading("Full report")
        click.echo(clean(one["full_markdown"]).rstrip("\n"))
    if one.get("left_out"):
        _section("Left out", left_out_lines(one["left_out"]))


def left_out_lines(left_out: dict[str, Any]) -> list[str]:
    """Return what an answer left out of a session, and the command that shows it."""
    said = []
    for name, value in left_out.items():
        if name == "see":
            continue
        words = name.replace("_", " ")
        if isinstance(value, list):
            said.append(f"{words}: {', '.join(str(each).replace('_', ' ') for each in value)}")
        else:
            said.append(f"{words}: {value}")
    return ["; ".join(said), f"to be had with: {left_out['see']}"]


def print_reports(reports: Sequence[dict[str, Any]]) -> None:
    """Print reports of a query, each with its task and key findings."""
    if not reports:
        click.echo("(none)")
    for number, one in enumerate(reports):
        if number:
            click.echo()
        growth = f"{one['epistemic_growth']:+.2f}" if one["is_assessed"] else "not assessed"
        click.secho(f"{clean(one['session_id'])}", bold=True, nl=False)
        click.echo(f"  {clean(one['ai_id'])}  {one['timestamp']}  growth {growth}{imported_by(one['imported'])}")
        click.echo(f"  {one_line(one['task'])}")
        for finding in one["key_findings"]:
            _item(finding)


def print_report(found: dict[str, Any]) -> None:
    """Print a report with its versions."""
    report, versions = found["report"], found["versions"]
    click.echo(clean(report["markdown"]).rstrip("\n"))
    place = next(number for number, one in enumerate(versions, 1) if one["report_id"] == report["report_id"])
    click.echo(f"\n-- version {place} of {len(versions)}: {report['report_id']} (entry {report['event_index']})")
    for one in versions:
        if one["report_id"] != report["report_id"]:
            click.echo(f"   also {one['report_id']} {one['timestamp']}")


def print_similar(found: dict[str, Any]) -> None:
    """Print sessions similar to a task, and what was compared."""
    rows = [
        (
            f"{one['score']:.2f}",
            one["like"],
            one["session_id"],
            one["ai_id"],
            _beginning(one["task_summary"]) + imported_by(one["imported"]),
        )
        for one in found["reports"]
    ]
    print_table(("score", "by", "session", "agent", "task"), rows)
    _compared(found)


def print_overlaps(found: dict[str, Any]) -> None:
    """Print pairs of reports about nearly the same."""
    if not found["overlaps"]:
        click.echo("(none)")
    for one in found["overlaps"]:
        alike = ", ".join(f"{what} {score:.2f}" for what, score in one["alike"].items())
        click.secho(f"{one['score']:.2f}  {alike}", bold=True)
        for each in one["sessions"]:
            mark = imported_by(each["imported"])
            click.echo(
                f"  {clean(each['session_id'])}  {clean(each['ai_id'])}: {_beginning(each['task_summary'])}{mark}"
            )
        nearest = one["nearest_findings"]
        click.echo(f"  nearest findings ({nearest['score']:.2f}):")
        for finding in nearest["findings"]:
            _item(_beginning(finding))
    _compared(found)


def print_calibration(found: dict[str, Any]) -> None:
    """Print how well each agent judges itself, and report by report."""
    if not found["agents"]:
        click.echo("(none)")
    if found["imported_left_out"]:
        click.echo(f"({found['imported_left_out']} imported reports do not count: another tool measured them)")
    for number, agent in enumerate(found["agents"]):
        if number:
            click.echo()
        click.secho(clean(agent["ai_id"]), bold=True)
        click.echo(f"  {agent['meaning']}")
        counted = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in agent["counts"].items() if count)
        click.echo(f"  {agent['total']} reports: {counted}")
        rows = [
            (one["timestamp"], one["session_id"], _signed(one["dk"]), _signed(one["du"]), _signed(one["bias"]),
             one["status"])
            for one in agent["points"]
        ]  # fmt: skip
        print_table(("  report", "session", "know grew", "uncertainty fell", "bias", "label"), _indented(rows))


def _indented(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(f"  {first}", *rest) for first, *rest in rows]


def _compared(found: dict[str, Any]) -> None:
    embedder = found["embedder"]
    left = f"; {found['not_compared']} older ones were not compared" if found["not_compared"] else ""
    shown = f"{found['total_found']} found, above {found['threshold']:.2f} of 1"
    click.echo(f"-- {shown} by {embedder['name']}, which knows spellings, not meanings{left}")


def _heading(text: str) -> None:
    click.secho(text, bold=True)


def _section(title: str, texts: Sequence[str]) -> None:
    _heading(title)
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


def _deltas(deltas: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:+.2f}" for name, value in deltas.items())


def _assessment(one: dict[str, Any]) -> str:
    vectors = ", ".join(f"{name} {value:.2f}" for name, value in one.get("vectors", {}).items())
    parts = [f"{one['phase']} {one['round']}" if one.get("round") else one["phase"], vectors, one.get("reasoning", "")]
    return ": ".join(part for part in parts if part)


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _beginning(text: str) -> str:
    return shorten(one_line(text), _line_cells_max)
