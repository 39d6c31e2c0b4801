"""The full-text query: find the events that contain the words of a text.

Hits are ranked by BM25, the newest first among equals. A page's cursor holds the length of the log at the first page
and the number of displayed hits, so events that were appended between two pages do not shift the hits and are not
counted. (Only their weight in BM25's averages remains: it may swap two hits of nearly the same rank.)

All words of a query but function words (the, of, what) must be found, each in any of its forms. Phrases are in
quotation marks and exact; prefixes end in ``*``. If no event contains all words, the answer has the nearest events
(``search.nearness``) and says so. The text of a query is never syntax of the index: the expression is built here from
words alone, which contain only letters, digits and marks. A word that the index splits (``JWT_SECRET``, 登录) is
searched as a phrase. Twelve or more hex digits are the beginning of a reference, and need no ``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.families import installed
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.answers.query import (
    Plain,
    QueryContext,
    Where,
    json_list,
    prefix_digits_min,
)
from deedbook.projections.briefs.embedding import STOP_WORDS
from deedbook.projections.catalog.answers import Facets
from deedbook.projections.catalog.facets import FacetArguments, facets_of, narrow
from deedbook.projections.catalog.words import words_of as event_words
from deedbook.projections.reasoning.route import Domain, Route
from deedbook.projections.search.answers import SearchHit, SearchPage
from deedbook.projections.search.nearness import MATCHES, Question, by_stream, nearest, related_min
from deedbook.projections.search.words import (
    Word,
    beginning_min,
    chunks_of,
    form_of,
    stem_of,
    words_of,
    words_with_positions,
)
from deedbook.projections.sessions.answers import AppliedCorrection
from deedbook.projections.sessions.queries import correction_of, corrections_of
from deedbook.projections.stores.dialect import Expression, stated

text_max_chars: Final = 10_240
hits_max: Final = 200
hits_reached_max: Final = 1_000_000
excerpt_max_chars: Final = 200
lead_max_chars: Final = 60
terms_shown_max: Final = 32
far_max: Final = 5  # if nothing is near, this many hits, if possible from as many streams, are enough to show it
_CUT: Final = "…"

# The families of streams on which events carry human text; ``x`` are those of declared kinds.
_FAMILIES: Final = (
    "decision",
    "handoff",
    "kind",
    "question",
    "reasoning",
    "record",
    "review",
    "session",
    "snapshot",
    "subject",
    "x",
)
StreamFamily: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=64, description="A family of streams, such as handoff.")
]
families_max: Final = 16
# Longer queries do not require all words: a phrase of n words costs n look-ups at each of its positions.
words_searched_max: Final = 512
_PART: Final = re.compile(r'["“”]([^"“”]*)["“”](\*?)|([^\s"“”]+)')
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{prefix_digits_min},63}}")

SearchWords: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=text_max_chars, description="Words, phrases, beginnings*.")
]
Hits: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=hits_max, description="Hits of a page.")]
StreamFamilies: TypeAlias = Annotated[
    list[StreamFamily], msgspec.Meta(max_length=families_max, description="Only streams of these families.")
]
Kinds: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=32, description="Only events of these kinds.")]
Cursor: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=json_integer_max, description="The next of a page.")]


def families_with_text() -> list[str]:
    """Return the families of streams with text: the core's, and those of families."""
    return [*_FAMILIES, *(family.name for family in installed() if family.texts)]


def check_families(names: Iterable[str]) -> None:
    """Refuse a family of streams that has no text. Raises Refused: ``INVALID_FIELD``."""
    for name in names:
        if name not in _FAMILIES and name not in (known := families_with_text()):
            rest = did_you_mean(near(name, known)) or f": the families are {', '.join(known)}"
            raise Refused("INVALID_FIELD", f"no streams of a family {name!r} have text{rest}", field="family")


class SearchFilter(FacetArguments, frozen=True, kw_only=True):
    """The filters of a search: its text, the families of streams, the kinds and the author.

    ``domain`` keeps reasonings of this domain, and handoffs that cite such reasonings. An imported record also has the
    kind that it is mapped to; ``author`` is the signer.
    """

    text: SearchWords
    family: StreamFamilies | None = None
    kinds: Kinds | None = None
    author: str | None = None
    domain: Domain | None = None


class SearchText(SearchFilter, frozen=True, kw_only=True):
    """The filters of a search with pages of hits; ``after`` is the ``next`` of the previous page."""

    limit: Hits = 20
    after: Cursor | None = None


