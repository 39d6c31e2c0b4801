"""`/`: what waits for the person who looks, the oldest first, and the board of handoffs."""

from __future__ import annotations

from typing import Any, Final

from consumers.doors.dashboard.page import Page, Seen
from consumers.doors.dashboard.pages.handoffs import form_of

items_max: Final = 50
cards_max: Final = 20


def home(seen: Seen) -> Page:
    """Return ``{"items", "total", "opened", "form", "board", "since"}``.

    ``items`` are those of `handoffs.next` for the human, the one that waits longest first; ``since`` says what came
    after this browser was left.
    """
    queue: dict[str, Any] = {"items": [], "total": 0}
    if seen.human is not None:
        queue = seen.ask("handoffs.next", agent=seen.human, limit=items_max)
    items = sorted(queue["items"], key=lambda item: (item["since_index"], item["id"]))
    opened = next((item for item in items if item["id"] == seen.query.get("open")), None)
    columns = seen.ask("handoffs.board", all=True, limit=cards_max)["columns"]
    data = {
        "items": items, "total": queue["total"], "human": seen.human, "opened": opened and opened["id"],
        "form": None if opened is None else form_of(seen, opened["kind"], opened["id"]),
        "columns": [column for column in columns if column["total"]], "since": _since(seen, items),
    }  # fmt: skip
    return Page("home.html", "Needs you", data)


def _since(seen: Seen, items: list[dict[str, Any]]) -> dict[str, int] | None:
    if seen.left is None or seen.as_of is not None or seen.left >= seen.head:
        return None
    needs = sum(item["since_index"] > seen.left for item in items)
    return {"index": seen.left, "events": seen.head - seen.left, "needs_you": needs}
