"""`/s`, `/r`, `/h`, `/reports`, `/reviews`: all sessions, reasonings, handoffs, reports or reviews, page by page."""

from __future__ import annotations

from typing import Final, NamedTuple

from deedbook.consumers.interfaces.dashboard import rows
from deedbook.consumers.interfaces.dashboard.facets import read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext

rows_max: Final = 50


class ThingList(NamedTuple):
    """A list: its path, its title, the source of its rows, and the facets that it has.

    ``types`` are the events whose agents can be chosen.
    """

    path: str
    title: str
    source: rows.Source
    types: tuple[str, ...]
    fields: tuple[str, ...] = ("since", "until", "agent")


_SESSIONS: Final = rows.Source("sessions.list", rows.session)
_REVIEWS: Final = rows.Source("reviews.list", rows.review, {"newest": True}, agent="author")
_TAGGED: Final = ("since", "until", "agent", "tag")
LISTS: Final = {
    "sessions": ThingList("/s", "Sessions", _SESSIONS, ("session.started", "finding.logged")),
    "reports": ThingList("/reports", "Reports", rows.REPORTS, ("report.generated",)),
    "reasonings": ThingList("/r", "Reasonings", rows.REASONINGS, ("reasoning.started",), _TAGGED),
    "handoffs": ThingList("/h", "Handoffs", rows.HANDOFFS, ("handoff.created",), _TAGGED),
    "reviews": ThingList("/reviews", "Reviews", _REVIEWS, ("review.requested",)),
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
        value["number"] = None  # it counts events, but the list shows the things that they are about
    page = listed.source.page(context, after=before, limit=rows_max, **filters)
    data = page | {"name": name, "before": before, "facets": facets.form(counts), "lists": PATHS}
    return Page("list.html", listed.title, data)
