"""A session on a terminal: what happened in it, and its vectors as a table from phase to phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from consumers.doors.cli.output import imported_by, print_table, when
from consumers.sdk.text import clean, one_line
from ledger.events.session import Vectors

VECTOR_NAMES: Final = Vectors.__struct_fields__
columns_max: Final = 6
lines_max: Final = 50
_none: Final = "-"


def print_session(found: dict[str, Any]) -> None:
    """Print a session (the answer of ``sessions.show``)."""
    _print_head(found)
    if found["assessments"]:
        _print_vectors(found["assessments"])
    _print_logged(found)


def _print_head(found: dict[str, Any]) -> None:
    click.secho(clean(found["task"]) or "(no task was said)", bold=True)
    who = found["author"] if found["imported"] is None else clean(found["ai_id"])
    until = "" if found["ended_ms"] is None else f" to {when(found['ended_ms'])}"
    click.echo(f"{clean(found['id'])}  [{found['status']}]  by {who}  {when(found['happened_ms'])}{until}")
    if (mark := found["imported"]) is not None:
        click.echo(
            f"  imported by {clean(mark['importer'])} from {clean(mark['source'])} and others: it says this of itself"
        )
    elif found["ai_id"] not in ("", found["author"]):
        click.echo(f"  label: {clean(found['ai_id'])}")
    if found["resumes"]:
        click.echo(f"  goes on from {clean(found['resumes'])}")
    if found["summary"]:
        click.echo(f"  summary: {clean(found['summary'])}")
    click.echo("  " + ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in found["counts"].items()))


def _print_vectors(assessments: Sequence[dict[str, Any]]) -> None:
    _heading("Vectors")
    header, rows, left_out = trajectory(assessments)
    print_table(header, rows)
    if left_out:
        click.echo(f"({left_out} assessments between the first and the last ones are not shown: --json has all)")


def _print_logged(found: dict[str, Any]) -> None:
    def finding(one: dict[str, Any]) -> str:
        return "".join([f"{clean(one['finding'])}{_weight(one)}", *(f"\n      {clean(at)}" for at in one["evidence"])])

    _print_newest("Findings", [finding(one) for one in found["findings"]])
    _print_newest("Unknowns", [f"{clean(one['unknown'])}{_weight(one)}" for one in found["unknowns"]])
    _print_newest("Dead ends", [f"{dead_end_line(one)}{_weight(one)}" for one in found["dead_ends"]])
    _print_newest(
        "Tools",
        [f"{clean(one['tool'])}{': ' if one['purpose'] else ''}{clean(one['purpose'])}" for one in found["tools"]],
    )


def _print_newest(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    _heading(title)
    if len(lines) > lines_max:
        click.echo(f"({len(lines) - lines_max} older ones are not shown: --json has all)")
    for line in lines[-lines_max:]:
        click.echo(f"  - {line}")


def trajectory(assessments: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]], int]:
    """Return header and rows of the vectors over the phases, and how many phases had no room.

    The last column is the last value less the first; a vector assessed once has no change, one never assessed no row.
    """
    shown = list(assessments)
    if len(shown) > columns_max:
        shown = [shown[0], *shown[len(shown) - columns_max + 1 :]]
    header = ["vector", *(_phase(one) for one in shown), "change"]
    rows = []
    for name in VECTOR_NAMES:
        values = [one["vectors"].get(name) for one in assessments]
        if any(value is not None for value in values):
            rows.append([name, *(_number(one["vectors"].get(name)) for one in shown), _change(values)])
    overall = [one["overall_confidence"] for one in assessments]
    if any(value is not None for value in overall):
        rows.append(["overall (own)", *(_number(one["overall_confidence"]) for one in shown), _change(overall)])
    return header, rows, len(assessments) - len(shown)


def print_dead_ends(dead_ends: Sequence[dict[str, Any]]) -> None:
    """Print what failed in earlier sessions; nothing when nothing did."""
    if not dead_ends:
        return
    click.secho("\nDead ends of similar tasks", bold=True)
    for one in dead_ends:
        click.echo(f"  - {dead_end_line(one)}  [{one['session_id']}]{imported_by(one['imported'])}")


def dead_end_line(one: dict[str, Any]) -> str:
    """Return an approach and why it failed, on one line."""
    return one_line(f"{one['approach']}: {one['why_failed']}")


def _heading(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _phase(one: dict[str, Any]) -> str:
    return f"{one['phase']} {one['round']}" if one["round"] else str(one["phase"])


def _number(value: float | None) -> str:
    return _none if value is None else f"{value:.2f}"


def _change(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{round(known[-1] - known[0], 4):+.2f}" if len(known) > 1 else _none


def _weight(one: dict[str, Any]) -> str:
    said = [] if one["impact"] is None else [f"impact {one['impact']:.2f}"]
    said += [clean(one["subject"])] if one["subject"] else []
    return f"  ({', '.join(said)})" if said else ""
