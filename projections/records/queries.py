"""Questions about imported records: list them, and say which originals stand in the ledger already."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from deedbook.projections.answers.query import (
    Answer,
    Arguments,
    Listing,
    Page,
    QueryContext,
    Where,
    list_of,
    page_rows_max,
)

LISTING: Final = Listing("SELECT * FROM records", "records", "event_index", newest_first=False)


class RecordList(Page, frozen=True):
    """Filters: ``source`` is the beginning of where it was found, ``unmapped`` asks for unmapped records only."""

    unmapped: bool = False
    source: str = ""
    dirty: bool = False


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An original by its ref, and where it was found."""

    original: str
    source: str


class Places(Arguments, frozen=True):
    """What is asked for at once."""

    places: Annotated[list[Place], msgspec.Meta(max_length=page_rows_max)]


def list_records(context: QueryContext, args: RecordList) -> Answer:
    """Return ``{"records", "total", "next"}``, in the order of the ledger."""
    where = Where(args)
    where.add("substr(source, 1, ?) = ?", len(args.source), args.source)
    if args.unmapped:
        where.add("mapped_kind IS NULL")
    if args.dirty:
        where.add("dirty > 0")
    return list_of(context, LISTING, where, args, of="records")


def existing_records(context: QueryContext, args: Places) -> Answer:
    """Return ``{"records"}``: for each place whose original is in the ledger already, its record.

    Of several (two may import at once, and one cannot map what the other maps) the latest that stands for something.
    """
    sql = (
        "SELECT * FROM records WHERE original = ? AND source = ? ORDER BY mapped_kind IS NULL, event_index DESC LIMIT 1"
    )
    return {"records": [row for place in args.places for row in context.rows(sql, (place.original, place.source))]}
