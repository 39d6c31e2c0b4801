"""Questions about imported records: list them, and say which originals stand in the ledger already."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from projections.query import Answer, Arguments, Listing, Moment, Page, Where, list_of, page_rows_max

LISTING: Final = Listing("SELECT * FROM records", "records", "event_index", newest_first=False)


class RecordList(Page, frozen=True):
    """Filters: ``source`` is the beginning of where it was found, ``format`` what it was read as, or up to a ``/``.

    ``kept_aside``: only what stands for nothing here, or (false) only what stands for something.
    """

    kept_aside: bool | None = None
    mapped: str | None = None
    format: str | None = None
    source: str | None = None
    importer: str | None = None
    stream: str | None = None
    dirty: bool = False


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An original by its ref, and where it was found."""

    original: str
    source: str


class Places(Arguments, frozen=True):
    """What is asked for at once."""

    places: Annotated[list[Place], msgspec.Meta(max_length=page_rows_max)]


def list_records(moment: Moment, asked: RecordList) -> Answer:
    """Return ``{"records", "total", "next"}``, in the order of the ledger."""
    where = Where(asked, "importer", "stream")
    if asked.kept_aside is not None:
        where.add(f"mapped_kind IS {'' if asked.kept_aside else 'NOT '}NULL")
    where.equal("mapped_kind", asked.mapped)
    if asked.format is not None:  # `empirica` means all of its kinds of notes
        kinds = f"{asked.format.rstrip('/')}/"
        where.add("(format = ? OR substr(format, 1, ?) = ?)", asked.format, len(kinds), kinds)
    if asked.source is not None:
        where.add("substr(source, 1, ?) = ?", len(asked.source), asked.source)
    if asked.dirty:
        where.add("dirty > 0")
    return list_of(moment, LISTING, where, asked, of="records")


def existing_records(moment: Moment, asked: Places) -> Answer:
    """Return ``{"records"}``: for each place whose original is in the ledger already, its record.

    Of several (two may import at once, and one keep aside what the other maps) the latest that stands for something.
    """
    sql = (
        "SELECT * FROM records WHERE original = ? AND source = ? ORDER BY mapped_kind IS NULL, event_index DESC LIMIT 1"
    )
    return {"records": [row for place in asked.places for row in moment.rows(sql, (place.original, place.source))]}
