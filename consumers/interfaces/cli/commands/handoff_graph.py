"""`deed handoff graph`: shows as a tree who waits for whom. With --json the answer has the nodes and edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.output import next_page, print_lines, stems
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.sdk.text import sanitize_line

path_named_max: Final = 12
lines_max: Final = 500


def tree_text(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a page of the tree, then the critical path and the number of omitted rows."""
    nodes = {node["id"]: node for node in answer["nodes"]}
    lines = answer["lines"]
    if not lines:
        yield "(none)"
    if answer["path"]:
        yield f"… below {_names(answer['path'])}:"
    drawn = stems([line["depth"] for line in lines], goes_on=answer["next"] is not None)
    for line, stem in zip(lines, drawn, strict=True):
        text = stem + _node_text(nodes[line["id"]])
        yield f"{text} (see above)" if line["is_again"] else text
    if len(answer["critical_path"]) > 1:
        yield f"critical path ({len(answer['critical_path'])}): {_names(answer['critical_path'])}"
    if answer["totals"]["left_out"]:
        yield left_out(answer)


def left_out(answer: dict[str, Any]) -> str:
    """Return in one sentence how much of the graph is not on this page, and the option that shows the next page."""
    totals = answer["totals"]
    text = f"{totals['left_out']} of {totals['nodes']} handoffs are left out"
    return text if answer["next"] is None else f"{text}; continue with --after {answer['next']}"


def _node_text(node: dict[str, Any]) -> str:
    if node["status"] is None:
        return f"[missing] {node['id']}"
    title = sanitize_line(node["title"])
    parts = [f"[{node['status']} → {node['to'] or '?'}] {title}"]
    if title != node["id"]:
        parts.append(f"({sanitize_line(node['id'])})")
    if node["tasks_total"]:
        parts.append(f"{node['tasks_done']}/{node['tasks_total']} tasks done")
    if node["is_ready"]:
        parts.append("ready")
    return " ".join(parts)


def _names(names: list[str]) -> str:
    if len(names) <= path_named_max:
        return " → ".join(map(sanitize_line, names))
    half = path_named_max // 2
    return " → ".join(map(sanitize_line, [*names[:half], f"… {len(names) - 2 * half} more …", *names[-half:]]))


@click.command(cls=ReadingCommand, looks_back=True)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--dependents", is_flag=True, help="Draw the handoffs that wait for ID instead.")
@click.option("--all", "is_all", is_flag=True, help="Without ID: include finished handoffs.")
@click.option("--limit", type=click.IntRange(1, lines_max), default=200, show_default=True, help="Lines of the tree.")
@click.option("--after", type=click.IntRange(0), help="Continue after an earlier page.")
def graph(app: ReadingApp, /, id_: str | None, *, dependents: bool, is_all: bool, **paging: Any) -> None:
    """Draw what ID waits for, or all open handoffs and their dependencies.

    The critical path is the longest chain of unfinished handoffs, in the order in which they must be done.
    """
    if dependents and id_ is None:
        raise click.UsageError("--dependents needs an ID")
    filters = {"id": id_, "dependents": dependents or None, "all": is_all or None}
    answer = app.query("handoffs.graph", **filters, limit=paging["limit"], after=paging["after"])
    lines = tree_text(answer)
    app.show("handoffs.graph", answer, lambda: print_lines(*lines), following=next_page(answer["next"]))
