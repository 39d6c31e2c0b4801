"""`/k`: the knowledge graph, around a thing or of the newest things that pass the filters."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.address import PATHS, path_to
from deedbook.consumers.interfaces.dashboard.facets import FIELDS, read
from deedbook.consumers.interfaces.dashboard.layout import Edge, Node, layered, lines_box, whole_room
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.catalog.knowledge import EVENT_TYPES

nodes_max: Final = 48
_COLOURS: Final = {"dead_end": "over", "unknown": "unsettled", "finding": "over", "report": "over"}
_NAMES: Final = {event_type: name for name, event_type in EVENT_TYPES.items()}


def knowledge(context: PageContext) -> Page:
    """Return the answer of `knowledge.graph` with its ``drawing``, a ``path`` for each node, and ``facets``.

    The nodes are newest first; ``around`` is the label of the thing around which they are.

    The graph around a thing (``id``) takes no filters.
    """
    fields = () if context.query.get("id") else FIELDS
    facets = read(context, "/k", "id", "text", "direction", "depth", kinds=EVENT_TYPES, fields=fields)
    others = {name: facets.others[name] or None for name in ("id", "text", "direction")}
    answer = context.ask(
        "knowledge.graph", depth=context.number("depth"), limit=nodes_max, **others, **facets.arguments
    )
    counts = None
    if fields:
        of_events = facets.arguments | {"type": EVENT_TYPES.get(facets.arguments["type"])}
        counts = context.ask("catalog.facets", types=list(_NAMES), **of_events)
        counts["types"] = [value | {"value": _NAMES[value["value"]]} for value in counts["types"]]
    nodes = [node | {"path": _path(node)} for node in answer["nodes"]]
    boxes = [
        Node(
            node["id"],
            node["label"],
            (f"{node['type']} · {state}".replace("_", " ") if state else node["type"],),
            state=_COLOURS.get(node["type"], node["state"]),
            href="/k",
            query={"id": node["id"]},
            is_faded=node["is_stale"],
            is_selected=node["id"] == others["id"],
        )
        for node in nodes
        for state in (node["state"] or node["agent"],)
    ]
    lines = [Edge(edge["from"], edge["to"], "wait" if edge["is_stale"] else "") for edge in answer["edges"]]
    drawing = layered(boxes, lines, box=lines_box(4, width=216), room=whole_room)
    data: dict[str, Any] = {"nodes": nodes, "drawing": drawing, "facets": facets.form(counts)}
    data["around"] = nodes[0]["label"] if others["id"] else None
    nodes.sort(key=lambda node: -(node["happened_ms"] or UNDATED_MS))
    return Page("knowledge.html", "Knowledge", answer | data)


def _path(node: dict[str, Any]) -> str | None:
    kind, _, name = node["id"].partition("/")
    if kind == "report":
        return path_to("session", name)
    return path_to(kind, name) if kind in PATHS else None if node["event_index"] is None else path_to("event", name)
