"""Where the boxes and lines of a graph go: the only module that knows the layout engine.

The engine holds the interpreter while it works, whatever thread it is called in (measured: no other thread ran for the
five minutes that it took for one node with a thousand lines). So what it is asked for is bounded: mending the places of
lines, which grows with their fourth power, is for small graphs, and a graph whose long lines would need too many
waypoints is placed by a forest of its lines, the others drawn straight.

A place depends on the lines alone, not on what stands in the boxes: drawings are kept by that, so that the same graph
is laid out once however far the log has grown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import graphlay

drawings_kept_max: Final = 64

_edges_mended_max: Final = 60
_waypoints_max: Final = 1_000
_margin: Final = 16
_gap: Final = 16
_SPACING: Final = {"node_gap": 24, "dummy_gap": 16, "layer_gap": 40, "port_gap": 14, "stub": 14}
_UNMENDED: Final = {"port_relax_rounds": 0, "overlap_repair_rounds": 0}

Direction: TypeAlias = Literal["leftright", "topbottom"]
Drawing: TypeAlias = dict[str, Any]
Point: TypeAlias = tuple[int, int]
Pairs: TypeAlias = tuple[tuple[int, int], ...]


class Box(NamedTuple):
    """The size of every box of a drawing, in px."""

    width: int
    height: int


TWO_LINES: Final = Box(160, 40)
ONE_LINE: Final = Box(168, 24)


class Node(NamedTuple):
    """What stands in a box: ``label`` above, ``meta`` below with a ``figure`` at its right; ``state`` gives a colour.

    It leads to the page of ``href`` and ``query``.
    """

    id: str
    label: str
    meta: str = ""
    figure: str = ""
    state: str = ""
    href: str = ""
    query: Mapping[str, str] = {}
    is_faded: bool = False
    is_selected: bool = False


class Edge(NamedTuple):
    """A line with its arrow at ``end``."""

    start: str
    end: str
    state: str = ""
    is_faded: bool = False


class _Places(NamedTuple):
    """The upper left corner of every box, and the points of every line."""

    corners: list[Point]
    lines: list[list[Point]]


def layered(
    nodes: Sequence[Node], edges: Sequence[Edge], direction: Direction = "leftright", box: Box = TWO_LINES
) -> Drawing:
    """Return a drawing in layers, each edge pointing on where no cycle turns it back: ``{"width", "height", …}`` in px.

    ``nodes`` are those given with ``x``, ``y`` (upper left), ``w``, ``h``, and the numbers of those that they lead to;
    ``edges`` have ``from``, ``to`` and ``points`` from border to border. An edge to what is not among the nodes is left
    out. Nodes without any stand below.
    """
    return _drawing(_layered, nodes, edges, direction, box)


def tree(nodes: Sequence[Node], edges: Sequence[Edge], box: Box = ONE_LINE) -> Drawing:
    """Return a tree, its root at the left and each parent beside the middle of its children; as ``layered``."""
    return _drawing(_tree, nodes, edges, "leftright", box) | {"is_curved": True}


def _drawing(
    place: Callable[[int, Pairs, Direction, Box], _Places],
    nodes: Sequence[Node], edges: Sequence[Edge], direction: Direction, box: Box,
) -> Drawing:  # fmt: skip
    numbers = {node.id: number for number, node in enumerate(nodes)}
    known = [edge for edge in edges if edge.start in numbers and edge.end in numbers]
    pairs = tuple((numbers[edge.start], numbers[edge.end]) for edge in known)
    corners, lines = place(len(nodes), pairs, direction, box)
    leads_to: list[list[int]] = [[] for _ in nodes]
    for start, end in pairs:
        leads_to[start].append(end)
    xs = [*(x + box.width for x, _ in corners), *(x for line in lines for x, _ in line)]
    ys = [*(y + box.height for _, y in corners), *(y for line in lines for _, y in line)]
    return {
        "width": max(xs, default=0) + _margin, "height": max(ys, default=0) + _margin, "is_curved": False,
        "nodes": [
            node._asdict() | {"x": x, "y": y, "w": box.width, "h": box.height, "leads_to": leads}
            for node, (x, y), leads in zip(nodes, corners, leads_to, strict=True)
        ],
        "edges": [
            {"from": edge.start, "to": edge.end, "state": edge.state, "is_faded": edge.is_faded, "points": line}
            for edge, line in zip(known, lines, strict=True)
        ],
    }  # fmt: skip


@lru_cache(drawings_kept_max)
def _layered(count: int, pairs: Pairs, direction: Direction, box: Box) -> _Places:
    linked = sorted({number for pair in pairs for number in pair})
    alone = [number for number in range(count) if number not in set(linked)]
    rows = {number: row for row, number in enumerate(linked)}
    local = [(rows[start], rows[end]) for start, end in pairs]
    options: dict[str, Any] = {"direction": direction, "spacing": _SPACING, "limits": {"max_dummies": _waypoints_max}}
    if len(pairs) > _edges_mended_max:
        options |= {"effort": "fast", "routing": {"lane_gap": 3}, "tuning": {"routing": _UNMENDED}}
    try:
        corners, lines = _engine(graphlay.layout, len(linked), local, options, box)
    except graphlay.GraphlayError:
        forest = _forest(pairs)
        everywhere = _layered(count, forest if len(forest) < len(pairs) else (), direction, box).corners
        return _Places(everywhere, [_straight(everywhere[start], everywhere[end], box) for start, end in pairs])
    # The engine would put what has no line into one column, which of a thousand is 80,000 px high.
    right = max((x for x, _ in corners), default=0) + box.width
    bottoms = [y + box.height for _, y in corners] + [y for line in lines for _, y in line]
    bottom = max(bottoms, default=0) + _gap
    columns = max(4, right // (box.width + _gap))
    places = {number: corners[rows[number]] for number in linked}
    for position, number in enumerate(alone):
        row, column = divmod(position, columns)
        places[number] = (_margin + column * (box.width + _gap), bottom + row * (box.height + _gap))
    return _Places([places[number] for number in range(count)], lines)


@lru_cache(drawings_kept_max)
def _tree(count: int, pairs: Pairs, direction: Direction, box: Box) -> _Places:
    options: dict[str, Any] = {"direction": direction, "sibling_gap": 8, "subtree_gap": 8, "row_gap": 40}
    try:
        return _engine(graphlay.layout_tree, count, pairs, options, box)
    except graphlay.GraphlayError:  # it is none
        return _layered(count, pairs, direction, box)


def _engine(place: Any, count: int, pairs: Sequence[tuple[int, int]], options: dict[str, Any], box: Box) -> _Places:
    """Return what the engine makes of a graph, moved into the margins."""
    graph = graphlay.Graph()
    for number in range(count):
        graph.node(number, width=box.width, height=box.height)
    for start, end in pairs:
        graph.edge(start, end)
    placed = place(graph, options=options)
    left, top = (_margin - placed.bounds["min"][of] for of in "xy")

    def point(at: Mapping[str, float], x: float = 0, y: float = 0) -> Point:
        return round(at["x"] + left - x), round(at["y"] + top - y)

    corners = [point(node["center"], box.width / 2, box.height / 2) for node in placed.nodes]
    return _Places(corners, [[point(at) for at in edge["points"]] for edge in placed.edges])


def _forest(pairs: Pairs) -> Pairs:
    """Return for each end its first line, of those that point on: no cycle, and no line that is long."""
    first = {end: start for start, end in reversed(pairs) if start < end}
    return tuple((start, end) for end, start in first.items())


def _straight(start: Point, end: Point, box: Box) -> list[Point]:
    """Return the line between the middles of two boxes, from border to border."""
    width, height = end[0] - start[0], end[1] - start[1]
    share = 0.5 / max(abs(width) / box.width, abs(height) / box.height, 0.5)  # of the way, inside each box
    middles = [(x + box.width / 2, y + box.height / 2) for x, y in (start, end)]
    return [
        (round(x + sign * width * share), round(y + sign * height * share))
        for (x, y), sign in zip(middles, (1, -1), strict=True)
    ]
