from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from looking import Viewer


def test_what_waits_stands_first_the_oldest_above(viewer: Viewer) -> None:
    for name in ("one", "two"):
        viewer.ledger.clock.advance(60)
        data = viewer.ledger.hand_over(name, title="a title")
    shown = viewer.data("/")
    assert [(item["id"], item["action"]) for item in shown["items"]] == [("one", "approve"), ("two", "approve")]
    assert shown["items"][0]["version"] == compute_version("alice", data)
    page = viewer.page("/")
    assert page.index('id="q-one"') < page.index('id="q-two"')


def test_markup_in_a_title_stays_text(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="<script>alert(1)</script>")
    page = viewer.page("/")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert not re.search(r"\sstyle=|\son\w+=", page)
