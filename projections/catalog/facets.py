"""The facets of a list of events: filters by time, agent, type and tag, and the number of events for each value.

An imported record counts with its claims: the time, the author and the kind that it is mapped to. A tag is the topic of
an event in a session, or a tag of the reasoning that an event belongs to, or that its handoff cites.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from deedbook.ledger.format.forms import OWN
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.catalog.answers import Facets, FacetValue
from deedbook.projections.reasoning.route import Route, Tag

events_counted_max: Final = 10_000
"""Only this many of the newest matching events are counted: a page takes equally long in a ledger of any size."""
values_max: Final = 100

ClaimedAgent: TypeAlias = Annotated[
    str, msgspec.Meta(description="Only what this agent signed, or what an imported record claims of it.")
]
Type: TypeAlias = Annotated[
    str, msgspec.Meta(description="Only this kind of event, or imported records that stand for it.")
]
Types: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=64, description="Only these types.")]
_OF_REASONING: Final = "JOIN json_each(r.tags) t ON TRUE"
_CITED: Final = (
    "JOIN json_each(h.{}) c ON TRUE JOIN reasoning_versions v ON v.ref = c.value "
    "JOIN reasonings r ON r.id = v.reasoning_id"
)
_OF_TOPIC: Final = "e.event_index IN (SELECT event_index FROM event_topics WHERE topic = ?)"
_CONDITIONS: Final = {
    "since": "e.happened_ms >= ?",
    "until": f"e.happened_ms <> {UNDATED_MS} AND e.happened_ms < ?",
    "agent": "e.agent = ?",
    "type": "e.type = ?",
    "tag": f"({_OF_TOPIC} OR {Route('a tag', None).streams()})",
}
# For each tag: the number of events that have it as topic, or whose stream has it. A stream counts once for a tag.
_TAGS: Final = f"""
    WITH chosen AS ({{}}), counted AS (SELECT stream, count(*) AS number FROM chosen GROUP BY stream)
    SELECT tag AS value, sum(number) AS number FROM (
        SELECT k.topic AS tag, 1 AS number FROM chosen JOIN event_topics k USING (event_index)
        UNION ALL
        SELECT tag, number FROM (
            SELECT s.stream, s.number, t.value AS tag FROM counted s
            JOIN reasonings r ON s.stream LIKE 'reasoning/%' AND r.id = substr(s.stream, 11) {_OF_REASONING}
            UNION
            SELECT s.stream, s.number, t.value FROM counted s
            JOIN handoffs h ON s.stream LIKE 'handoff/%' AND h.id = substr(s.stream, 9)
            {_CITED.format("reasoning_refs")} {_OF_REASONING}
            UNION
            SELECT s.stream, s.number, t.value FROM counted s
            JOIN handoffs h ON s.stream LIKE 'handoff/%' AND h.id = substr(s.stream, 9)
            {_CITED.format("result_refs")} {_OF_REASONING}
        ) AS of_streams
    ) AS tags GROUP BY tag ORDER BY 2 DESC, 1 LIMIT {values_max}"""  # noqa: S608 - fixed texts
_COUNTED: Final = (
    "SELECT {} AS value, count(*) AS number FROM ({}) AS chosen "  # noqa: S608 - fixed texts
    f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {values_max}"
)
_CHOSEN: Final = "SELECT e.event_index, e.stream, e.agent, e.type FROM {} ORDER BY e.event_index DESC LIMIT ?"


class FacetArguments(query.Arguments, frozen=True):
    """The filters that lists of events share."""

    since: query.Since | None = None
    until: query.Until | None = None
    agent: ClaimedAgent | None = None
    type: Type | None = None
    tag: Tag | None = None


class FacetListArguments(FacetArguments, frozen=True):
    """The same for a list; ``after`` is the ``next`` of the previous page.

    These fields are also those of ``ListArguments``, because a struct has only one base with fields.
    """

    after: int | None = None
    limit: query.Limit = 50


class EventFacets(FacetArguments, frozen=True):
    """The filters, and the fixed limits of the list: the ``types`` of events that it can have, and one ``stream``."""

    types: Types | None = None
    stream: str | None = None


def narrow(where: query.Where, args: FacetArguments, *, but: str = "") -> query.Where:
    """Add the conditions of all filters on the events ``e``, except that of the argument ``but``."""
    for name, text in _CONDITIONS.items():
        value = getattr(args, name)
        if value is not None and name != but:
            where.add(text, *[value] * text.count("?"))
    return where


def count_facets(context: query.QueryContext, args: EventFacets) -> Facets:
    """Return how many events a list would have for each agent, type and tag, if only that filter were changed."""
    return facets_of(context, "events e WHERE TRUE", of_types(query.Where(args, "stream"), args.types), args)


def of_types(where: query.Where, types: list[str] | tuple[str, ...] | None) -> query.Where:
    """Add the condition that an event is of one of the types; ``OWN`` means all declared kinds."""
    named = [name for name in types or () if name != OWN]
    conditions = [f"e.type IN ({', '.join('?' * len(named))})"] if named else []
    if types and OWN in types:
        conditions.append("(e.type >= 'x.' AND e.type < 'x/')")  # the slash is the character after the dot
    if conditions:
        where.add(f"({' OR '.join(conditions)})", *named)
    return where


def facets_of(context: query.QueryContext, matches: str, where: query.Where, args: FacetArguments) -> Facets:
    """Return the facets of events ``e``; ``matches`` is a FROM clause with the beginning of a WHERE clause."""
    counts: dict[str, list[FacetValue]] = {}
    for name in ("agent", "type", "tag"):
        narrowed = narrow(query.Where(), args, but=name)
        chosen = _CHOSEN.format(matches + where.more + narrowed.more)
        sql = _TAGS.format(chosen) if name == "tag" else _COUNTED.format(name, chosen)
        rows = context.rows(sql, (*where.values, *narrowed.values, events_counted_max))
        counts[name] = [FacetValue(value=row["value"], number=int(row["number"])) for row in rows]
    counted = (sum(value.number for value in counts[name]) for name in ("agent", "type"))
    return Facets(
        agents=counts["agent"],
        types=counts["type"],
        tags=counts["tag"],
        is_complete=max(counted) < events_counted_max,
    )
