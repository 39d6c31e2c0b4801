from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.interfaces.web import rebuild
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from looking import Viewer


def folded(viewer: Viewer) -> None:
    """Wait until the folding in the background has ended."""
    work = viewer.dashboard._rebuild
    assert work is not None
    assert work._thread is not None
    work._thread.join()


@pytest.fixture(autouse=True)
def _every_entry_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "behind_max", 0)


def test_views_that_are_far_behind_are_folded_while_a_page_says_how_far_they_are(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    first = viewer.get("/")
    assert first.status_code == 503
    assert int(first.headers["refresh"]) > 0
    assert "of 5 entries" in first.text
    folded(viewer)
    assert viewer.get("/").status_code == 200
    document = viewer.get("/.json").json()
    assert document["kind"] == "home"


def test_a_program_is_told_how_far_they_are(viewer: Viewer) -> None:
    error = viewer.get("/.json").json()["error"]
    assert (error["code"], error["recoverable"], error["details"]["size"]) == ("BUSY", True, 4)


def test_only_a_search_waits_for_the_views_of_full_text(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "behind_max", 100)
    viewer.page("/")  # folds all views but the full-text one
    monkeypatch.setattr(rebuild, "behind_max", 0)
    assert viewer.get("/").status_code == 200
    assert viewer.get("/search", text="x").status_code == 503
    folded(viewer)
    assert viewer.get("/search", text="x").status_code == 200


def test_what_folding_ran_into_is_said_and_it_is_tried_again(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    work = viewer.dashboard._rebuild
    assert work is not None
    full, calls = Unavailable("STORE_FULL", "the disk is full"), []

    def fails(*, progress):
        calls.append(progress)
        raise full

    monkeypatch.setattr(work.reader, "catch_up", fails)
    assert "being made" in viewer.get("/").text
    folded(viewer)
    assert "the disk is full" in viewer.get("/").text
    monkeypatch.undo()
    monkeypatch.setattr(rebuild, "behind_max", 0)
    assert "being made" in viewer.get("/").text
    folded(viewer)
    assert viewer.get("/").status_code == 200
