"""What a ref that somebody typed stands for; and why: back to what an event rests on, forward to what rests on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import causes_max
from deedbook.projections.answers import query
from deedbook.projections.catalog.fold import STEPS
from deedbook.projections.catalog.queries import INDEX, matching_events
from deedbook.projections.reasoning.graph import decode_change
from deedbook.projections.reasoning.queries import REFS, Version, find_version
from deedbook.projections.stores.dialect import stated

events_walked_max: Final = 2_000
steps_walked_max: Final = events_walked_max * causes_max
"""Of how many refs from event to event a walk looks at where they lead: where all name all, they are millions."""
# What a stream was, when an event named it: a step of its life, or a snapshot, which is all of its stream.
_MEANT: Final = (*STEPS, "snapshot.taken")
_STEPS: Final = ", ".join(f"'{kind}'" for kind in _MEANT)
events_ahead_max: Final = 64
"""So many events a server reads on behind those that a walk asks for."""


_Reading: TypeAlias = Callable[[Collection[int]], list[query.Answer]]


class WhyEvent(query.Arguments, frozen=True):
    """What to explain (as ``resolve`` takes it, or a ref that events name), which way, and how many steps.

    ``after`` is the ``next`` of the page before, which only a walk in one direction has.
    """

    ref: str
    direction: Literal["back", "forward", "both"] = "both"
    depth: Annotated[int, msgspec.Meta(ge=1, le=32)] = 8
    after: Annotated[int, msgspec.Meta(ge=0, le=events_walked_max)] = 0
    limit: query.Limit = 100


def why_event(context: query.QueryContext, args: WhyEvent) -> query.Answer:
    """Return the event, what it follows from back to the first evidence (``causes``), and what follows (``effects``).

    Each is an event's row with its ``refs``, its ``depth``, the neighbour ``of`` which it was found, the ``ref`` that
    led there, and ``via`` (``catalog.fold``); ``causes_total`` and ``effects_total`` count all. ``unresolved`` lists
    refs that lead to no event here. ``is_complete`` is false where the walk ended at ``depth``, at 2,000 events or at
    128,000 refs. Of a ref that is no event of this ledger, but that some name, ``event`` is the ``ref`` alone.
    """
    if args.after and args.direction == "both":
        raise Refused("USAGE", "pages go in one direction: ask for the causes (back) or the effects (forward)")
    ahead = 0 if args.direction == "forward" else events_ahead_max
    known: dict[int, query.Answer] = {}
    effects: dict[int, list[query.Answer]] = {}
    if re.fullmatch(INDEX, args.ref) and args.direction != "back":  # an event and who names it are read at once
        index = int(args.ref)
        rows, effects[index] = context.together(_asked_links([index], ahead), _asked_effects(index))
        known |= _links(rows)
    read = partial(_linked, context, known)
    start = _start(context, args.ref, partial(read, ahead))
    answer: query.Answer = {"event": start, "unresolved": [], "is_complete": True, "next": None}
    for name, direction, steps_from, ahead in (
        ("causes", "back", lambda event: event["refs"], events_ahead_max),  # those of no event here lead to None
        ("effects", "forward", partial(_effects, context, effects), 0),
    ):
        is_asked = args.direction in {direction, "both"}
        depth = args.depth if is_asked else 0
        events, unresolved, is_complete = _walk(partial(read, ahead), start, depth, steps_from)
        end = args.after + args.limit
        answer |= {name: events[args.after : end], f"{name}_total": len(events)}
        if is_asked:
            answer["unresolved"] += unresolved
            answer["is_complete"] &= is_complete
            answer["next"] = end if args.direction == direction and len(events) > end else None
    return answer


def _walk(
    read: _Reading, start: query.Answer, depth: int, steps_from: Callable[[query.Answer], list[query.Answer]]
) -> tuple[list[query.Answer], list[query.Answer], bool]:
    """Go from event to event, nearest first, each read when it is met first: some graphs name it thousands of times."""
    unresolved: list[query.Answer] = []
    seen, waiting = {None, start["event_index"]}, [start | {"depth": 0}] if depth else []
    is_complete, left = True, steps_walked_max
    for event in waiting:  # which grows meanwhile
        far, steps = event["depth"] + 1, steps_from(event) if left else []
        is_complete &= 0 < left >= len(steps)
        steps, left = steps[:left], max(0, left - len(steps))
        met: dict[int, query.Answer] = {}
        for step in steps:
            index, place = step["event_index"], {"depth": far, "of": event["event_index"]}
            if index is None and far <= depth:
                unresolved.append({"ref": step["ref"], "via": step["via"]} | place)
            elif index not in seen and (far > depth or len(waiting) + len(met) > events_walked_max):
                is_complete = False
            elif index not in seen:
                seen.add(index)
                met[index] = step | place
        waiting += [event | met[event["event_index"]] for event in read(met)]
    return waiting[1:], unresolved, is_complete


def _start(context: query.QueryContext, args: str, read: _Reading) -> query.Answer:
    if re.fullmatch(INDEX, args) and (events := read([int(args)])):
        return events[0]
    try:
        index = resolve(context, query.ByRef(ref=args))["event_index"]
    except Refused as refusal:
        if refusal.code != "NOT_FOUND" or not context.rows("SELECT ref FROM event_refs WHERE ref = ? LIMIT 1", (args,)):
            raise
        return {"event_index": None, "ref": args, "refs": []}
    (event,) = read([index])
    return event


# What a whole ref of ``r`` names is a stream as it was, an event, its body, or the graph version that it made.
_BEHIND: Final = f"""CASE WHEN instr(r.ref, '/') > 0 THEN (
        SELECT max(s.event_index) FROM events s WHERE s.stream = r.ref AND s.event_index < r.event_index
            AND s.kind IN ({_STEPS})
    ) ELSE (SELECT min(place) FROM (
        SELECT i.event_index AS place FROM events i WHERE i.id = r.ref
        UNION ALL SELECT b.event_index FROM events b WHERE b.body_ref = r.ref
        UNION ALL SELECT v.event_index FROM reasoning_versions v WHERE v.ref = r.ref
    ) AS named) END"""  # noqa: S608 - fixed texts
# Behind those that are asked for, a server reads on itself: each step would be a journey there and back.
_WANTED: Final = stated(
    sqlite="e.event_index IN (SELECT CAST(asked.value AS BIGINT) FROM json_each(?1) AS asked WHERE ?2 > 0)",
    postgres=f"""e.event_index = ANY (ARRAY(
        WITH RECURSIVE reached (place) AS (
            SELECT CAST(asked.value AS BIGINT) FROM json_each(?1) AS asked
            UNION SELECT {_BEHIND} FROM reached JOIN event_refs r ON r.event_index = reached.place
        ) SELECT place FROM reached LIMIT ?2))""",  # noqa: S608 - fixed texts
)
# Events, each once for each of its refs.
_LINKED: Final = f"""
    SELECT e.*, r.ref, r.via, {_BEHIND} AS behind FROM events e LEFT JOIN event_refs r ON r.event_index = e.event_index
    WHERE {_WANTED} ORDER BY e.event_index, r.position"""  # noqa: S608 - fixed texts


def _linked(
    context: query.QueryContext, known: dict[int, query.Answer], ahead: int, indexes: Collection[int]
) -> list[query.Answer]:
    """Return events' rows in this order with their ``refs``, each with the ``event_index`` it leads to, or None.

    What is ``known`` is not read again; there is also put what a server reads on, which is ``ahead`` events at most.
    """
    if unknown := [index for index in indexes if index not in known]:
        known |= _links(context.rows(*_asked_links(unknown, ahead)))
    return [known[index] for index in indexes if index in known]


def _asked_links(indexes: Collection[int], ahead: int) -> tuple[str, tuple[str, int]]:
    return _LINKED, (query.json_list(indexes), len(indexes) + ahead)


def _links(rows: Iterable[query.Answer]) -> dict[int, query.Answer]:
    events: dict[int, query.Answer] = {}
    for row in rows:
        ref, via, behind = (row.pop(name) for name in ("ref", "via", "behind"))
        refs = events.setdefault(row["event_index"], row | {"refs": []})["refs"]
        if ref is not None:
            refs.append({"ref": ref, "via": via, "event_index": behind})
    return events


def _effects(
    context: query.QueryContext, known: Mapping[int, list[query.Answer]], event: query.Answer
) -> list[query.Answer]:
    """Return which events name an event, what it made, or its stream as it was until its next step."""
    if (index := event["event_index"]) is None:
        sql = "SELECT event_index, ref, via FROM event_refs WHERE ref = ? ORDER BY event_index, position LIMIT ?"
        return context.rows(sql, (event["ref"], events_walked_max + 1))
    return known[index] if index in known else context.rows(*_asked_effects(index))


def _asked_effects(index: int) -> tuple[str, tuple[int, int]]:
    return _EFFECTS, (index, events_walked_max + 1)


_NAMING: Final = "SELECT r.event_index, r.ref, r.via, r.position FROM"
_EFFECTS: Final = f"""
    SELECT event_index, ref, via FROM (
        {_NAMING} events e JOIN event_refs r ON r.ref IN (e.id, e.body_ref) WHERE e.event_index = ?1
        UNION ALL {_NAMING} reasoning_versions v JOIN event_refs r ON r.ref = v.ref WHERE v.event_index = ?1
        UNION ALL {_NAMING} events e JOIN event_refs r ON r.ref = e.stream AND r.event_index > e.event_index
            AND r.event_index <= coalesce((
                SELECT min(s.event_index) FROM events s
                WHERE s.stream = e.stream AND s.event_index > e.event_index AND s.kind IN ({_STEPS})
            ), r.event_index) WHERE e.event_index = ?1 AND e.kind IN ({_STEPS})
    ) naming ORDER BY event_index, position LIMIT ?2"""  # noqa: S608 - fixed texts
_STEP: Final = re.compile(r"(.+)#([0-9]{1,7})")


def resolve(context: query.QueryContext, args: query.ByRef) -> query.Answer:
    """Return ``{"sort", "ref", "stream", "event_index", …}``; ``sort`` is event, reasoning, step or stream.

    Asked for is an index, an event's id, a digest, a graph's ref, ``REF#STEP``, a stream or its bare name. An event has
    its ``id``, a reasoning its ``reasoning_id`` and ``version``, a step its ``step`` too; a stream's ``event_index`` is
    that of its last event. Raises Refused: ``NOT_FOUND``, or ``REF_AMBIGUOUS`` with the candidates.
    """
    found_step = _STEP.fullmatch(args.ref)
    if found_step is not None:
        return _step(context, found_step[1], int(found_step[2]))
    matches = {row["id"]: _event(row) for row in matching_events(context, args.ref)}
    for row in query.by_ref(context, REFS, "ref", "sha256", args.ref):
        matches[row["ref"]] = _version(find_version(context, row["ref"]))
    name = args.ref.removesuffix(".md")
    if not matches and name:
        sql = "SELECT * FROM streams WHERE stream IN (?, ?) OR name IN (?, ?) ORDER BY stream LIMIT ?"
        rows = context.rows(sql, (args.ref, name, args.ref, name, query.candidates_max + 1))
        matches = {row["stream"]: _stream(row) for row in rows}
    column = "stream" if "/" in name else "name"
    what = "event, reasoning or stream"
    return matches[query.only_match(list(matches), args.ref, what, lambda: query.names_in(context, "streams", column))]


def _event(row: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "body_ref", "kind", "stream", "stream_version", "author", "event_index")
    return {"sort": "event", "ref": row["id"]} | {name: row[name] for name in names}


def _version(found: Version) -> dict[str, Any]:
    stream = {"stream": f"reasoning/{found.reasoning_id}", "event_index": found.event_index}
    own = {"reasoning_id": found.reasoning_id, "version": found.version}
    return {"sort": "reasoning", "ref": found.ref} | stream | own


def _step(context: query.QueryContext, ref: str, number: int) -> dict[str, Any]:
    found = find_version(context, ref)
    sql = (
        "SELECT event_index, delta FROM reasoning_versions "
        "WHERE reasoning_id = ? AND version <= ? AND kind = 'reasoning.extended' ORDER BY version"
    )
    for row in context.rows(sql, (found.reasoning_id, found.version)):
        if any(step.step_number == number for step in decode_change(row["delta"]).steps_added):
            return _version(found) | {"sort": "step", "step": number, "event_index": row["event_index"]}
    raise Refused("NOT_FOUND", f"{ref} has no step {number}", ref=ref, step=number)


def _stream(row: dict[str, Any]) -> dict[str, Any]:
    place = {"event_index": row["last_index"], "stream_version": row["version"]}
    return {"sort": "stream", "ref": row["stream"], "stream": row["stream"]} | place
