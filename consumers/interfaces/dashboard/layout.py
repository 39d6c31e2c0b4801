"""Computes the layout of a drawing's boxes and lines, as data for a template.

No other module imports the layout engine. The engine holds the interpreter lock while it works, in any thread
(measured: no other thread ran for the five minutes that one node with a thousand lines took). So its work is bounded.
The time to repair overlapping lines grows with the fourth power of their number, so only small graphs get it. A graph
whose long lines would need too many waypoints is laid out by a forest of its lines, and the other lines are drawn
straight.

The positions depend on the lines and the room alone, not on the text in the boxes. They are cached, so the same graph
is laid out once, even if the log has grown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import graphlay

drawings_cached_max: Final = 64
whole_room: Final = 1358
beside_room: Final = 806
"""The width (px) of a card in a window of 1,400 px: across the whole page, and beside a narrower column."""

_edges_repaired_max: Final = 60
_waypoints_max: Final = 1_000
_margin: Final = 16
_gap: Final = 16
_TREE: Final = {"direction": "leftright", "sibling_gap": 8, "subtree_gap": 8, "row_gap": 24}
_LAYERS: Final = {
    "spacing": {"node_gap": 24, "dummy_gap": 16, "layer_gap": 40, "port_gap": 14, "stub": 14},
    "limits": {"max_dummies": _waypoints_max},
}
_UNREPAIRED: Final = {
    "effort": "fast",
    "routing": {"lane_gap": 3},
    "tuning": {"routing": {"port_relax_rounds": 0, "overlap_repair_rounds": 0}},
}

Direction: TypeAlias = Literal["leftright", "topbottom", "tree"]
Drawing: TypeAlias = dict[str, Any]
Point: TypeAlias = tuple[int, int]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
Positions: TypeAlias = tuple[list[Point], list[list[Point]]]

widenings_max: Final = 4


class Box(NamedTuple):
    """The size of every box of a drawing, in px: the smallest width, which grows with the room up to ``width_max``."""

    width: int
    height: int
    width_max: int = 264


_PLAIN: Final = Box(160, 56)


def lines_box(lines: int, width: int = 160) -> Box:
    """Return a box for this number of lines, which its label and its meta share."""
    return Box(width, 16 * lines + 8)


class Node(NamedTuple):
    """The content of a box: ``label``, lines of ``meta`` below it, and ``figure`` at the right.

    The label gets the lines that ``meta`` leaves. ``state`` selects the colour. The box links to ``href`` with
    ``query`` and ``fragment``.
    """

    id: str
    label: str
    meta: tuple[str, ...] = ()
    figure: str = ""
    state: str = ""
    href: str = ""
    query: Mapping[str, str] = {}
    fragment: str = ""
    is_faded: bool = False
    is_selected: bool = False


class Placed(NamedTuple):
    """The boxes' size, their upper left corners, and the points of the lines."""

    box: Box
    corners: list[Point]
    lines: list[list[Point]]

    def extent(self, axis: Literal[0, 1]) -> int:
        """Return the width (axis 0) or height (axis 1) of the drawing."""
        ends = (corner[axis] + self.box[axis] for corner in self.corners)
        return max(chain(ends, (point[axis] for line in self.lines for point in line)), default=0) + _margin


class Edge(NamedTuple):
    """A line from ``start`` to ``end``, with an arrow at ``end``."""

    start: str
    end: str
    state: str = ""
    is_faded: bool = False


def layered(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    direction: Direction = "leftright",
    box: Box = _PLAIN,
    room: int = 0,
) -> Drawing:
    """Return a drawing in layers, all edges in one direction except in cycles: ``{"width", "height", …}`` in px.

    Its boxes are as wide as ``room`` (px) allows. If the smallest boxes of a drawing from top to bottom do not fit, it
    runs from left to right. A ``tree`` has its root at the left, and each parent beside the middle of its children.
    Each of the ``nodes`` also has ``x``, ``y`` (upper left), ``w``, ``h`` and ``leads_to``, the numbers of its
    successors. ``edges`` have ``from``, ``to`` and ``points`` from border to border. Edges to unknown nodes are left
    out. Nodes without edges are placed below the others.
    """
    numbers = {node.id: number for number, node in enumerate(nodes)}
    known = [edge for edge in edges if edge.start in numbers and edge.end in numbers]
    pairs = tuple((numbers[edge.start], numbers[edge.end]) for edge in known)
    placed = _widened(len(nodes), pairs, direction, box, room)
    if direction == "topbottom" and placed.extent(0) > room > 0:
        other = _widened(len(nodes), pairs, "leftright", box, room)
        placed = other if other.extent(0) <= room else placed
    box, corners, lines = placed
    leads_to: list[list[int]] = [[] for _ in nodes]
    for start, end in pairs:
        leads_to[start].append(end)
    return {
        "width": placed.extent(0),
        "height": placed.extent(1),
        "is_curved": direction == "tree",
        "nodes": [
            node._asdict() | {"x": x, "y": y, "w": box.width, "h": box.height, "leads_to": leads}
            for node, (x, y), leads in zip(nodes, corners, leads_to, strict=True)
        ],
        "edges": [
            {"from": edge.start, "to": edge.end, "state": edge.state, "is_faded": edge.is_faded, "points": line}
            for edge, line in zip(known, lines, strict=True)
        ],
    }


