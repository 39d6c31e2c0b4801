"""`/k`: what is known and where it came from, forward and back from a thing; what is stale is marked."""

from __future__ import annotations

from typing import Any, Final

from consumers.doors.dashboard.address import PATHS, path_to
from consumers.doors.dashboard.drawing.layout import Box, Edge, Node, layered
from consumers.doors.dashboard.page import Page, Seen

_STATES: Final = {"dead_end": "blocked", "unknown": "open", "finding": "completed", "report": "concluded"}


def knowledge(seen: Seen) -> Page:
    """Return the answer of `knowledge.graph`, asked for by its own names, its ``drawing``, and a ``path`` a node."""
    asked: dict[str, Any] = {name: seen.query.get(name) or None for name in ("sel", "q", "agent", "direction")}
    answer = seen.ask("knowledge.graph", depth=seen.number("depth"), **asked)
    nodes = [node | {"path": _path(node)} for node in answer["nodes"]]
    boxes = [
        Node(
            node["id"], node["label"], f"{node['sort']} · {state}".replace("_", " ") if state else node["sort"],
            state=_STATES.get(node["sort"], node["state"]), href="/k", query={"sel": node["id"]},
            is_faded=node["is_stale"], is_selected=node["id"] == asked["sel"],
        )
        for node in nodes for state in (node["state"] or node["agent"],)
    ]  # fmt: skip
    lines = [Edge(edge["from"], edge["to"], "wait" if edge["is_stale"] else "") for edge in answer["edges"]]
    drawing = layered(boxes, lines, box=Box(216, 40))
    return Page("knowledge.html", "Knowledge", answer | {"nodes": nodes, "asked": asked, "drawing": drawing})


def _path(node: dict[str, Any]) -> str | None:
    sort, _, name = node["id"].partition("/")
    if sort == "report":
        return path_to("session", name)
    return path_to(sort, name) if sort in PATHS else None if node["event_index"] is None else path_to("event", name)
