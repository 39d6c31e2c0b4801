"""The one question of search: which events say this?

Hits are ranked by bm25, the newest first among equals. A page's cursor holds how long the log was at the first page,
and how many hits were shown: events appended between two pages shift nothing and are counted by none. (Only their
weight in bm25's averages is not undone: it may change who is first of two hits of nearly the same rank.)

A question's words must all be found, phrases stand in quotation marks, beginnings end in ``*``. Its text is never
syntax of the index: the expression is put together here from words alone, which hold letters, digits and marks. A word
that is several in the index (``JWT_SECRET``, 登录) is looked for as a phrase. A dozen or more hex digits are the
beginning of a reference, as everywhere in Baton, and need no ``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from ledger.errors import Refused
from ledger.limits import json_integer_max
from projections.query import Answer, Arguments, Moment, Where, prefix_digits_min
from projections.search.words import Word, chunks_of, placed_words, words_of

text_max_chars: Final = 10_240
hits_max: Final = 200
hits_reached_max: Final = 1_000_000
excerpt_max_chars: Final = 200
lead_max_chars: Final = 60
terms_shown_max: Final = 32
_CUT: Final = "…"

# The sorts of streams on which events carry human text.
SORTS: Final = ("handoff", "reasoning", "record", "review", "session", "snapshot", "tot")
words_asked_max: Final = 512  # a phrase of n words costs the index n looks at each of its places

_ASKED: Final = re.compile(r'["“”]([^"“”]*)["“”](\*?)|([^\s"“”]+)')
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{prefix_digits_min},63}}")

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


class Term(NamedTuple):
    """Words to be found side by side; ``is_beginning``: the last of them may go on."""

    words: tuple[str, ...]
    is_beginning: bool


def terms_of(text: str) -> list[Term]:
    """Return what a text asks for, each once; a part of it that holds no word asks for nothing.

    Raises:
        Refused: ``INVALID_FIELD`` when nothing is left to be looked for, ``TOO_LARGE`` beyond 512 different words.
    """
    terms: dict[Term, None] = {}
    for part in _ASKED.finditer(text):
        phrase, star, word = part.groups()
        words = tuple(words_of(word if phrase is None else phrase))
        if words:
            is_beginning = bool(star) if phrase is not None else word.endswith("*")
            terms[Term(words, is_beginning or _DIGITS.fullmatch(words[-1]) is not None)] = None
    if not terms:
        raise Refused("INVALID_FIELD", "there is no word to look for: give letters or digits", path="$.text")
    words_count = sum(len(term.words) for term in terms)
    if words_count > words_asked_max:
        message = f"{words_count} words are asked for: at most {words_asked_max} can be"
        raise Refused("TOO_LARGE", message, path="$.text", limit=words_asked_max)
    return list(terms)


def expression_of(terms: Sequence[Term]) -> str:
    """Return the FTS5 expression: all terms, each a phrase (a word holds no quotation mark)."""
    return " AND ".join(f'"{" ".join(term.words)}"{" *" if term.is_beginning else ""}' for term in terms)


def excerpt_of(text: str, terms: Sequence[Term]) -> str:
    """Return at most 200 characters of a text around its first match, on one line; ``…`` where it goes on."""
    start, end = next(matches_in(text, terms), (0, 0))
    room = excerpt_max_chars - 2 * len(_CUT)
    first, last = start, min(start + room, len(text))  # a word longer than all the room is cut from the match on
    begun = False
    for chunk_start, chunk_end in chunks_of(text):
        if not begun and chunk_end > start - lead_max_chars and max(chunk_end, end) - chunk_start <= room:
            first, last, begun = chunk_start, max(chunk_end, min(end, len(text))), True
        elif begun and chunk_end - first > room:
            break
        elif begun:
            last = max(last, chunk_end)
        elif chunk_start >= start:
            break
    excerpt = " ".join(text[first:last].split())
    before = _CUT if text[:first].strip() else ""
    return before + excerpt + (_CUT if text[last:].strip() else "")


def matches_in(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Yield where terms (the first 32 of them) are found in a text, in order, none overlapping another."""
    words = list(placed_words(text))
    searched = terms[:terms_shown_max]
    firsts = tuple({term.words[0] for term in searched})
    position = 0
    while position < len(words):
        is_near = words[position].word.startswith(firsts)
        length = max((_length(words, position, term) for term in searched), default=0) if is_near else 0
        if length:
            yield words[position].start, words[position + length - 1].end
        position += max(length, 1)


def _length(words: Sequence[Word], position: int, term: Term) -> int:
    """Return how many words a term covers at a position: all of its own, or none."""
    if not words[position].word.startswith(term.words[0]):
        return 0
    here = [word.word for word in words[position : position + len(term.words)]]
    if len(here) < len(term.words) or here[:-1] != list(term.words[:-1]):
        return 0
    is_found = here[-1].startswith(term.words[-1]) if term.is_beginning else here[-1] == term.words[-1]
    return len(here) if is_found else 0
