"""Queries about events: find them, and resolve an abbreviated ref."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import replace

from deedbook.projections.answers import query
from deedbook.projections.answers.answer import Page
from deedbook.projections.catalog.answers import ListedEvent, Reference, ShownEvent, SkippedEntry
from deedbook.projections.catalog.facets import FacetListArguments, Types, narrow, of_types
from deedbook.projections.catalog.words import did, words_of
from deedbook.projections.stores.store import skipped_table
from deedbook.projections.views.registry import EAGER_VERSIONS

INDEX: Final = r"0|[1-9][0-9]{0,17}"  # within SQL's integers; with a leading zero it is hex digits

_SKIPPED_SELECTS: Final = [
    f"SELECT {rank} AS view_rank, '{view}' AS view, * FROM {skipped_table(view).name}"  # noqa: S608 - fixed names
    for rank, view in enumerate(EAGER_VERSIONS)
]
_SKIPPED_SQL: Final = f"{' UNION ALL '.join(_SKIPPED_SELECTS)} ORDER BY view_rank, event_index"
LISTING: Final = query.Listing("SELECT e.* FROM events e", "events e", "e.event_index", newest_first=False)


class EventFilter(FacetListArguments, frozen=True):
    """The filters of a list of events. The page begins after the index ``after``; ``newest`` puts the newest first.

    ``kind`` and ``author`` are those of the signed entries, also for imported records; ``type`` and ``agent`` are what
    these records claim. With ``by_title`` an entry that gives a thing its title or task is about all events of it.
    """

    kind: str | None = None
    stream: str | None = None
    author: str | None = None
    corr: str | None = None
    types: Types | None = None
    entries: query.Entries | None = None
    by_title: bool = False
    newest: bool = False


def matching_events(context: query.QueryContext, reference: str) -> list[dict[str, Any]]:
    """Return the events that a reference may mean.

    If the reference is the index of an event, that is the only one. Otherwise they are the events whose id or whose
    body's SHA-256 begins with it, at most eleven by each.
    """
    events: list[dict[str, Any]] = []
    if re.fullmatch(INDEX, reference) and (
        rows := context.rows("SELECT * FROM events WHERE event_index = ?", (int(reference),))
    ):
        return rows
    for column, algorithm in (("id", "event"), ("body_ref", "sha256")):
        events += query.by_ref(context, "SELECT * FROM events", column, algorithm, reference)
    return events


def list_skipped(context: query.QueryContext, _args: query.Arguments) -> Page[SkippedEntry]:
    """Return all inadmissible entries that views skipped, in the order of the log."""
    entries: dict[int, SkippedEntry] = {}
    for row in context.cached(_SKIPPED_SQL):
        index = row["event_index"]
        entry = SkippedEntry(index=index, code=row["code"], message=row["message"], views=[])
        entries.setdefault(index, entry).views.append(row["view"])
    return Page(items=[entries[index] for index in sorted(entries)], total=len(entries))


def show_event(context: query.QueryContext, args: query.ById) -> ShownEvent:
    """Return an event by its index, its id, its body's SHA-256, or 12 digits of either."""
    events = {row["event_index"]: row for row in matching_events(context, args.id)}
    names = [row["body_ref"] if args.id.startswith("sha256:") else row["id"] for row in events.values()]
    query.only_match(names, args.id, "event")
    (row,) = _in_words(context, events.values())
    sql = "SELECT ref, via FROM event_refs WHERE event_index = ? ORDER BY position"
    return ShownEvent(**row, refs=[Reference(**reference) for reference in context.rows(sql, (row["event_index"],))])


def find_events(context: query.QueryContext, args: EventFilter) -> Page[ListedEvent]:
    """Return events in the order of the log or reversed."""
    listing = replace(LISTING, newest_first=args.newest)
    where = of_types(narrow(query.Where(args, "kind", "stream", "author", "corr"), args), args.types)
    where.of_entries("e.event_index", args.entries, titled="e.stream" if args.by_title else "")
    skipped = {entry.index: entry.code for entry in list_skipped(context, args).items}
    rows, total, following = query.page_of(context, listing, where, args.after, args.limit)
    items = [ListedEvent(**row, skipped=skipped.get(row["event_index"])) for row in _in_words(context, rows)]
    return Page(items=items, total=total, next=following)


def _in_words(context: query.QueryContext, rows: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of events with the fields of ``EventInWords``."""
    words = words_of(context, (row["event_index"] for row in rows))
    texts = ((row, words[row["event_index"]]) for row in rows)
    return [row | {"did": did(row, text.line), "title": text.title} for row, text in texts]


def needed_blobs(context: query.QueryContext) -> list[str]:
    """Return the refs of the blobs without which an event is incomplete, in the order of the log."""
    sql = "SELECT ref, MIN(event_index) AS first FROM event_refs WHERE via = 'blob' GROUP BY ref ORDER BY first"
    return [row["ref"] for row in context.rows(sql, ())]
