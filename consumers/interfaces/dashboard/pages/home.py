"""`/`: what waits for the person who looks, the oldest first, and the board of handoffs."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.consumers.interfaces.dashboard.pages.handoffs import form_of

items_max: Final = 30
cards_max: Final = 12
listed_max: Final = 50


def home(seen: Seen) -> Page:
    """Return ``{"items", "total", "after", "next", "human", "opened", "form", "columns", "status", "older", "since"}``.

    ``items`` are those of `handoffs.next` for the human, the one that waits longest first, and those that only an
    imported file claims behind them; ``since`` says what came after this browser was left. With ``?status=`` there is
    that column alone, page by page, and the older ones come after ``older``.
    """
    queue: dict[str, Any] = {"items": [], "total": 0, "next": None}
    if seen.human is not None:
        queue = seen.ask("handoffs.next", agent=seen.human, limit=items_max, after=seen.query.get("after") or None)
    items = sorted(queue["items"], key=lambda item: (item["is_imported"], item["since_index"], item["id"]))
    opened = next((item for item in items if item["id"] == seen.query.get("open")), None)
    status, older = seen.query.get("status") or None, None
    if status is None:
        columns = seen.ask("handoffs.board", all=True, limit=cards_max)["columns"]
    else:
        listed = seen.ask("handoffs.list", status=status, after=seen.number("before"), limit=listed_max)
        rows, older = [row | {"why": ""} for row in listed["handoffs"]], listed["next"]
        columns = [{"status": status, "total": listed["total"], "handoffs": rows}]
    data = {
        "items": items,
        "total": queue["total"],
        "next": queue["next"],
        "after": seen.query.get("after"),
        "human": seen.human,
        "opened": opened and opened["id"],
        "form": None if opened is None else form_of(seen, opened["kind"], opened["id"]),
        "columns": [column for column in columns if column["total"]],
        "since": _since(seen, items),
        "status": status,
        "older": older,
    }
    return Page("home.html", "Needs you", data)


def _since(seen: Seen, items: list[dict[str, Any]]) -> dict[str, int] | None:
    if seen.left is None or seen.as_of is not None or seen.left >= seen.head:
        return None
    needs = sum(item["since_index"] > seen.left for item in items)
    return {"index": seen.left, "events": seen.head - seen.left, "needs_you": needs}
