"""Drawings: in every graph, each box has its own area, and each line leads from border to border."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deedbook.consumers.interfaces.dashboard import layout
from deedbook.consumers.interfaces.dashboard.layout import Box, Edge, Node, layered

NODES = st.integers(0, 40)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Edge]]:
    """Draw any graph: cycles, self loops, the same line twice, lines to missing nodes."""
    count = draw(NODES)
    labels = st.text(max_size=8) | st.sampled_from(["<script>", "全文检索：两字词", "a" * 10_000, "\u202e", "]]>", "&"])
    nodes = [Node(f"n{number}", draw(labels)) for number in range(count)]
    ends = st.integers(0, count + 1).map("n{}".format)
    return nodes, [Edge(*pair) for pair in draw(st.lists(st.tuples(ends, ends), max_size=80))]


def is_on_border(point: tuple[int, int], node: dict[str, Any]) -> bool:
    """Return whether a point is on the border of a box, to the pixel."""
    x, y = point[0] - node["x"], point[1] - node["y"]
    inside = -1 <= x <= node["w"] + 1 and -1 <= y <= node["h"] + 1
    return inside and min(abs(x), abs(y), abs(x - node["w"]), abs(y - node["h"])) <= 1


def check(nodes: list[Node], edges: list[Edge], drawing: dict[str, Any]) -> None:
    """Check the invariants of every drawing."""
    boxes = {node["id"]: node for node in drawing["nodes"]}
    assert list(boxes) == [node.id for node in nodes]
    for node in boxes.values():
        assert 0 <= node["x"] <= drawing["width"] - node["w"]
        assert 0 <= node["y"] <= drawing["height"] - node["h"]
    for one, other in combinations(sorted(boxes.values(), key=lambda node: node["x"]), 2):
        apart = abs(one["x"] - other["x"]) >= one["w"] or abs(one["y"] - other["y"]) >= one["h"]
        assert apart, (one, other)
    known = [(edge.start, edge.end) for edge in edges if edge.start in boxes and edge.end in boxes]
    assert [(edge["from"], edge["to"]) for edge in drawing["edges"]] == known
    for edge in drawing["edges"]:
        points = edge["points"]
        assert len(points) >= 2
        assert is_on_border(points[0], boxes[edge["from"]]), edge
        assert is_on_border(points[-1], boxes[edge["to"]]), edge
        assert all(0 <= x <= drawing["width"] and 0 <= y <= drawing["height"] for x, y in points)


def of(count: int, *pairs: tuple[int, int]) -> tuple[list[Node], list[Edge]]:
    return [Node(f"n{number}", "") for number in range(count)], [Edge(f"n{a}", f"n{b}") for a, b in pairs]


@settings(max_examples=60)
@given(graphs(), st.sampled_from(["leftright", "topbottom", "tree"]), st.sampled_from([0, 400, 806]))
@example(of(3, (0, 1), (1, 2), (2, 0)), "leftright", 0)
@example(of(1, (0, 0)), "topbottom", 806)
@example(of(0), "leftright", 806)
@example(of(4, (0, 2), (1, 2), (2, 3)), "tree", 806)  # this graph is no tree
@example(of(35, *combinations(range(35), 2)), "leftright", 0)  # more waypoints than are passed to the engine
def test_every_box_has_its_own_place_and_every_line_leads_from_border_to_border(
    graph: tuple[list[Node], list[Edge]], direction: layout.Direction, room: int
) -> None:
    drawing = layered(*graph, direction, room=room)
    check(*graph, drawing)
    layout._positions.cache_clear()
    assert json.dumps(layered(*graph, direction, room=room)) == json.dumps(drawing)


@pytest.mark.parametrize("direction", ["leftright", "topbottom", "tree"])
def test_boxes_are_as_wide_as_the_room_allows(direction: layout.Direction) -> None:
    graph, box = of(4, (0, 1), (0, 2), (2, 3)), Box(120, 56, width_max=240)
    widths = []
    for room in (0, 500, 600, 3_000):
        drawing = layered(*graph, direction, box, room)
        widths.append(drawing["nodes"][0]["w"])
        assert drawing["width"] <= room or widths[-1] == box.width
    assert widths == sorted(widths)
    assert (widths[0], widths[-1]) == (box.width, box.width_max)
    assert len(set(widths)) > 2


def test_a_drawing_whose_row_has_no_room_runs_from_left_to_right() -> None:
    wide = of(6, *((number, 5) for number in range(5)))
    for room, columns in ((1_200, 5), (500, 2)):
        drawing = layered(*wide, "topbottom", Box(180, 88), room)
        assert drawing["width"] <= room
        assert len({node["x"] for node in drawing["nodes"][:5]}) == (5 if columns == 5 else 1)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, number) for number in range(1, 1_000)],
        [(number, number + 1) for number in range(999)],
        [(number % 31, number) for number in range(31, 1_000)],
        [],
    ],
    ids=["one for all", "a row", "many for many", "alone"],
)
def test_a_thousand_boxes_are_placed(pairs: list[tuple[int, int]]) -> None:
    graph = of(1_000, *pairs)
    drawing = layered(*graph)
    assert len({(node["x"], node["y"]) for node in drawing["nodes"]}) == 1_000
    boxes = {node["id"]: node for node in drawing["nodes"]}
    assert len(drawing["edges"]) == len(pairs)
    assert all(is_on_border(edge["points"][-1], boxes[edge["to"]]) for edge in drawing["edges"])


def test_a_chain_runs_from_left_to_right_or_from_top_to_bottom() -> None:
    graph = of(3, (0, 1), (1, 2))
    for direction, axis in (("leftright", "x"), ("topbottom", "y")):
        places = [node[axis] for node in layered(*graph, direction)["nodes"]]  # type: ignore[arg-type] - one of both
        assert all(one < other for one, other in pairwise(places))
    root, *children = layered(*of(3, (0, 1), (0, 2)), "tree")["nodes"]
    assert root["y"] == (children[0]["y"] + children[1]["y"]) / 2


def test_boxes_without_lines_stand_in_rows_below() -> None:
    drawing = layered(*of(12, (0, 1)), box=Box(100, 20))
    rows = {node["y"] for node in drawing["nodes"][2:]}
    assert len(rows) == 3
    assert min(rows) > max(node["y"] for node in drawing["nodes"][:2])


def test_what_stands_in_a_box_changes_no_place_and_costs_no_second_layout() -> None:
    layout._positions.cache_clear()
    plain, marked = layered(*of(2, (0, 1))), layered([Node("a", "x" * 99), Node("b", "")], [Edge("a", "b", "holds")])
    assert [(one["x"], one["y"]) for one in plain["nodes"]] == [(one["x"], one["y"]) for one in marked["nodes"]]
    assert layout._positions.cache_info().hits == 1
    assert layout._positions.cache_info().maxsize == layout.drawings_cached_max