def find_text(context: QueryContext, args: SearchText) -> SearchPage:
    """Return the events that contain the words of a text, else the nearest events.

    Raises Refused: ``INVALID_FIELD`` for a text without a word.
    """
    terms = terms_of(args.text)
    size, offset = _size(context), 0
    if args.after is not None:
        size, offset = divmod(args.after, hits_reached_max)
    where = narrow(_conditions(args, size), args)
    rows, total = _holding_all(context, terms, where, args.limit, offset)
    holds: Literal["all", "some"] = "all"
    if not total:
        events = nearest(context, Question.weigh(context, args.text), where)
        varied = [*dict.fromkeys((*by_stream(events).values(), *events))][:far_max]
        far = sorted(varied, key=events.index)
        events = [event for event in events if event.score >= related_min] or far
        page = {event.event_index: event for event in events[offset : offset + args.limit]}
        marks = ", ".join("?" * len(page))
        hits_at = {
            row["event_index"]: row
            for row in context.rows(f"{_HIT.format('')} WHERE e.event_index IN ({marks})", [*page])
        }
        rows = [hits_at[index] | {"score": event.score, "near": event.near} for index, event in page.items()]
        total, holds = len(events), "some"
    corrections = _corrections(context, rows)
    refuted = _refuted(context, rows)
    words = event_words(context, (row["event_index"] for row in rows))
    hits = [
        _hit(row | {"title": words[row["event_index"]].title}, terms, corrections.get(row["event_index"]), refuted)
        for row in rows
    ]
    reached = offset + len(hits)
    goes_on = bool(hits) and reached < min(total, hits_reached_max)
    following = size * hits_reached_max + reached if goes_on else None
    return SearchPage(items=hits, total=total, next=following, holds=holds)


def count_found(context: QueryContext, args: SearchFilter) -> Facets:
    """Return how many events contain the words of a text, for each agent, type and tag.

    Raises Refused: ``INVALID_FIELD`` for a text without a word.
    """
    where = _conditions(args, _size(context))
    where.values.insert(0, _expression(terms_of(args.text)))
    return facets_of(context, MATCHES, where, args)


def _size(context: QueryContext) -> int:
    """Return the number of events that both views have: another process may have updated one further than the other."""
    return min(
        version.position
        for version in context.reading.view_versions()
        if version.is_live and version.view in ("catalog", "search")
    )


def _expression(terms: Sequence[Term]) -> Expression:
    return Expression(" AND ".join(term.sql for term in terms))


def _hit(row: Plain, terms: Sequence[Term], correction: AppliedCorrection | None, refuted: set[str]) -> SearchHit:
    text, is_refuted = row.pop("text"), row["kind"] == CONCLUDED and row["stream"] in refuted
    if row["kind"] == "record.imported" and "\n" in text:
        text = text.rpartition("\n")[0]  # without the path of its source, the last of the texts
    excerpt = excerpt_of(text, terms)
    matches = [list(match) for match in matches_in(excerpt, terms)]
    return SearchHit(**row, excerpt=excerpt, matches=matches, correction=correction, is_refuted=is_refuted)


def _refuted(context: QueryContext, rows: Sequence[Plain]) -> set[str]:
    """Return the streams of the rows' conclusions that rest on a refuted assumption."""
    concluded = json_list({row["stream"].partition("/")[2] for row in rows if row["kind"] == CONCLUDED})
    sql = "SELECT id, is_refuted FROM reasonings WHERE id IN (SELECT value FROM json_each(?))"
    return {f"reasoning/{row['id']}" for row in context.rows(sql, (concluded,)) if row["is_refuted"]}


def _corrections(context: QueryContext, rows: Sequence[Plain]) -> dict[int, AppliedCorrection]:
    """Return, by entry, who retracted or resolved the statements of the rows, and why."""
    sessions = {row["stream"].partition("/")[2] for row in rows if row["stream"].startswith("session/")}
    return {
        correction["target_index"]: correction_of(correction)
        for correction in (corrections_of(context, *sessions) if sessions else ())
    }


CONCLUDED: Final = "reasoning.concluded"
_HIT: Final = (
    "SELECT e.event_index, e.id AS event_id, e.kind, e.stream, e.author, e.accepted_ms, e.type, e.agent, "
    "e.happened_ms, t.text{} FROM events e JOIN search_texts t USING (event_index)"
)


# A ranked page needs all hits. FTS5 counts them faster separately; PostgreSQL should not search them twice.
_TOTAL: Final = stated(sqlite="NULL AS total", postgres="count(*) OVER () AS total")


def _holding_all(
    context: QueryContext, terms: Sequence[Term], where: Where, limit: int, offset: int
) -> tuple[list[Plain], int]:
    """Return a page of the events that contain all terms, and their total."""
    if sum(len(term.words) for term in terms) > words_searched_max:
        return [], 0
    values = (_expression(terms), *where.values)
    # Texts are joined to the page only, so that sorting all matches does not carry them along.
    sql = (
        f"{_HIT.format(', total')} JOIN (SELECT search_words.rowid AS found, search_words.rank AS score, {_TOTAL} "  # noqa: S608
        f"FROM {MATCHES}{where.more} ORDER BY score, found DESC LIMIT ? OFFSET ?) ON e.event_index = found "
        "ORDER BY score, found DESC"
    )
    rows = context.rows(sql, (*values, limit, offset))
    total = max((row.pop("total") or 0 for row in rows), default=0)
    if not total and (rows or offset):
        total = context.count(f"SELECT count(*) FROM {MATCHES}{where.more}", values)  # noqa: S608 - fixed texts
    return rows, total


