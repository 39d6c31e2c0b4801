"""`/t`: problems searched as trees of thoughts; `/t/ID`: one of them, after any entry of the log."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.layout import ONE_LINE, Drawing, Edge, Node, layered
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.ledger.errors import Refused

tasks_shown_max: Final = 50
nodes_drawn_max: Final = 200
_STATES: Final = {"not_taken": ""}
_GLYPHS: Final = {"best": "✓", "frontier": "○", "pruned": "✕", "not_taken": "–", "": ""}


def tasks(context: PageContext) -> Page:
    """Return the answer of `tot.list`; ``after`` is the previous page's ``next``."""
    return Page("tasks.html", "Thinking", context.ask("tot.list", after=context.number("after"), limit=tasks_shown_max))


def thoughts(context: PageContext) -> Page:
    """Return ``{"task", "at", "steps", "drawing", "nodes", "left_out"}``, after the entry ``at`` (default: the last).

    ``steps`` has the indexes of the task's ``first``, ``previous``, ``next`` and ``last`` entry around ``at``, and the
    number of ``all`` entries. ``nodes`` are in order of creation, each with a ``mark``: ``best`` (on the best path),
    ``frontier``, ``pruned``, ``not_taken`` or none. Raises Refused: ``NOT_FOUND`` if ``at`` is before the first entry.
    """
    task = context.ask("tot.show", id=context.params["id"])
    stream, first = f"tot/{task['id']}", task["started_index"]

    def entry(**args: Any) -> int | None:
        events = context.ask("catalog.find", stream=stream, limit=1, **args)["items"]
        return events[0]["event_index"] if events else None

    newest = context.ask("catalog.find", stream=stream, limit=1, newest=True)
    last = newest["items"][0]["event_index"]
    at = context.number("at", last) or 0
    if not first <= at <= (context.head if context.as_of is None else context.as_of):
        message = f"{stream} does not exist as of entry {at}: it begins at {first}"
        raise Refused("NOT_FOUND", message, asked=at, first=first)
    if at < last:
        task = context.ledger.ask("tot.show", as_of=at, id=task["id"])
    nodes = _nodes(context.ledger.ask("tot.tree", as_of=at if at < last else context.instant, id=task["id"]))
    steps = {"previous": entry(newest=True, after=min(at, last)), "next": entry(after=at)}
    steps |= {"first": first, "last": last, "all": newest["total"]}
    drawn = nodes[:nodes_drawn_max]
    data = {"task": task, "at": at, "steps": steps, "drawing": _drawing(drawn), "nodes": drawn}
    return Page("thoughts.html", f"Thoughts of {task['id']}", data | {"left_out": len(nodes) - len(drawn)})


def _nodes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes with their ``score`` and ``mark``, parents before children, each level in order of creation."""
    nodes, state = answer["nodes"], answer["search_state"]
    marks = dict.fromkeys(state["frontier"], "frontier") | dict.fromkeys(state["best_path"], "best")
    names = [answer["root_id"]] if answer["root_id"] else []
    for name in names:  # the list grows in the loop
        names.extend(nodes[name]["children_ids"])
        if nodes[name]["status"] == "pruned" or marks.get(nodes[name]["parent_id"]) == "pruned":
            marks[name] = "pruned"
        elif nodes[name]["status"] == "not_taken":
            marks[name] = "not_taken"
    score = {name: (nodes[name]["evaluation"] or {"score": None})["score"] for name in names}
    return [nodes[name] | {"score": score[name], "mark": marks.get(name, "")} for name in names]


def _drawing(nodes: list[dict[str, Any]]) -> Drawing:
    boxes, lines = [], []
    for node in nodes:
        mark, score = node["mark"], "" if node["score"] is None else node["score"]
        figure = f"{_GLYPHS[mark]} {score}".strip()
        boxes.append(
            Node(node["id"], node["content"], figure=figure, state=_STATES.get(mark, mark), is_faded=mark == "pruned")
        )
        lines.append(Edge(node["parent_id"] or "", node["id"], "ok" if mark == "best" else "", mark == "pruned"))
    return layered(boxes, lines, "tree", ONE_LINE)
