"""`/s`, `/r`, `/h`, `/reports`, `/reviews`: all sessions, reasonings, handoffs, reports or reviews, page by page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from deedbook.consumers.interfaces.dashboard import rows
from deedbook.consumers.interfaces.dashboard.facets import read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext

rows_max: Final = 50


class ThingList(NamedTuple):
    """A list: its path, its title, its query with fixed arguments, the row of an item, and the facets that it has.

    ``types`` are the events whose agents can be chosen, and ``agent`` the argument for the chosen one.
    """

    path: str
    title: str
    query: str
    row: Callable[[Mapping[str, Any]], rows.Row]
    types: tuple[str, ...]
    fields: tuple[str, ...] = ("since", "until", "agent")
    arguments: Mapping[str, Any] = {}
    agent: str = "agent"


LISTS: Final = {
    "sessions": ThingList("/s", "Sessions", "sessions.list", rows.session, ("session.started", "finding.logged")),
    "reports": ThingList("/reports", "Reports", "reports.list", rows.report, ("report.generated",)),
    "reasonings": ThingList(
        *("/r", "Reasonings", "reasoning.list", rows.reasoning, ("reasoning.started",)),
        ("since", "until", "agent", "tag"),
        {"by_change": True},
    ),
    "handoffs": ThingList(
        *("/h", "Handoffs", "handoffs.list", rows.handoff, ("handoff.created",), ("since", "until", "agent", "tag")),
        {"history": "shown", "by_change": True},
    ),
    "reviews": ThingList(
        *("/reviews", "Reviews", "reviews.list", rows.review, ("review.requested",)),
        arguments={"newest": True},
        agent="author",
    ),
}


PATHS: Final = {name: listed.path for name, listed in LISTS.items()}


def list_page(name: str, context: PageContext) -> Page:
    """Return ``{"rows", "total", "next", "before", "facets", "name", "lists"}``, newest first."""
    listed = LISTS[name]
    facets = read(context, listed.path, fields=listed.fields)
    before = context.number("before")
    filters = {field: facets.arguments[field] for field in listed.fields}
    counts = context.ask("catalog.facets", types=list(listed.types), **filters)
    for value in (*counts["agents"], *counts["tags"]):
        value["number"] = None  # it counts events, and the list is of what they are about
    filters[listed.agent] = filters.pop("agent")
    answer = context.ask(listed.query, after=before, limit=rows_max, **filters, **listed.arguments)
    items, total = rows.items_of(answer)
    data = {
        "name": name,
        "rows": [listed.row(item) for item in items],
        "total": total,
        "next": answer["next"],
        "before": before,
        "facets": facets.form(counts),
        "lists": PATHS,
    }
    return Page("list.html", listed.title, data)
