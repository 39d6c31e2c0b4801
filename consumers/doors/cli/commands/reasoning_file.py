"""`baton reasoning record`: graphs from a file become signed events, and what has no place in them is reported."""

from __future__ import annotations

from itertools import count
from typing import Any

import click
from msgspec.structs import replace

from consumers.doors.cli.app import App, read_argument
from consumers.doors.cli.output import progress
from consumers.doors.cli.program import Command
from consumers.importers.reasoning import ReadGraph, extensions_of, read_reasoning_file, submissions_of
from consumers.sdk.names import default_id
from consumers.sdk.text import clean
from ledger.author import Author, Draft
from ledger.errors import Refused
from projections.reasoning.memory import compute_reasoning_ref


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-")
@click.option("--id", "id_", help="The reasoning's id (default: the file's own, else day and task).")
@click.option("--domain", help="As security, medical or legal: those are always fetched whole.")
@click.option("--session", help="The session it belongs to.")
def record(app: App, file: str, id_: str | None, domain: str | None, session: str | None) -> None:
    """Record the reasoning graphs of FILE: one JSON object, an array, or one a line.

    The whole file is checked before anything is signed. Recording the same file again under the same ids adds nothing.
    """
    graphs = read_reasoning_file(read_argument(file if file == "-" else f"@{file}", "the reasoning file"))
    if id_ is not None and len(graphs) > 1:
        raise Refused("USAGE", f"--id names one reasoning, and the file holds {len(graphs)}")
    given = {name: value for name, value in (("id", id_), ("domain", domain), ("session", session)) if value}
    # What the command line says stands in place of the file's own hints.
    planned = [_planned(graph._replace(hints=replace(graph.hints, **given))) for graph in graphs]
    author = app.author()
    recorded = []
    with progress("recording", shown=not app.as_json) as step:
        for number, (graph, name, groups) in enumerate(planned, 1):
            indexes = _emit(author, name, groups)
            recorded.append(_answer(graph, name, indexes))
            step(number, len(planned))

    def text() -> None:
        for one in recorded:
            click.echo(
                f"{one['id']}: {one['steps']} steps, {one['ref'][:19]}… (entries {one['first']} to {one['last']})"
            )
            for path in one["kept_aside"]:
                click.echo(f"  kept aside: {clean(path)}", err=True)

    app.show("recorded", {"recorded": recorded, "total": len(recorded)}, text)


def _planned(graph: ReadGraph) -> tuple[ReadGraph, str, list[list[Draft]]]:
    """Return a graph with its id and the submissions that record it: refused before anything is signed."""
    name = graph.hints.id or default_id(graph.memory.task)
    events = extensions_of(graph.memory, domain=graph.hints.domain, session=graph.hints.session)
    ref = compute_reasoning_ref(graph.memory)
    numbers = count()
    groups = [
        # The same graph under the same id is the same events: recording it again returns the first answers.
        [Draft(stream=f"reasoning/{name}", data=data, idem=f"record:{name}:{ref}:{next(numbers)}") for data in group]
        for group in submissions_of(events)
    ]
    return graph, name, groups


def _emit(author: Author, name: str, groups: list[list[Draft]]) -> list[int]:
    indexes: list[int] = []
    for drafts in groups:
        try:
            indexes += [one.index for one in author.emit(*drafts)]
        except Refused as refusal:
            raise refusal.with_details(reasoning_id=name, recorded=indexes) from refusal
    return indexes


def _answer(graph: ReadGraph, name: str, indexes: list[int]) -> dict[str, Any]:
    return {
        "id": name,
        "ref": compute_reasoning_ref(graph.memory),
        "steps": len(graph.memory.steps),
        "first": indexes[0],
        "last": indexes[-1],
        "kept_aside": graph.kept_aside,
    }
