"""`/`: the queue of decisions for the user, oldest first, and the board of handoffs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deedbook.consumers.handoffs.operations import with_commands
from deedbook.consumers.handoffs.unread import COMMAND, peek
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.handoffs import form_of

items_max: Final = 30
cards_max: Final = 12
listed_max: Final = 50


def home(context: PageContext) -> Page:
    """Return the data of the page.

    ``items`` are those of `handoffs.next` for the human, questions to them first, then the oldest first; items that
    only an imported file claims come last. ``unread`` are the first unread lines, which stay unread. ``since`` counts
    the events since the user went away. ``?status=`` shows that column alone, page by page, and ``older`` is the cursor
    of the next page. ``history`` counts the imported handoffs that claim to be over, which are on no board;
    ``?status=pending&over=1`` shows them.
    """
    queue: dict[str, Any] = {"items": [], "total": 0, "next": None}
    if context.human is not None:
        queue = context.ask(
            "handoffs.next", agent=context.human, limit=items_max, after=context.query.get("after") or None
        )
    items = sorted(with_commands(queue)["items"], key=_order)
    opened = next((item for item in items if item["id"] == context.query.get("open")), None)
    status, older, is_over = context.query.get("status") or None, None, bool(context.query.get("over"))
    if status is None:
        answer = context.ask("handoffs.board", all=True, limit=cards_max)
        columns = answer["columns"]
    else:
        filters = {"status": status, "history": "only" if is_over else "hidden"}
        answer = context.ask("handoffs.list", **filters, after=context.number("before"), limit=listed_max)
        rows, older = [row | {"why": ""} for row in answer["items"]], answer["next"]
        columns = [{"status": status, "total": answer["total"], "handoffs": rows}]
    data = {
        "items": items,
        "total": queue["total"],
        "next": queue["next"],
        "after": context.query.get("after"),
        "human": context.human,
        "opened": opened and opened["id"],
        "form": None if opened is None else _form(context, opened),
        "columns": [column for column in columns if column["total"]],
        "since": _since(context, items),
        "unread": _unread(context),
        "status": status,
        "older": older,
        "over": "1" if is_over else None,
        "history": answer["history"],
    }
    return Page("home.html", "Needs you", data)


def _form(context: PageContext, item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the form of an item; a question is answered in a terminal."""
    return None if item["kind"] == "question" else form_of(context, item["kind"], item["id"])


def _order(item: Mapping[str, Any]) -> tuple[bool, bool, int, str]:
    return item["is_imported"], item["action"] != "answer", item["since_index"], item["id"]


def _unread(context: PageContext) -> dict[str, Any] | None:
    if context.human is None or context.as_of is not None or context.query.get("after"):
        return None
    unread = peek(context.view, context.settings.home, context.human)
    return {**unread, "command": f"{COMMAND} --as {context.human}"} if unread["items"] else None


def _since(context: PageContext, items: list[dict[str, Any]]) -> dict[str, int] | None:
    if context.left is None or context.as_of is not None or context.left >= context.head:
        return None
    needs = sum(item["since_index"] > context.left for item in items)
    return {"index": context.left, "events": context.head - context.left, "needs_you": needs}
