"""The one question of search: which events say this? (DESIGN §8, §13 ``baton search TEXT``).

Hits are ranked by bm25, the newest first among equals. A page's cursor holds how long the log was at the first page,
and how many hits were shown: events appended between two pages shift nothing and are counted by none, whatever they
say. (Only their weight in bm25's averages is not undone: between two hits of nearly the same rank it may change who is
first. A question asked anew sees everything.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from ledger.errors import Refused
from ledger.limits import json_integer_max
from projections.query import Arguments, Query, Where
from projections.search.asking import SORTS, expression_of, terms_of
from projections.search.excerpts import excerpt_of

if TYPE_CHECKING:
    from projections.query import Answer, Moment

text_max_chars: Final = 10_240
hits_max: Final = 200
hits_reached_max: Final = 1_000_000

Asked: TypeAlias = Annotated[str, msgspec.Meta(max_length=text_max_chars, description="Words, phrases, beginnings*.")]
Hits: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=hits_max, description="Hits of a page.")]
Sorts: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=len(SORTS), description="Only these streams.")]
Cursor: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=json_integer_max, description="The next of a page.")]


class SearchText(Arguments, frozen=True):
    """What to look for, on which sorts of streams, by whom; ``after`` is the ``next`` of the page before."""

    text: Asked
    sort: Sorts | None = None
    author: str | None = None
    limit: Hits = 20
    after: Cursor | None = None


def find_text(moment: Moment, asked: SearchText) -> Answer:
    """Return ``{"hits", "total", "next"}``: each hit an event, and at most 200 characters of it around the first match.

    Raises:
        Refused: ``INVALID_FIELD`` for a text without any word, or a sort that no stream with text has; ``TOO_LARGE``.
    """
    terms = terms_of(asked.text)
    # Another process may be a few events ahead with one of the two views.
    size = min(slot.position for slot in moment.reading.slots() if slot.is_live and slot.view in ("catalog", "search"))
    offset = 0
    if asked.after is not None:
        size, offset = divmod(asked.after, hits_reached_max)
    where = _conditions(asked, expression_of(terms), size)
    source = "search_words JOIN events e ON e.event_index = search_words.rowid"
    total = moment.count(f"SELECT count(*) FROM {source}{where.sql}", where.values)  # noqa: S608 - fixed texts
    # Texts are joined to the page alone: sorted with all that matches, they would be carried along.
    sql = (
        "SELECT e.event_index, e.id AS event_id, e.kind, e.stream, e.author, e.accepted_ms, t.text FROM ("  # noqa: S608
        f"SELECT search_words.rowid AS found, search_words.rank AS score FROM {source}{where.sql} "
        "ORDER BY score, found DESC LIMIT ? OFFSET ?) JOIN events e ON e.event_index = found "
        "JOIN search_texts t ON t.event_index = found ORDER BY score, found DESC"
    )
    rows = moment.rows(sql, (*where.values, asked.limit, offset))
    hits = [row | {"excerpt": excerpt_of(row.pop("text"), terms)} for row in rows]
    reached = offset + len(hits)
    goes_on = bool(hits) and reached < min(total, hits_reached_max)
    return {"hits": hits, "total": total, "next": size * hits_reached_max + reached if goes_on else None}


def _conditions(asked: SearchText, expression: str, size: int) -> Where:
    where = Where()
    where.add("search_words MATCH ?", expression)
    where.add("search_words.rowid < ?", size)
    where.equal("e.author", asked.author)
    if asked.sort:
        for sort in asked.sort:
            if sort not in SORTS:
                message = f"no stream with text is of the sort {sort!r}: there are {', '.join(SORTS)}"
                raise Refused("INVALID_FIELD", message, path="$.sort")
        # A stream's sort ends at its first slash, and 0 follows the slash.
        bounds = [bound for sort in asked.sort for bound in (f"{sort}/", f"{sort}0")]
        where.add(f"({' OR '.join(['(e.stream >= ? AND e.stream < ?)'] * len(asked.sort))})", *bounds)
    return where


QUERIES: Final = {"search.find": Query(SearchText, find_text)}
