"""`/t`: problems that are searched as trees; `/t/ID`: one of them, as it was after any entry of the log."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.layout import ONE_LINE, Drawing, Edge, Node, layered
from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.ledger.errors import Refused

tasks_shown_max: Final = 50
nodes_drawn_max: Final = 200
_GLYPHS: Final = {"best": "✓", "frontier": "○", "pruned": "✕", "": ""}


def tasks(seen: Seen) -> Page:
    """Return the answer of `tot.list`: ``{"tasks", "total", "next"}``; ``after`` is the ``next`` of the page before."""
    return Page("tasks.html", "Thinking", seen.ask("tot.list", after=seen.number("after"), limit=tasks_shown_max))


def thoughts(seen: Seen) -> Page:
    """Return ``{"task", "at", "steps", "drawing", "nodes", "left_out"}``, after the entry ``at`` (default: the last).

    ``steps`` are the indexes of the task's ``first``, ``previous``, ``next`` and ``last`` entry around ``at``, and how
    many there are in ``all``. Of ``nodes``, in the order in which they were thought, each has a ``mark``: ``best`` (on
    the best path), ``frontier``, ``pruned`` or none. Raises Refused: ``NOT_FOUND`` before its first entry.
    """
    task = seen.ask("tot.show", id=seen.params["id"])
    stream, first = f"tot/{task['id']}", task["started_index"]

    def entry(**asked: Any) -> int | None:
        events = seen.ask("catalog.find", stream=stream, limit=1, **asked)["events"]
        return events[0]["event_index"] if events else None

    newest = seen.ask("catalog.find", stream=stream, limit=1, newest=True)
    last = newest["events"][0]["event_index"]
    at = seen.number("at", last) or 0
    if not first <= at <= (seen.head if seen.as_of is None else seen.as_of):
        message = f"there is no {stream} after entry {at}: it begins at {first}"
        raise Refused("NOT_FOUND", message, asked=at, first=first)
    if at < last:
        task = seen.ledger.ask("tot.show", as_of=at, id=task["id"])
    nodes = _nodes(seen.ledger.ask("tot.tree", as_of=at if at < last else seen.moment, id=task["id"]))
    steps = {"previous": entry(newest=True, after=min(at, last)), "next": entry(after=at)}
    steps |= {"first": first, "last": last, "all": newest["total"]}
    drawn = nodes[:nodes_drawn_max]
    data = {"task": task, "at": at, "steps": steps, "drawing": _drawing(drawn), "nodes": drawn}
    return Page("thoughts.html", f"Thoughts of {task['id']}", data | {"left_out": len(nodes) - len(drawn)})


def _nodes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes with their ``score`` and ``mark``, parents before children, each level as it was thought."""
    known, state = answer["nodes"], answer["search_state"]
    marks = dict.fromkeys(state["frontier"], "frontier") | dict.fromkeys(state["best_path"], "best")
    names = [answer["root_id"]] if answer["root_id"] else []
    for name in names:  # which grows meanwhile
        names.extend(known[name]["children_ids"])
        if known[name]["status"] == "pruned" or marks.get(known[name]["parent_id"]) == "pruned":
            marks[name] = "pruned"
    score = {name: (known[name]["evaluation"] or {"score": None})["score"] for name in names}
    return [known[name] | {"score": score[name], "mark": marks.get(name, "")} for name in names]


def _drawing(nodes: list[dict[str, Any]]) -> Drawing:
    boxes, lines = [], []
    for node in nodes:
        mark, score = node["mark"], "" if node["score"] is None else node["score"]
        figure = f"{_GLYPHS[mark]} {score}".strip()
        boxes.append(Node(node["id"], node["content"], figure=figure, state=mark, is_faded=mark == "pruned"))
        lines.append(Edge(node["parent_id"] or "", node["id"], "ok" if mark == "best" else "", mark == "pruned"))
    return layered(boxes, lines, "tree", ONE_LINE)
