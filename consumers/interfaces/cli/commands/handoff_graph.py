"""`deed handoff graph`: who waits for whom, as a tree for people, as Mermaid or as DOT for whatever draws.

Titles are other people's text: in DOT quotes, backslashes and entities are escaped (the DOT language's double-quoted
strings).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, assert_never

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.output import next_page, print_lines, stems
from deedbook.consumers.sdk.mermaid import Flowchart, Style, node_name
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.lifecycle.handoff_status import FINAL

path_named_max: Final = 12
_NAME_PREFIX: Final = "h"

Mark = Literal["ready", "over", "missing", "critical"]
_CLASSES: Final[dict[Mark, tuple[str, str]]] = {
    "ready": ("fill:#d7f5dd,stroke:#1a7f37", 'style=filled fillcolor="#d7f5dd"'),
    "over": ("fill:#eeeeee,stroke:#8c8c8c,color:#666666", 'style=filled fillcolor="#eeeeee"'),
    "missing": ("stroke:#b42318,stroke-dasharray:4 3", 'style=dashed color="#b42318"'),
    "critical": ("stroke-width:3px", "penwidth=3"),
}


def tree_text(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a page of the tree, then what is critical and what is left out."""
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


def mermaid_text(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a Mermaid flowchart: an arrow leads from what must be done to what waits for it."""
    nodes = answer["nodes"]
    labels = {node["id"]: _label(node) for node in nodes}
    arrows = [(edge["to"], "-->", edge["from"]) for edge in answer["edges"]]
    classes: dict[str, Style] = {
        name: Style(style, [node["id"] for node in nodes if _is(name, node, answer)])
        for name, (style, _) in _CLASSES.items()
    }
    yield from Flowchart(prefix=_NAME_PREFIX, direction="LR", nodes=labels, arrows=arrows, classes=classes).lines()
    if answer["totals"]["left_out"]:
        yield f"  %% {left_out(answer)}"


def dot_text(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a DOT graph: an arrow leads from what must be done to what waits for it."""
    yield "digraph handoffs {"
    yield "  rankdir=LR"
    yield "  node [shape=box]"
    for node in answer["nodes"]:
        label = "\\n".join(_dot(part) for part in _label(node))
        styles = "".join(f" {style}" for marked, (_, style) in _CLASSES.items() if _is(marked, node, answer))
        yield f'  {name_of(node["id"])} [label="{label}"{styles}]'
    for edge in answer["edges"]:
        yield f"  {name_of(edge['to'])} -> {name_of(edge['from'])}"
    if answer["totals"]["left_out"]:
        yield f"  // {left_out(answer)}"
    yield "}"


def name_of(id_: str) -> str:
    """Return the name of a node in a drawing: the same for the same id, and a word in any language."""
    return node_name(_NAME_PREFIX, id_)


def _names(names: list[str]) -> str:
    if len(names) <= path_named_max:
        return " → ".join(map(sanitize_line, names))
    half = path_named_max // 2
    return " → ".join(map(sanitize_line, [*names[:half], f"… {len(names) - 2 * half} more …", *names[-half:]]))


def _label(node: dict[str, Any]) -> list[str]:
    if node["status"] is None:
        return [sanitize_line(node["id"]), "missing"]
    done = f" · {node['tasks_done']}/{node['tasks_total']}" if node["tasks_total"] else ""
    return [sanitize_line(node["title"]), f"{node['status']} → {node['to'] or '?'}{done}"]


def _is(marked: Mark, node: dict[str, Any], answer: dict[str, Any]) -> bool:
    match marked:
        case "missing":
            return node["status"] is None
        case "ready":
            return bool(node["is_ready"])
        case "over":
            return node["status"] in FINAL
        case "critical":
            return node["id"] in answer["critical_path"]
        case _:
            assert_never(marked)


def _dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


lines_max: Final = 500
FORMATS: Final = {"tree": tree_text, "mermaid": mermaid_text, "dot": dot_text}


@click.command(cls=Command, looks_back=True)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--dependents", is_flag=True, help="Draw the handoffs that wait for ID instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(FORMATS)),
    default="tree",
    show_default=True,
    help="The format of the drawing.",
)
@click.option("--all", "is_all", is_flag=True, help="Without ID: include finished handoffs.")
@click.option("--limit", type=click.IntRange(1, lines_max), default=200, show_default=True, help="Lines of the tree.")
@click.option("--after", type=click.IntRange(0), help="Continue after an earlier page.")
def graph(app: App, /, id_: str | None, *, form: str, dependents: bool, is_all: bool, **paging: Any) -> None:
    """Draw what ID waits for, or all open handoffs and their dependencies.

    The critical path is the longest chain of unfinished handoffs, in the order in which they must be done.
    """
    if dependents and id_ is None:
        raise click.UsageError("--dependents needs an ID")
    filters = {"id": id_, "dependents": dependents or None, "all": is_all or None}
    answer = app.query("handoffs.graph", **filters, limit=paging["limit"], after=paging["after"])

    lines = FORMATS[form](answer)
    text = (lambda: print_lines(*lines)) if form == "tree" else lines
    app.show("handoffs.graph", answer, text, following=next_page(answer["next"]))
