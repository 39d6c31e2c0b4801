from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import tot_story as told
from tot_story import BEST, NODES, STORY, TASK

if TYPE_CHECKING:
    from looking import Viewer

PATH = f"/t/{TASK}"


@pytest.fixture
def start(viewer: Viewer) -> int:
    """Play the whole story; return the index of its first event."""
    told.register(viewer.ledger)
    size = viewer.ledger.client().head().size
    told.play(viewer.ledger)
    return int(size)


def marks(shown: dict[str, Any]) -> dict[str, str]:
    return {node["id"]: node["mark"] for node in shown["nodes"]}


def test_a_tree_is_drawn_with_its_best_path_and_what_was_pruned(viewer: Viewer, start: int) -> None:
    shown = viewer.data(PATH)
    assert {node["id"] for node in shown["drawing"]["nodes"]} == set(NODES)
    assert [name for name, mark in marks(shown).items() if mark == "best"] == BEST
    assert {edge["state"] for edge in shown["drawing"]["edges"] if edge["to"] in BEST} == {"ok"}
    assert marks(shown)["node_3_1"] == "pruned"
    assert next(node for node in shown["drawing"]["nodes"] if node["id"] == "node_3_1")["is_faded"]
    last = start + len(STORY) - 1
    assert shown["steps"] == {"first": start, "previous": last - 1, "next": None, "last": last, "all": len(STORY)}


def test_a_tree_is_scrubbed_by_the_index_of_the_log(viewer: Viewer, start: int) -> None:
    seen = []
    end = start + len(STORY) - 1
    for index in (start, start + 1, *range(start + 2, end, 5), end):
        shown = viewer.data(PATH, at=index)
        assert shown["steps"]["previous"] == (index - 1 if index > start else None)
        assert shown["steps"]["next"] == (index + 1 if index < end else None)
        seen.append((len(shown["nodes"]), shown["task"]["status"], set(marks(shown).values())))
    assert [count for count, _, _ in seen] == sorted(count for count, _, _ in seen)
    assert (seen[0], seen[-1][:2]) == ((0, "started", set()), (len(NODES), "solved"))
    assert any("frontier" in found for _, _, found in seen)
    assert "frontier" not in seen[-1][2]


def test_steps_are_links_and_a_form_that_need_no_script(viewer: Viewer, start: int) -> None:
    page = viewer.page(PATH, at=start + 3)
    for index in (start, start + 2, start + 4, start + len(STORY) - 1):
        assert f'href="{PATH}?at={index}"' in page
    assert re.search(rf'<form action="{PATH}">.*<input type="range" name="at"[^>]* value="{start + 3}">', page)
    assert viewer.get(PATH, at=start - 1).status_code == 404
    assert viewer.get(PATH, at=10**9).status_code == 404
    assert viewer.get(PATH, at="now").status_code == 400
    assert viewer.get("/t/tot-none").status_code == 404


def test_the_past_of_a_tree_is_scrubbed_within_the_moment_that_is_looked_at(viewer: Viewer, start: int) -> None:
    shown = viewer.data(PATH, as_of=start + 5)
    assert (shown["at"], shown["steps"]["last"], shown["steps"]["all"]) == (start + 5, start + 5, 6)
    assert f"as_of={start + 5}" in viewer.page(PATH, as_of=start + 5)
    assert viewer.get(PATH, as_of=start + 5, at=start + 6).status_code == 404


def test_problems_that_are_searched_are_listed(viewer: Viewer) -> None:
    assert "deed tot run" in viewer.page("/t")
    told.register(viewer.ledger)
    told.play(viewer.ledger)
    assert f'href="{PATH}"' in viewer.page("/t")
