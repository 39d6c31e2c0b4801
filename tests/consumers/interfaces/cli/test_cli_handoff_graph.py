"""`deed handoff graph`: the tree that people read, and its pages."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from deedbook.consumers.interfaces.cli.commands.handoff_graph import tree_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]

PARTIES = ("--as", "a", "--to", "b", "--reviewer", "rita")


def chain(deed: Deed, names: list[str]) -> list[str]:
    """Create handoffs, each of which waits for the one before."""
    for number, name in enumerate(names):
        before = ["--depends-on", names[number - 1]] if number else []
        deed("handoff", "create", name, "--title", f"第 {number} 期", "--task", "one", *PARTIES, *before)
    return names


def test_pages_go_on_with_the_command_that_is_printed(deed: Deed, fresh: Fresh) -> None:
    names = chain(deed, [fresh("page one") for _ in range(5)])
    seen: list[str] = []
    arguments = ["handoff", "graph", names[-1], "--limit", "2"]
    while arguments:
        document = deed.document(*arguments)
        seen += [line["id"] for line in document["data"]["lines"]]
        arguments = shlex.split(document.get("next", ""))[1:]
    assert seen == names[::-1]
    text = deed("handoff", "graph", names[-1], "--limit", 2)
    assert "3 of 5 handoffs are left out; continue with --after 2" in text
    assert deed("handoff", "graph", names[-1], "--limit", 2, "--after", 2).startswith(
        f"… below {names[4]} → {names[3]}:"
    )


def node(name: str, **fields: Any) -> dict[str, Any]:
    """Return a node as the query answers it."""
    made = {"id": name, "title": name, "status": "pending", "to": "bob", "is_ready": False}
    return made | {"tasks_done": 0, "tasks_total": 0} | fields


def answer(lines: list[tuple[str, int]], **fields: Any) -> dict[str, Any]:
    """Return an answer of these (id, depth); each occurs for the first time."""
    made = {
        "lines": [{"id": name, "depth": depth, "is_again": False} for name, depth in lines],
        "nodes": [node(name) for name, _ in lines],
        "edges": [],
        "path": [],
        "critical_path": [],
        "totals": {"nodes": len(lines), "edges": 0, "left_out": 0},
        "next": None,
    }
    return made | fields


def test_branches_show_what_goes_on_below() -> None:
    lines = [("r", 0), ("a", 1), ("b", 2), ("c", 1), ("d", 2), ("s", 0), ("t", 1)]
    stems = [line.split("[")[0] for line in tree_text(answer(lines))]
    assert stems == ["", "├─ ", "│  └─ ", "└─ ", "   └─ ", "", "└─ "]


def test_deep_branches_say_how_deep_instead_of_drawing_it() -> None:
    lines = list(tree_text(answer([(f"n{depth}", depth) for depth in range(40)])))
    assert lines[39] == "⋯ 39 deep └─ [pending → bob] n39"
    assert max(map(len, lines)) < 90


def test_long_critical_path_is_shortened_in_the_middle() -> None:
    names = [f"n{number}" for number in range(40)]
    (line,) = [one for one in tree_text(answer([("a", 0)], critical_path=names)) if one.startswith("critical")]
    assert "n5 → … 28 more … → n34" in line
    assert line.startswith("critical path (40): n0 → ")
