"""What is suspect, asked when something is read: signed with a key since it is said to be compromised.

No fold knows of it, so that a declaration changes no row but its key's, and none of what it casts doubt on. So a past
is marked by what is known now: whoever reads it acts now, on what a thief may have written then. The rule is that of
``ledger.lifecycle.authority.suspect_at``, as SQL. Every answer of a view goes through ``marked``: an event's row by its
own key, anything else by the events of its stream. A mark is ``"suspect": N``, the index of the entry that says so;
what is not suspect has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from deedbook.projections.answers.query import Answer, Arguments, QueryContext

places_named_max: Final = 10

# The kinds of streams that the answers of a group of queries are about: theirs have an id and no stream.
_STREAMS: Final = {
    "handoffs": ("handoff", "id"),
    "sessions": ("session", "id"),
    "reasoning": ("reasoning", "id"),
    "reviews": ("review", "id"),
    "snapshots": ("snapshot", "id"),
    "tot": ("tot", "id"),
    "agents": ("agent", "name"),
    "reports": ("session", "session_id"),
    "briefs": ("reasoning", "reasoning_id"),
    "validations": ("reasoning", "reasoning_id"),
}
# A past has a table of that name in the place of this one (``projections.answers.past``).
_NOW: Final = "main.agent_keys"
_ANY: Final = f"SELECT 1 AS one FROM {_NOW} WHERE suspect_since IS NOT NULL LIMIT 1"  # noqa: S608 - fixed texts


def suspect_by(key: str, index: str, keys: str = "agent_keys") -> str:
    """Return the SQL for the entry that makes what ``key`` signed at ``index`` suspect; NULL when it is not."""
    return f"""(
    SELECT CASE WHEN {index} >= sk.suspect_since THEN sk.suspect_index
        WHEN sk.since_index >= si.suspect_since THEN si.suspect_index END
    FROM {keys} sk LEFT JOIN {keys} si ON si.key = sk.delegated_by WHERE sk.key = {key})"""  # noqa: S608 - fixed texts


_OF_EVENT: Final = suspect_by("e.key", "e.event_index", _NOW)
_EVENTS: Final = (
    f"SELECT e.event_index AS place, {_OF_EVENT} AS suspect FROM events e "  # noqa: S608 - fixed texts
    "WHERE e.event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
)
_OF_STREAMS: Final = (
    f"SELECT e.stream AS place, min({_OF_EVENT}) AS suspect FROM events e "  # noqa: S608 - fixed texts
    "WHERE e.stream IN (SELECT value FROM json_each(?)) GROUP BY e.stream"
)


def marked(context: QueryContext, query: str, answer: Answer) -> Answer:
    """Return an answer in which whatever rests on a suspect event bears the mark."""
    if not context.kept(_ANY):
        return answer
    places = [(row, place) for row in _dicts(answer) if (place := _place_of(query, row)) is not None]
    suspects: dict[Any, int] = {}
    for sql, form in ((_EVENTS, int), (_OF_STREAMS, str)):
        args = msgspec.json.encode(sorted({place for _, place in places if isinstance(place, form)})).decode()
        found = context.rows(sql, (args,))
        suspects |= {row["place"]: row["suspect"] for row in found if row["suspect"] is not None}
    for row, place in places:
        if place in suspects:
            row["suspect"] = suspects[place]
    return answer


def list_suspects(context: QueryContext, _args: Arguments) -> Answer:
    """Return ``{"keys": [{"key", "since", "suspect"}]}``: for whoever reads entries, and no answers of views."""
    sql = (
        f"SELECT key, suspect_since AS since, suspect_index AS suspect FROM {_NOW} WHERE suspect_since IS NOT NULL "  # noqa: S608 - fixed texts
        f"UNION SELECT k.key, k.since_index, i.suspect_index FROM {_NOW} k JOIN {_NOW} i "
        "ON i.key = k.delegated_by AND k.since_index >= i.suspect_since ORDER BY key, since"
    )
    return {"keys": context.rows(sql)}


def suspect_words(answer: Any, also: Mapping[str, int] | None = None) -> list[str]:
    """Return a sentence for each entry that casts doubt on what an answer holds, or on the places ``also`` named."""
    doubts: dict[int, list[str]] = {}
    for place, said in (suspect_places(answer) | dict(also or {})).items():
        doubts.setdefault(said, []).append(place)
    return [
        f"SUSPECT: {', '.join(places[:places_named_max])}"
        + (f" and {len(places) - places_named_max} more" if len(places) > places_named_max else "")
        + f" may be the work of a thief: entry {said} says that a key is compromised"
        for said, places in sorted(doubts.items())
    ]


def suspect_places(answer: Any) -> dict[str, int]:
    """Return what bears a mark in an answer, as it is named there, with the entry that says so."""
    places: dict[str, int] = {}
    for row in _dicts(answer):
        if isinstance(row.get("suspect"), int):
            index = row.get("event_index", row.get("index"))
            names = (row.get(name) for name in ("id", "session_id", "reasoning_id", "stream", "name"))
            name = f"entry {index}" if index is not None else next(filter(None, names), "this")
            places[str(name)] = row["suspect"]
    return places


def _place_of(query: str, row: Answer) -> int | str | None:
    """Return the index of the event that a row is, or the stream that it is of; None for a part of something."""
    index = row.get("event_index")
    if isinstance(index, int):
        return index
    stream = row.get("stream")
    if isinstance(stream, str):
        return stream
    sort, column = _STREAMS.get(query.partition(".")[0], ("", ""))
    if query == "handoffs.next" and row.get("kind") == "review":
        sort = "review"
    name = row.get(column) or row.get(f"{sort}_id")
    return f"{sort}/{name}" if isinstance(name, str) and sort else None


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting.extend(reversed(here.values()))  # so that they come in the order in which they stand
        elif isinstance(here, list | tuple):
            waiting.extend(reversed(here))
