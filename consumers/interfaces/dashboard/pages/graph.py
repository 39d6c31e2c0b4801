"""`/graph`: the dependencies of a handoff, with blocking paths in red; `/k`: the knowledge graph."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.address import PATHS, path_to
from deedbook.consumers.interfaces.dashboard.layout import FOUR_LINES, Box, Drawing, Edge, Node, layered
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext

events_shown_max: Final = 25
_COLOURS: Final = {"dead_end": "blocked", "unknown": "open", "finding": "completed", "report": "concluded"}


def graph(context: PageContext) -> Page:
    """Return ``{"id", "why", "drawing", "totals", "depth", "all", "events"}`` for ``id``, ``depth`` and ``all``.

    Without ``id`` the page shows the end of the longest unfinished chain. With ``all`` it shows every handoff, and
    those that are not connected with ``id`` are faded. ``events`` are the newest of the log.
    """
    depth, is_all = context.number("depth", 2), context.query.get("all") == "1"
    around = context.ask("handoffs.around", id=context.query.get("id") or None, depth=depth, all=is_all)
    data = {
        "id": around["id"],
        "why": context.ask("handoffs.why", id=around["id"]) if around["id"] else None,
        "drawing": _drawing(around),
        "totals": around["totals"],
        "depth": depth,
        "all": is_all,
        "events": context.ask("catalog.find", newest=True, limit=events_shown_max)["items"],
    }
    return Page("graph.html", f"Dependencies of {around['id']}" if around["id"] else "Dependencies", data)


def _drawing(around: dict[str, Any]) -> Drawing:
    apart = {node["id"] for node in around["nodes"] if node["hops"] is None and around["id"]}
    nodes = [
        Node(
            node["id"],
            node["title"] or node["id"],
            f"{status.replace('_', ' ')} · {node.get('to') or 'nobody'}",
            f"{node['tasks_done']}/{node['tasks_total']}" if node.get("tasks_total") else "",
            status,
            path_to("handoff", node["id"]) if node["id"] == around["id"] else "/graph",
            {} if node["id"] == around["id"] else {"id": node["id"]},
            is_faded=node["id"] in apart,
            is_selected=node["id"] == around["id"],
        )
        for node in around["nodes"]
        for status in (node["status"] or "missing",)
    ]
    lines = ((edge, "stop" if edge["holds"] else "") for edge in around["edges"])
    edges = [Edge(edge["to"], edge["from"], state, edge["from"] in apart) for edge, state in lines]
    return layered(nodes, edges, box=FOUR_LINES)


def knowledge(context: PageContext) -> Page:
    """Return the answer of `knowledge.graph` with its ``drawing`` and a ``path`` for each node."""
    args: dict[str, Any] = {name: context.query.get(name) or None for name in ("id", "text", "agent", "direction")}
    answer = context.ask("knowledge.graph", depth=context.number("depth"), **args)
    nodes = [node | {"path": _path(node)} for node in answer["nodes"]]
    boxes = [
        Node(
            node["id"],
            node["label"],
            f"{node['sort']} · {state}".replace("_", " ") if state else node["sort"],
            state=_COLOURS.get(node["sort"], node["state"]),
            href="/k",
            query={"id": node["id"]},
            is_faded=node["is_stale"],
            is_selected=node["id"] == args["id"],
        )
        for node in nodes
        for state in (node["state"] or node["agent"],)
    ]
    lines = [Edge(edge["from"], edge["to"], "wait" if edge["is_stale"] else "") for edge in answer["edges"]]
    drawing = layered(boxes, lines, box=Box(216, 56))
    return Page("knowledge.html", "Knowledge", answer | {"nodes": nodes, "asked": args, "drawing": drawing})


def _path(node: dict[str, Any]) -> str | None:
    kind, _, name = node["id"].partition("/")
    if kind == "report":
        return path_to("session", name)
    return path_to(kind, name) if kind in PATHS else None if node["event_index"] is None else path_to("event", name)
