"""`/graph`: the dependencies of a handoff, with blocking paths in red."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.layout import Drawing, Edge, Node, beside_room, layered, lines_box
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.evidence import with_doubts

events_shown_max: Final = 25
waits_marked_max: Final = 500
drawn_max: Final = 90
"""The handoffs in one drawing: more would make a page of over 120 kB."""


def graph(context: PageContext) -> Page:
    """Return ``{"id", "why", "opened", "drawing", "titles", "totals", "depth", "all", "events"}``.

    Without ``id`` the page shows the end of the longest unfinished chain. With ``all`` it shows every handoff, and
    those that are not connected with ``id`` are faded. ``opened`` is the node ``sel`` with its ``why``, and ``events``
    are the newest of the log.
    """
    depth, is_all = context.number("depth", 2), context.query.get("all") == "1"
    id_ = context.query.get("id") or None
    around = context.ask("handoffs.around", id=id_, depth=depth, all=is_all, limit=drawn_max)
    opened = next((node for node in around["nodes"] if node["id"] == context.query.get("sel")), None)
    if opened is not None:
        opened |= {"why": _why(context, opened["id"]) if opened["status"] else None}
    data = {
        "id": around["id"],
        "why": _why(context, around["id"]) if around["id"] else None,
        "opened": opened,
        "drawing": _drawing(context, around, opened),
        "titles": {node["id"]: node["title"] or "" for node in around["nodes"]},
        "totals": around["totals"],
        "depth": depth,
        "all": is_all,
        "events": context.ask("catalog.find", newest=True, limit=events_shown_max)["items"],
    }
    return Page("graph.html", f"Dependencies of {around['id']}" if around["id"] else "Dependencies", data)


def _why(context: PageContext, name: str) -> dict[str, Any]:
    why = context.ask("handoffs.why", id=name)
    return why | {"waits": with_doubts(context, why["waits"])}


def _drawing(context: PageContext, around: dict[str, Any], opened: dict[str, Any] | None) -> Drawing:
    query = {name: context.query[name] for name in ("depth", "all") if name in context.query} | {"id": around["id"]}
    mine = _waits_of(context)
    apart = {node["id"] for node in around["nodes"] if node["hops"] is None and around["id"]}
    nodes = [
        Node(
            node["id"],
            node["title"] or node["id"],
            (status.replace("_", " "), f"you: {mine[node['id']]}" if node["id"] in mine else node["to"] or "nobody"),
            f"{node['tasks_done']}/{node['tasks_total']}" if node["tasks_total"] else "",
            status,
            "/graph",
            query | {"sel": node["id"]},
            "opened",
            is_faded=node["id"] in apart,
            is_selected=node["id"] == (opened or around)["id"],
        )
        for node in around["nodes"]
        for status in (node["status"] or "missing",)
    ]
    lines = ((edge, "stop" if edge["holds"] else "") for edge in around["edges"])
    edges = [Edge(edge["to"], edge["from"], state, edge["from"] in apart) for edge, state in lines]
    # As wide as beside a column: then a window of 800 px shows the whole drawing.
    return layered(nodes, edges, box=lines_box(5), room=beside_room)


def _waits_of(context: PageContext) -> dict[str, str]:
    """Return the handoffs that wait for the human, each with their action."""
    if context.human is None:
        return {}
    waits = context.ask("handoffs.waits", agent=context.human, limit=waits_marked_max)["items"]
    return {item["id"]: item["action"] for item in reversed(waits) if item["kind"] == "handoff"}