def _widened(count: int, pairs: Pairs, direction: Direction, box: Box, room: int) -> Placed:
    """Return the positions with the widest boxes that fit into the room, else with the smallest boxes."""
    least = Placed(box, *_positions(count, pairs, direction, box, room))
    if not count:
        return least
    # The number of boxes side by side: the boxes of the longest row, or the number of layers.
    is_down = direction == "topbottom"
    across = max(Counter(y for _, y in least.corners).values()) if is_down else len({x for x, _ in least.corners})
    spare = room - least.extent(0)
    for _ in range(widenings_max):
        wider = box._replace(width=min(box.width + spare // across, box.width_max))
        if wider.width <= box.width:
            break
        placed = Placed(wider, *_positions(count, pairs, direction, wider, room))
        if (excess := placed.extent(0) - room) <= 0:
            return placed
        spare -= max(excess, across)
    return least


@lru_cache(drawings_cached_max)
def _positions(count: int, pairs: Pairs, direction: Direction, box: Box, room: int) -> Positions:
    """Return the upper left corner of every box, and the points of every line."""
    rows = {number: row for row, number in enumerate(sorted({number for pair in pairs for number in pair}))}
    graph = graphlay.Graph()
    for _ in rows:
        graph.node(width=box.width, height=box.height)
    for start, end in pairs:
        graph.edge(rows[start], rows[end])
    options = {"direction": direction} | _LAYERS | (_UNREPAIRED if len(pairs) > _edges_repaired_max else {})
    try:
        is_tree = direction == "tree"
        placed = graphlay.layout_tree(graph, options=_TREE) if is_tree else graphlay.layout(graph, options=options)
    except graphlay.GraphlayError:
        if direction == "tree":  # the graph is not a tree
            return _positions(count, pairs, "leftright", box, room)
        # Keep only the first of the forward lines that end at the same box: such a forest has no cycle.
        forest = tuple({end: (start, end) for start, end in reversed(pairs) if start < end}.values())
        corners, _ = _positions(count, forest if len(forest) < len(pairs) else (), direction, box, room)
        return corners, [_straight(corners[start], corners[end], box) for start, end in pairs]
    left, top = (_margin - placed.bounds["min"][axis] for axis in "xy")
    lines = [[(round(point["x"] + left), round(point["y"] + top)) for point in edge["points"]] for edge in placed.edges]
    middles = [(node["center"]["x"] + left, node["center"]["y"] + top) for node in placed.nodes]
    linked = [(round(x - box.width / 2), round(y - box.height / 2)) for x, y in middles]
    # The engine would put all nodes without lines into one column: 80,000 px high for a thousand nodes.
    bottom = max([y + box.height for _, y in linked] + [y for line in lines for _, y in line], default=0) + _gap
    columns = max(4, max([room - _margin, *(x + box.width for x, _ in linked)]) // (box.width + _gap))
    cells = (divmod(position, columns) for position in range(count))
    alone = ((_margin + column * (box.width + _gap), bottom + row * (box.height + _gap)) for row, column in cells)
    return [linked[rows[number]] if number in rows else next(alone) for number in range(count)], lines


def _straight(start: Point, end: Point, box: Box) -> list[Point]:
    """Return the line between the middles of two boxes, from border to border."""
    width, height = end[0] - start[0], end[1] - start[1]
    share = 0.5 / max(abs(width) / box.width, abs(height) / box.height, 0.5)  # the part of the line inside each box
    return [
        (round(x + box.width / 2 + sign * width * share), round(y + box.height / 2 + sign * height * share))
        for (x, y), sign in ((start, 1), (end, -1))
    ]