def _conditions(args: SearchFilter, size: int) -> Where:
    where = Where()
    where.add("e.event_index < ?", size)
    where.equal("e.author", args.author)
    if args.kinds:
        marks = ", ".join("?" * len(args.kinds))
        where.add(f"(e.kind IN ({marks}) OR e.type IN ({marks}))", *args.kinds, *args.kinds)
    route = Route(None, args.domain)
    if route.values:
        where.add(route.streams(), *route.values * 3)
    if args.family:
        check_families(args.family)
        # The streams that begin with "x." or "NAME/": "/" is the character after ".", and "0" the character after "/".
        bounds = [
            bound for name in args.family for bound in (("x.", "x/") if name == "x" else (f"{name}/", f"{name}0"))
        ]
        where.add(f"({' OR '.join(['(e.stream >= ? AND e.stream < ?)'] * len(args.family))})", *bounds)
    return where


class Term(NamedTuple):
    """Adjacent words to find; ``is_beginning``: the last of them is a prefix.

    A single word is searched in any of its forms: as it is (``whole``), or by their common beginning.
    """

    words: tuple[str, ...]
    is_beginning: bool
    whole: str = ""

    @property
    def sql(self) -> str:
        """The FTS5 expression: a phrase, or the forms of a word (which contains no quotation mark)."""
        return form_of(self.whole).sql if self.whole else f'"{" ".join(self.words)}"{" *" if self.is_beginning else ""}'


def terms_of(text: str) -> list[Term]:
    """Return the search terms of a text, each once; parts without letters and digits are left out.

    Function words (the, of, what) are terms only in quotation marks or with ``*``. Raises Refused: ``INVALID_FIELD``
    if no term is left.
    """
    terms: dict[Term, None] = {}
    has_words = False
    for part in _PART.finditer(text):
        phrase, star, word = part.groups()
        words = tuple(words_of(word if phrase is None else phrase))
        has_words = has_words or bool(words)
        is_beginning = bool(star) if phrase is not None else word.endswith("*")
        if words and (phrase is not None or is_beginning or not STOP_WORDS.issuperset(words)):
            is_beginning = is_beginning or _DIGITS.fullmatch(words[-1]) is not None
            term = Term(words, is_beginning)
            if phrase is None and len(words) == 1 and not is_beginning and form_of(words[0]).sql != term.sql:
                term = Term((stem_of(words[0]),), len(stem_of(words[0])) >= beginning_min, words[0])
            terms[term] = None
    if has_words and not terms:
        message = "the text has only function words: put them in quotation marks to find them as written"
        raise Refused("INVALID_FIELD", message, path="$.text")
    if not terms:
        raise Refused("INVALID_FIELD", "the text has no word to search: give letters or digits", path="$.text")
    return list(terms)


def excerpt_of(text: str, terms: Sequence[Term]) -> str:
    """Return at most 200 characters of a text around its first match, on one line; ``…`` is a cut, ``·`` a new line."""
    text = " · ".join(filter(None, map(str.strip, text.split("\n"))))
    start, end = next(matches_in(text, terms), (0, 0))
    room = excerpt_max_chars - 2 * len(_CUT)
    first, last = start, min(start + room, len(text))  # a word longer than the excerpt is cut from the match on
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
    excerpt = " ".join(text[first:last].split()).strip(" ·")
    before = _CUT if text[:first].strip() else ""
    return before + excerpt + (_CUT if text[last:].strip() else "")


def matches_in(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Yield the spans of terms (the first 32) in a text, in order, without overlaps."""
    searched = terms[:terms_shown_max]
    firsts = tuple({term.words[0] for term in searched})
    words = words_with_positions(text)  # lazily: an excerpt needs only the first match of a long text
    window = list(islice(words, max((len(term.words) for term in searched), default=0)))
    while window:
        is_near = window[0].word.startswith(firsts)
        length = max(_length(window, term) for term in searched) if is_near else 0
        if length:
            yield window[0].start, window[length - 1].end
        passed = max(length, 1)
        window = [*window[passed:], *islice(words, passed)]


def _length(window: Sequence[Word], term: Term) -> int:
    """Return how many words a term covers at the beginning of a window: all of its words, or none."""
    if not window[0].word.startswith(term.words[0]):
        return 0
    covered = [word.word for word in window[: len(term.words)]]
    if len(covered) < len(term.words) or covered[:-1] != list(term.words[:-1]):
        return 0
    is_found = covered[-1].startswith(term.words[-1]) if term.is_beginning else covered[-1] == term.words[-1]
    is_found = is_found or (bool(term.whole) and covered[-1].startswith(term.whole))
    return len(covered) if is_found else 0
