"""Resolve a ref that somebody typed, and walk the references of events: back to causes and forward to effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.limits import causes_max
from deedbook.projections.answers import query
from deedbook.projections.answers.rows import ViewRows
from deedbook.projections.catalog.answers import (
    FollowedReference,
    LinkedEvent,
    ResolvedReference,
    UnresolvedReference,
    Walk,
    WalkedEvent,
)
from deedbook.projections.catalog.fold import STEPS
from deedbook.projections.catalog.queries import INDEX, matching_events
from deedbook.projections.reasoning.graph import decode_change
from deedbook.projections.reasoning.queries import REFS, Version, find_version
from deedbook.projections.stores.dialect import stated

events_walked_max: Final = 2_000
steps_walked_max: Final = events_walked_max * causes_max
"""The most refs that a walk follows: if all events name all others, there are millions."""
# The events that a reference to a stream can mean: a step, or the only event of a snapshot's stream.
_STEP_KINDS: Final = (*STEPS, "snapshot.taken")
_STEPS: Final = ", ".join(f"'{kind}'" for kind in _STEP_KINDS)
events_ahead_max: Final = 64
"""The number of events that a server reads in advance of a walk."""


_EventReader: TypeAlias = Callable[[Collection[int]], list[LinkedEvent]]


class WhyEvent(query.Arguments, frozen=True):
    """``id`` is the event to explain (as ``resolve`` takes it, or a ref that events name), ``depth`` the most steps.

    ``after`` is the ``next`` of the previous page; only a walk in one direction has pages.
    """

    id: str
    direction: Literal["back", "forward", "both"] = "both"
    depth: Annotated[int, msgspec.Meta(ge=1, le=32)] = 8
    after: Annotated[int, msgspec.Meta(ge=0, le=events_walked_max)] = 0
    limit: query.Limit = 100


def why_event(context: query.QueryContext, args: WhyEvent) -> Walk:
    """Return an event, everything that it follows from, and everything that follows from it, nearest first."""
    if args.after and args.direction == "both":
        raise Refused(
            "USAGE", "only a walk in one direction has pages: set direction to back (causes) or forward (effects)"
        )
    ahead = 0 if args.direction == "forward" else events_ahead_max
    known: dict[int, LinkedEvent] = {}
    effects_of: dict[int, list[query.Plain]] = {}
    if re.fullmatch(INDEX, args.id) and args.direction != "back":  # read an event and the references to it at once
        index = int(args.id)
        rows, effects_of[index] = context.together(_links_query([index], ahead), _effects_query(index))
        known |= _links(rows)
    read = partial(_linked, context, known)
    start = _start(context, args.id, partial(read, ahead))
    back, forward = (args.depth if args.direction in (direction, "both") else 0 for direction in ("back", "forward"))
    causes, unresolved, has_causes = _walk(
        partial(read, events_ahead_max), start, back, lambda event: [] if event is None else event.refs
    )
    effects, _, has_effects = _walk(
        partial(read, 0), start, forward, lambda event: _effects(context, effects_of, event, args.id)
    )
    end = args.after + args.limit
    return Walk(
        ref=args.id,
        event=start,
        causes=causes[args.after : end],
        causes_total=len(causes),
        effects=effects[args.after : end],
        effects_total=len(effects),
        unresolved=unresolved,
        is_complete=has_causes and has_effects,
        next=end if args.direction != "both" and len(causes or effects) > end else None,
    )


def _walk(
    read: _EventReader,
    start: LinkedEvent | None,
    depth: int,
    steps_from: Callable[[LinkedEvent | None], list[FollowedReference]],
) -> tuple[list[WalkedEvent], list[UnresolvedReference], bool]:
    """Walk from event to event, nearest first. Each is read once: some graphs name an event thousands of times.

    Return the events, the references that lead to none, and whether the walk is complete.
    """
    walked: list[WalkedEvent] = []
    unresolved: list[UnresolvedReference] = []
    is_complete, left = True, steps_walked_max
    if not depth:
        return walked, unresolved, is_complete
    seen: set[int | None] = {None, None if start is None else start.event_index}
    for event in chain((start,), walked):  # ``walked`` grows in the loop
        far = (event.depth if isinstance(event, WalkedEvent) else 0) + 1
        of = None if event is None else event.event_index
        steps = steps_from(event) if left else []
        is_complete &= 0 < left >= len(steps)
        steps, left = steps[:left], max(0, left - len(steps))
        met: dict[int, FollowedReference] = {}
        for step in steps:
            index = step.event_index
            if index is None and far <= depth:
                unresolved.append(UnresolvedReference(depth=far, of=of, ref=step.ref, via=step.via))
            elif index not in seen and (far > depth or 1 + len(walked) + len(met) > events_walked_max):
                is_complete = False
            elif index is not None and index not in seen:
                seen.add(index)
                met[index] = step
        for other in read(met):
            step = met[other.event_index]
            walked.append(WalkedEvent(**msgspec.structs.asdict(other), depth=far, of=of, ref=step.ref, via=step.via))
    return walked, unresolved, is_complete


def _start(context: query.QueryContext, reference: str, read: _EventReader) -> LinkedEvent | None:
    if re.fullmatch(INDEX, reference) and (events := read([int(reference)])):
        return events[0]
    try:
        index = resolve(context, query.ById(id=reference)).event_index
    except Refused as refusal:
        if refusal.code != "NOT_FOUND" or not context.rows(
            "SELECT ref FROM event_refs WHERE ref = ? LIMIT 1", (reference,)
        ):
            raise
        return None
    (event,) = read([index])
    return event


# The versions ``v`` of reasonings that had another ref before texts of them were erased.
_FORMER_VERSIONS: Final = (
    "former_versions f JOIN reasoning_versions erased ON erased.event_index = f.entry "
    "JOIN reasoning_versions v ON v.reasoning_id = erased.reasoning_id AND v.version = f.version"
)
# The event to which the whole ref of ``r`` leads: by a stream as of ``r``, an event's id, its body, or a graph.
_BEHIND: Final = f"""CASE WHEN instr(r.ref, '/') > 0 THEN (
        SELECT max(s.event_index) FROM events s WHERE s.stream = r.ref AND s.event_index < r.event_index
            AND s.kind IN ({_STEPS})
    ) ELSE (SELECT min(target) FROM (
        SELECT i.event_index AS target FROM events i WHERE i.id = r.ref
        UNION ALL SELECT b.event_index FROM events b WHERE b.body_ref = r.ref
        UNION ALL SELECT v.event_index FROM reasoning_versions v WHERE v.ref = r.ref
        UNION ALL SELECT v.event_index FROM {_FORMER_VERSIONS} WHERE f.ref = r.ref
    ) AS named) END"""  # noqa: S608 - fixed texts
# A server follows the refs itself: otherwise each step would be a round trip.
_WANTED: Final = stated(
    sqlite="e.event_index IN (SELECT CAST(wanted.value AS BIGINT) FROM json_each(?1) AS wanted WHERE ?2 > 0)",
    postgres=f"""e.event_index = ANY (ARRAY(
        WITH RECURSIVE reached (target) AS (
            SELECT CAST(wanted.value AS BIGINT) FROM json_each(?1) AS wanted
            UNION SELECT {_BEHIND} FROM reached JOIN event_refs r ON r.event_index = reached.target
        ) SELECT target FROM reached LIMIT ?2))""",  # noqa: S608 - fixed texts
)
# Events, one row for each of their refs.
_LINKED: Final = f"""
    SELECT e.*, r.ref, r.via, {_BEHIND} AS behind FROM events e LEFT JOIN event_refs r ON r.event_index = e.event_index
    WHERE {_WANTED} ORDER BY e.event_index, r.position"""  # noqa: S608 - fixed texts


def _linked(
    context: query.QueryContext, known: dict[int, LinkedEvent], ahead: int, indexes: Collection[int]
) -> list[LinkedEvent]:
    """Return events in this order.

    Events in ``known`` are not read again. Up to ``ahead`` more events that a server reads in advance are added to it.
    """
    if unknown := [index for index in indexes if index not in known]:
        known |= _links(context.rows(*_links_query(unknown, ahead)))
    return [known[index] for index in indexes if index in known]


def _links_query(indexes: Collection[int], ahead: int) -> tuple[str, tuple[str, int]]:
    return _LINKED, (query.json_list(indexes), len(indexes) + ahead)


def _links(rows: Iterable[query.Plain]) -> dict[int, LinkedEvent]:
    events: dict[int, LinkedEvent] = {}
    for row in rows:
        ref, via, behind = (row.pop(name) for name in ("ref", "via", "behind"))
        index = row["event_index"]
        if index not in events:
            events[index] = LinkedEvent(**row, refs=[])
        if ref is not None:
            events[index].refs.append(FollowedReference(ref=ref, via=via, event_index=behind))
    return events


def _effects(
    context: query.QueryContext, known: Mapping[int, list[query.Plain]], event: LinkedEvent | None, ref: str
) -> list[FollowedReference]:
    """Return the references to an event, to what it made, or to its stream until the stream's next step.

    Each has the index of the event that makes it. Without an event, they are the references to ``ref``.
    """
    if event is None:
        sql = "SELECT event_index, ref, via FROM event_refs WHERE ref = ? ORDER BY event_index, position LIMIT ?"
        rows = context.rows(sql, (ref, events_walked_max + 1))
    else:
        index = event.event_index
        rows = known[index] if index in known else context.rows(*_effects_query(index))
    return [FollowedReference(**row) for row in rows]


def _effects_query(index: int) -> tuple[str, tuple[int, int]]:
    return _EFFECTS, (index, events_walked_max + 1)


_NAMING: Final = "SELECT r.event_index, r.ref, r.via, r.position FROM"
_EFFECTS: Final = f"""
    SELECT event_index, ref, via FROM (
        {_NAMING} events e JOIN event_refs r ON r.ref IN (e.id, e.body_ref) WHERE e.event_index = ?1
        UNION ALL {_NAMING} reasoning_versions v JOIN event_refs r ON r.ref = v.ref WHERE v.event_index = ?1
        UNION ALL {_NAMING} {_FORMER_VERSIONS} JOIN event_refs r ON r.ref = f.ref WHERE v.event_index = ?1
        UNION ALL {_NAMING} events e JOIN event_refs r ON r.ref = e.stream AND r.event_index > e.event_index
            AND r.event_index <= coalesce((
                SELECT min(s.event_index) FROM events s
                WHERE s.stream = e.stream AND s.event_index > e.event_index AND s.kind IN ({_STEPS})
            ), r.event_index) WHERE e.event_index = ?1 AND e.kind IN ({_STEPS})
    ) naming ORDER BY event_index, position LIMIT ?2"""  # noqa: S608 - fixed texts
_FORMER: Final = "SELECT DISTINCT ref FROM former_versions"
_STEP: Final = re.compile(r"(.+)#([0-9]{1,7})")


def resolve(context: query.QueryContext, args: query.ById) -> ResolvedReference:
    """Return the meaning of a reference.

    The reference is an index, an event's id, a digest, a graph's ref, ``REF#STEP``, a stream or its bare name. Raises
    Refused: ``NOT_FOUND``, or ``REF_AMBIGUOUS`` with the candidates.
    """
    step_match = _STEP.fullmatch(args.id)
    if step_match is not None:
        return _step(context, step_match[1], int(step_match[2]))
    matches = {row["id"]: _event(row) for row in matching_events(context, args.id)}
    for row in query.by_ref(context, REFS, "ref", "sha256", args.id):
        matches[row["ref"]] = _version(find_version(ViewRows(context), row["ref"]))
    for row in query.by_ref(context, _FORMER, "ref", "sha256", args.id) if not matches else ():
        version = or_none(find_version, ViewRows(context), row["ref"])
        matches |= {} if version is None else {row["ref"]: _version(version)}
    name = args.id.removesuffix(".md")
    if not matches and name:
        sql = "SELECT * FROM streams WHERE stream IN (?, ?) OR name IN (?, ?) ORDER BY stream LIMIT ?"
        rows = context.rows(sql, (args.id, name, args.id, name, query.candidates_max + 1))
        matches = {row["stream"]: _stream(row) for row in rows}
    column = "stream" if "/" in name else "name"
    what = "event, reasoning or stream"
    return matches[query.only_match(list(matches), args.id, what, lambda: query.names_in(context, "streams", column))]


def _event(row: dict[str, Any]) -> ResolvedReference:
    names = ("id", "body_ref", "kind", "stream", "stream_version", "author", "event_index")
    return ResolvedReference(type="event", ref=row["id"], **{name: row[name] for name in names})


def _version(version: Version) -> ResolvedReference:
    return ResolvedReference(
        type="reasoning",
        ref=version.ref,
        stream=f"reasoning/{version.reasoning_id}",
        event_index=version.event_index,
        reasoning_id=version.reasoning_id,
        version=version.version,
    )


def _step(context: query.QueryContext, ref: str, number: int) -> ResolvedReference:
    version = find_version(ViewRows(context), ref)
    sql = (
        "SELECT event_index, delta FROM reasoning_versions "
        "WHERE reasoning_id = ? AND version <= ? AND kind = 'reasoning.extended' ORDER BY version"
    )
    for row in context.rows(sql, (version.reasoning_id, version.version)):
        if any(step.step_number == number for step in decode_change(row["delta"]).steps_added):
            index = row["event_index"]
            return msgspec.structs.replace(_version(version), type="step", step=number, event_index=index)
    raise Refused("NOT_FOUND", f"{ref} has no step {number}", ref=ref, step=number)


def _stream(row: dict[str, Any]) -> ResolvedReference:
    return ResolvedReference(
        type="stream",
        ref=row["stream"],
        stream=row["stream"],
        event_index=row["last_index"],
        stream_version=row["version"],
    )
