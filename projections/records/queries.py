"""Queries about imported records: list them, and find the originals that are already in the ledger."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    Arguments,
    ListArguments,
    Listing,
    QueryContext,
    Where,
    list_of,
    page_rows_max,
)
from deedbook.projections.records.answers import ImportedRecord

LISTING: Final = Listing("SELECT * FROM records", "records", "event_index", newest_first=False)


class RecordList(ListArguments, frozen=True):
    """``source`` is a prefix of the origin; ``unmapped`` selects unmapped records."""

    unmapped: bool = False
    source: str = ""
    dirty: bool = False


class ImportSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An original by its ref, and the source it was found in."""

    original: str
    source: str


class OriginalFilter(Arguments, frozen=True):
    """``places`` are the origins to look up in one query."""

    places: Annotated[list[ImportSource], msgspec.Meta(max_length=page_rows_max)]


def list_records(context: QueryContext, args: RecordList) -> Page[ImportedRecord]:
    """Return records in the order of the ledger."""
    where = Where(args)
    where.add("substr(source, 1, ?) = ?", len(args.source), args.source)
    if args.unmapped:
        where.add("mapped_kind IS NULL")
    if args.dirty:
        where.add("dirty > 0")
    return list_of(context, LISTING, where, args, lambda row: ImportedRecord(**row))


def existing_records(context: QueryContext, args: OriginalFilter) -> Page[ImportedRecord]:
    """Return the record of each original that is in the ledger already.

    Of several records (two agents may import at once, and one may leave unmapped what the other maps) it is the latest
    that is mapped.
    """
    sql = (
        "SELECT * FROM records WHERE original = ? AND source = ? ORDER BY mapped_kind IS NULL, event_index DESC LIMIT 1"
    )
    rows = [row for source in args.places for row in context.rows(sql, (source.original, source.source))]
    return Page(items=[ImportedRecord(**row) for row in rows], total=len(rows))
