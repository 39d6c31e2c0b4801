"""`/t`: problems that are searched as trees; `/t/ID`: one of them, as it was after any entry of the log."""

from __future__ import annotations

from typing import Any, Final

from consumers.doors.dashboard.drawing.layout import Drawing, Edge, Node, tree
from consumers.doors.dashboard.page import Page, Seen
from ledger.errors import Refused

tasks_shown_max: Final = 50
nodes_drawn_max: Final = 200


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
    stream = f"tot/{task['id']}"

    def index(**asked: Any) -> int | None:
        events = seen.ask("catalog.find", stream=stream, limit=1, **asked)["events"]
        return events[0]["event_index"] if events else None

    first, last = task["started_index"], index(newest=True) or 0
    at = seen.number("at", last) or 0
    if not first <= at <= (seen.head if seen.as_of is None else seen.as_of):
        raise Refused(
            "NOT_FOUND", f"there is no {stream} after entry {at}: it begins at {first}", asked=at, first=first
        )
    if at < last:
        task = seen.ledger.ask("tot.show", as_of=at, id=task["id"])
    nodes = _nodes(seen.ledger.ask("tot.tree", as_of=at if at < last else seen.moment, id=task["id"]))
    before = index(newest=True, after=min(at, last))
    steps = {"first": first, "previous": before, "next": index(after=at), "last": last}
    steps |= {"all": seen.ask("catalog.find", stream=stream, limit=1)["total"]}
    drawn = nodes[:nodes_drawn_max]
    data = {
        "task": task, "at": at, "steps": steps, "drawing": _drawing(drawn), "nodes": drawn,
        "left_out": len(nodes) - len(drawn),
    }  # fmt: skip
    return Page("thoughts.html", f"Thoughts of {task['id']}", data)


def _nodes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is shown of each node, parents before their children, each level as it was thought."""
    known, state = answer["nodes"], answer["search_state"]
    best, waiting = set(state["best_path"]), set(state["frontier"])
    ids, cut = [answer["root_id"]] if answer["root_id"] else [], set()
    nodes = []
    for name in ids:  # which grows meanwhile
        node = known[name]
        ids.extend(node["children_ids"])
        if node["status"] == "pruned" or node["parent_id"] in cut:
            cut.add(name)
        mark = "best" if name in best else "frontier" if name in waiting else "pruned" if name in cut else ""
        kept = {of: node[of] for of in ("id", "parent_id", "depth", "content", "action_type", "status")}
        judged = node["evaluation"] or {"score": None, "confidence": None, "reasoning": ""}
        nodes.append(kept | {of: judged[of] for of in ("score", "confidence", "reasoning")} | {"mark": mark})
    return nodes


def _drawing(nodes: list[dict[str, Any]]) -> Drawing:
    glyphs = {"best": "✓ ", "frontier": "○ ", "pruned": "✕ ", "": ""}
    boxes = [
        Node(
            node["id"], node["content"], figure=f"{glyphs[node['mark']]}{score}", state=node["mark"],
            is_faded=node["mark"] == "pruned",
        )
        for node in nodes for score in ("" if node["score"] is None else node["score"],)
    ]  # fmt: skip
    is_best = {node["id"]: node["mark"] == "best" for node in nodes}
    lines = [
        Edge(node["parent_id"], node["id"], "ok" if is_best[node["id"]] else "", node["mark"] == "pruned")
        for node in nodes if node["parent_id"]
    ]  # fmt: skip
    return tree(boxes, lines)
