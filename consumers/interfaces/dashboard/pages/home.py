"""`/`: the queue of decisions for the user, oldest first, and the board of handoffs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from deedbook.consumers.handoffs.operations import with_commands
from deedbook.consumers.handoffs.unread import COMMAND, peek
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext, address
from deedbook.consumers.interfaces.dashboard.pages.decisions import receipt_at
from deedbook.consumers.interfaces.dashboard.pages.evidence import with_doubts
from deedbook.consumers.interfaces.dashboard.pages.handoffs import form_of
from deedbook.consumers.interfaces.dashboard.pages.questions import ACTIONS, question_form
from deedbook.ledger.errors import Refused

items_max: Final = 30
cards_max: Final = 12
listed_max: Final = 50


def home(context: PageContext, note: str = "", problem: dict[str, Any] | None = None, status: int = 200) -> Page:
    """Return the data of the page.

    ``items`` are those of `handoffs.next` for the human, questions to them first, then the oldest first; items that
    only an imported file claims come last. The item ``?open=`` is ``opened``; ``following`` is opened after a decision
    about it, and the ``doubts`` of an item are the checks of its reasonings. ``missed`` says what became of the
    handoff in ``?open=`` that no item is about. ``filters`` are those of the address, and ``counts`` the answer of
    `handoffs.counts` for them. ``done`` is the receipt of the decision ``?done=``, and ``problem`` says why nothing was
    signed. ``unread`` are the first unread lines, which stay unread.
    ``since`` counts the events since the user went away. ``?status=`` shows that column alone, page by page, and
    ``older`` is the cursor of the next page. ``history`` counts the imported handoffs that claim to be over, which are
    on no board; ``?status=pending&over=1`` shows them.
    """
    filters, queue, counts = _queue(context)
    items = _in_order(with_doubts(context, with_commands(queue)["items"]))
    opened = _opened(items, context.query.get("open"))
    done = receipt_at(context, index) if (index := context.number("done")) is not None else None
    column, older, is_over = context.query.get("status") or None, None, bool(context.query.get("over"))
    if column is None:
        answer = context.ask("handoffs.board", all=True, limit=cards_max)
        columns = answer["columns"]
    else:
        shown = {"status": column, "history": "only" if is_over else "hidden"}
        answer = context.ask("handoffs.list", **shown, after=context.number("before"), limit=listed_max)
        rows, older = [row | {"why": "", "reasons_more": 0} for row in answer["items"]], answer["next"]
        columns = [{"status": column, "total": answer["total"], "handoffs": rows}]
    place = {**filters, "after": context.query.get("after")}
    data = {
        "items": items,
        "total": queue["total"],
        "next": queue["next"],
        "after": place["after"],
        "place": place,
        "queue_query": address("", place, open=opened and opened["key"]).removeprefix("?"),
        "human": context.human,
        "filters": filters,
        "is_filtered": any(filters.values()),
        "counts": counts,
        "opened": opened and opened["key"],
        "missed": _missed(context) if opened is None and done is None else None,
        "following": _following(items, opened),
        "form": None if opened is None else _form(context, opened, note),
        "done": done,
        "problem": problem,
        "columns": [part for part in columns if part["total"]],
        "since": _since(context, items),
        "unread": _unread(context),
        "status": column,
        "older": older,
        "over": "1" if is_over else None,
        "history": answer["history"],
    }
    return Page("home.html", "Needs you", data, status, "/" if problem else "")


def _queue(context: PageContext) -> tuple[dict[str, str | None], dict[str, Any], dict[str, Any] | None]:
    """Return the filters of the address, a page of the human's queue, and the numbers of its items."""
    query = context.query
    filters = {name: query.get(name) or None for name in ("action", "from", "text", "imported")}
    if context.human is None:
        return filters, {"items": [], "total": 0, "next": None}, None
    args: dict[str, Any] = {"agent": context.human, **filters}
    if filters["imported"] is not None:
        args["imported"] = filters["imported"] == "1"
    queue = context.ask("handoffs.next", **args, limit=items_max, after=query.get("after") or None)
    return filters, queue, context.ask("handoffs.counts", **args)


def _form(context: PageContext, item: dict[str, Any], note: str) -> dict[str, Any] | None:
    if item["action"] in ACTIONS:
        return question_form(context, item, note)
    return form_of(context, item["kind"], item["id"], note)


def _following(items: list[dict[str, Any]], opened: dict[str, Any] | None) -> str | None:
    """Return the item to open after a decision about the opened one: the next on the page, else the first.

    Imported items come only after all others, unless the opened item is imported itself.
    """
    if opened is None:
        return None
    at = items.index(opened)
    others = [item for item in items[at + 1 :] + items[:at] if item["id"] != opened["id"]]
    others.sort(key=lambda item: item["is_imported"] and not opened["is_imported"])
    return next((item["key"] for item in others), None)


def _in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items in order. Imported items with the same title are together, and ``alike`` is their number.

    An imported file may list the same work once for each receiver. The ``key`` of an item is its id and its action.
    """
    ordered = sorted(items, key=_order)
    alike = Counter(item["title"] for item in ordered if item["is_imported"])
    first = {item["title"]: at for at, item in reversed([*enumerate(ordered)])}
    ordered.sort(key=lambda item: (item["is_imported"], first[item["title"]] if item["is_imported"] else 0))
    for item in ordered:
        item["key"] = f"{item['id']}:{item['action']}"
        item["alike"] = alike[item["title"]] if item["is_imported"] else 1
    return ordered


def _opened(items: list[dict[str, Any]], name: str | None) -> dict[str, Any] | None:
    """Return the item of a key, else the first item of an id."""
    return next((item for of in ("key", "id") for item in items if item[of] == name), None)


def _missed(context: PageContext) -> dict[str, Any] | None:
    """Return ``id`` and ``sentence`` of the handoff that the address names and that no longer waits here."""
    name = context.query.get("open")
    if name is None or context.human is None or context.as_of is not None:
        return None
    for id_ in dict.fromkeys((name.rpartition(":")[0], name)):
        with suppress(Refused):
            return {"id": id_, "sentence": context.ask("handoffs.why", id=id_)["sentence"]}
    return None


def _order(item: Mapping[str, Any]) -> tuple[bool, bool, int, str]:
    return item["is_imported"], item["action"] != "answer", item["since_index"], item["id"]


def _unread(context: PageContext) -> dict[str, Any] | None:
    if context.human is None or context.as_of is not None or context.query.get("after"):
        return None
    unread = peek(context.view, context.settings.home, context.human, items_max)
    return {**unread, "command": f"{COMMAND} --as {context.human}"} if unread["items"] else None


def _since(context: PageContext, items: list[dict[str, Any]]) -> dict[str, int] | None:
    if context.left is None or context.as_of is not None or context.left >= context.head:
        return None
    needs = sum(item["since_index"] > context.left for item in items)
    return {"index": context.left, "events": context.head - context.left, "needs_you": needs}
