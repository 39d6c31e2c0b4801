"""A knowledge graph over all views: things of several types, and edges from one thing to a later one.

An edge leads from a thing to a thing that resulted from it. A thing is named ``TYPE/ID``; a thing recorded in a session
has the index of its event as id. Agents and evidence are connected to nearly everything. A walk continues through them
only if it started there, and a walk without a start leaves them out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.projections.answers import query
from deedbook.projections.catalog.answers import Knowledge, KnowledgeEdge, KnowledgeNode, KnowledgeType
from deedbook.projections.catalog.facets import ClaimedAgent, FacetArguments, narrow, of_types
from deedbook.projections.reasoning.route import Tag
from deedbook.projections.records.marks import AGENT

_THING: Final = (
    "SELECT {} AS id, {} AS label, {} AS state, {} AS agent, {} AS event_index, {} AS happened_ms, {} AS is_claimed "
    "FROM {}"
)
_NAMED: Final = "SELECT * FROM ({}) WHERE id IN (SELECT {} FROM json_each(?1))"
_LINK: Final = (
    "SELECT DISTINCT '{0}/' || nullif(CAST({1} AS TEXT), '') AS start, "
    "'{2}/' || nullif(CAST({3} AS TEXT), '') AS \"end\", '{4}' AS via, {6} AS is_stale FROM {5} "
    "WHERE {7} IN (SELECT {8} FROM json_each(?)) ORDER BY 1, 2 LIMIT ?"
)
# Types whose id is the index of their event.
_BY_INDEX: Final = frozenset({"finding", "unknown", "dead_end"})
_INDEX: Final = re.compile("[0-9]{1,18}")
_HUBS: Final = frozenset({"agent", "evidence"})
_STALE: Final = frozenset({"retracted", "resolved", "removed", "doubted", "rejected", "cancelled", "superseded"})
_CORRECTED: Final = (
    "coalesce((SELECT substr(c.kind, instr(c.kind, '.') + 1) FROM corrections c JOIN events e ON e.id = c.target "
    "WHERE e.event_index = t.event_index LIMIT 1), '')"
)
_DOUBTED: Final = "(SELECT passed FROM validations v WHERE v.reasoning_ref = t.ref ORDER BY event_index DESC LIMIT 1)"
_OF_EVENT: Final = "t JOIN events e ON e.event_index = t.event_index"
_OF_RECORD: Final = ("e.agent", "t.event_index", "t.happened_ms", "e.kind = 'record.imported'")
# For each type of thing: the columns of ``_THING``, and the table. For an imported thing, agent and time are claims.
_THINGS: Final[dict[KnowledgeType, tuple[str, ...]]] = {
    "agent": (
        "name",
        "name",
        "CASE WHEN removed_index IS NULL THEN '' ELSE 'removed' END",
        "name",
        "registered_index",
        "registered_ms",
        "FALSE",
        "agents",
    ),
    "session": (
        "id",
        "coalesce(nullif(task, ''), id)",
        "status",
        AGENT.format("sessions"),
        "started_index",
        "happened_ms",
        "imported IS NOT NULL",
        "sessions",
    ),
    "finding": ("t.event_index", "finding", _CORRECTED, *_OF_RECORD, f"findings {_OF_EVENT}"),
    "unknown": ("t.event_index", "unknown", _CORRECTED, *_OF_RECORD, f"unknowns {_OF_EVENT}"),
    "dead_end": ("t.event_index", "approach", _CORRECTED, *_OF_RECORD, f"dead_ends {_OF_EVENT}"),
    "report": (
        "session_id",
        "coalesce(nullif(task, ''), task_summary)",
        "calibration_status",
        AGENT.format("handoff_reports"),
        "event_index",
        "happened_ms",
        "imported IS NOT NULL",
        "handoff_reports",
    ),
    "reasoning": (
        "id",
        "coalesce(nullif(conclusion, ''), task)",
        f"CASE WHEN {_DOUBTED} = 0 THEN 'doubted' ELSE status END",
        "CASE WHEN original IS NULL THEN author ELSE claimed_author END",
        "updated_index",
        "happened_ms",
        "original IS NOT NULL",
        "reasonings t",
    ),
    "handoff": (
        "id",
        "coalesce(nullif(title, ''), id)",
        "status",
        "coalesce(claimed_author, sender)",
        "updated_index",
        "happened_ms",
        "importer IS NOT NULL",
        "handoffs",
    ),
    "evidence": ("value", "value", "''", "NULL", "NULL", "NULL", "FALSE", "json_each(?1)"),
}
_SHOWN: Final = "findings t JOIN json_each(t.evidence) j ON TRUE"
_CITED: Final = (
    "reasoning_versions v JOIN json_each(v.delta, '$.steps_added') s ON TRUE "
    "JOIN json_each(s.value, '$.evidence') j ON TRUE JOIN reasonings r ON r.id = v.reasoning_id"
)
_CHANGED: Final = (
    "coalesce((SELECT CASE WHEN json_extract(k.value, '$.status') <> 'ok' THEN 1 ELSE 0 END "
    "FROM validations d JOIN json_each(d.data, '$.evidence') k ON TRUE "
    "WHERE d.reasoning_ref = r.ref AND json_extract(k.value, '$.reference') = j.value "
    "ORDER BY d.event_index DESC LIMIT 1), 0)"
)
_REFS: Final = (
    "handoffs h JOIN json_each(h.{}) j ON TRUE JOIN reasoning_versions v ON v.ref = j.value "
    "JOIN reasonings r ON r.id = v.reasoning_id"
)
# The edges: both types and their ids, the word for the relation, the tables, and when the edge is stale.
_RELATIONS: Final[tuple[tuple[KnowledgeType, str, KnowledgeType, str, str, str, str], ...]] = (
    ("agent", AGENT.format("s"), "session", "s.id", "worked in", "sessions s", "0"),
    ("session", "s.resumes", "session", "s.id", "goes on in", "sessions s", "0"),
    ("session", "t.session_id", "finding", "t.event_index", "found", "findings t", "0"),
    ("session", "t.session_id", "unknown", "t.event_index", "left open", "unknowns t", "0"),
    ("session", "t.session_id", "dead_end", "t.event_index", "gave up", "dead_ends t", "0"),
    ("session", "t.session_id", "report", "t.session_id", "reported", "handoff_reports t", "0"),
    ("session", "r.session", "reasoning", "r.id", "reasoned", "reasonings r", "0"),
    ("agent", "r.author", "reasoning", "r.id", "reasoned", "reasonings r", "0"),
    ("evidence", "j.value", "finding", "t.event_index", "shows", _SHOWN, "0"),
    ("evidence", "j.value", "reasoning", "r.id", "supports", _CITED, _CHANGED),
    ("reasoning", "r.id", "handoff", "h.id", "argues for", _REFS.format("reasoning_refs"), "v.ref <> r.ref"),
    ("handoff", "h.id", "reasoning", "r.id", "came to", _REFS.format("result_refs"), "v.ref <> r.ref"),
    ("agent", "h.sender", "handoff", "h.id", "handed over", "handoffs h", "0"),
    ("handoff", "h.id", "agent", "h.receiver", "is for", "handoffs h", "0"),
    ("handoff", "d.depends_on", "handoff", "d.handoff_id", "comes before", "handoff_dependencies d", "0"),
    ("handoff", "h.answers", "handoff", "h.id", "answered by", "handoffs h", "0"),
)


# The type of the event that creates each type of thing.
EVENT_TYPES: Final[dict[KnowledgeType, str]] = {
    "finding": "finding.logged",
    "unknown": "unknown.logged",
    "dead_end": "dead_end.logged",
    "report": "report.generated",
    "session": "session.started",
    "reasoning": "reasoning.started",
    "handoff": "handoff.created",
}
_LABELLED: Final = "SELECT id FROM ({}) AS things WHERE instr(lower(label), lower(?)) > 0"
_newest_of_type_max: Final = 6
"""Without a type filter, at most this many of the newest things are of one type, so that there are edges to show."""


class KnowledgeGraph(query.Arguments, frozen=True):
    """``id`` is the start (``TYPE/ID``; default: the newest things that pass the filters), ``depth`` the most steps.

    The filters are ``text``, the words of a label, ``agent``, ``type``, ``tag``, ``since`` and ``until``.
    """

    id: str | None = None
    text: str | None = None
    agent: ClaimedAgent | None = None
    type: KnowledgeType | None = None
    tag: Tag | None = None
    since: query.Since | None = None
    until: query.Until | None = None
    direction: Literal["back", "forward", "both"] = "both"
    depth: Annotated[int, msgspec.Meta(ge=0, le=8)] = 2
    limit: query.Limit = 80


def graph_knowledge(context: query.QueryContext, args: KnowledgeGraph) -> Knowledge:
    """Return the things around a start. Raises Refused: ``NOT_FOUND``."""
    starts = _newest(context, args) if args.id is None else [args.id]
    is_there = bool(_things(context, dict.fromkeys(starts, 0)))
    if args.id is not None and args.id.startswith("evidence/"):  # evidence exists if any event cites it
        is_there = bool(_links(context, starts, msgspec.structs.replace(args, direction="both")))
    if args.id is not None and not is_there:
        message = f"there is no {args.id}. Name a thing as TYPE/ID; the types are {', '.join(_THINGS)}"
        raise Refused("NOT_FOUND", message, reference=args.id)
    hops, level, is_complete = dict.fromkeys(starts, 0), starts, True
    edges: dict[tuple[str, ...], KnowledgeEdge] = {}
    for hop in range(1, args.depth + 1):
        walked = [name for name in level if name == args.id or name.partition("/")[0] not in _HUBS]
        links = _links(context, walked, args)
        edges |= {(link.start, link.end, link.via): link for link in links}
        level = list(dict.fromkeys(name for link in links for name in (link.start, link.end) if name not in hops))
        room = max(0, args.limit - len(hops))
        is_complete &= len(level) <= room and len(links) < query.page_rows_max
        level = level[:room]
        hops |= dict.fromkeys(level, hop)
    nodes = {node.id: node for node in _things(context, hops)}
    return Knowledge(
        id=args.id,
        nodes=[nodes[name] for name in hops if name in nodes],
        edges=[edge for edge in edges.values() if edge.start in nodes and edge.end in nodes],
        is_complete=is_complete,
    )


def _newest(context: query.QueryContext, args: KnowledgeGraph) -> list[str]:
    """Return the names of the newest things that pass the filters."""
    types = {of: name for name, of in EVENT_TYPES.items() if args.type in (None, name)}
    where = of_types(query.Where(), list(types))
    narrow(where, FacetArguments(since=args.since, until=args.until, agent=args.agent, tag=args.tag))
    if args.text:
        where.add(f"({' OR '.join(_labelled(name) for name in types.values())})", *[args.text] * len(types))
    wanted = max(1, args.limit // 4)
    sql = (
        f"SELECT e.event_index, e.stream, e.type FROM events e{where.sql} "  # noqa: S608 - fixed texts
        "ORDER BY e.happened_ms DESC, e.event_index DESC LIMIT ?"
    )
    names: dict[str, None] = {}
    counts = Counter[str]()
    for row in context.rows(sql, (*where.values, wanted * len(types) * 2)):
        type_ = types[row["type"]]
        name = f"{type_}/{row['event_index'] if type_ in _BY_INDEX else row['stream'].partition('/')[2]}"
        if name not in names and (len(types) == 1 or counts[type_] < _newest_of_type_max):
            names[name] = None
            counts[type_] += 1
    return list(names)[:wanted]


def _labelled(type_: KnowledgeType) -> str:
    """Return the condition that event ``e`` created a thing of this type whose label has a text that is bound."""
    labelled = _LABELLED.format(_THING.format(*_THINGS[type_]))
    if type_ in _BY_INDEX:
        return f"e.event_index IN ({labelled})"
    family = "session" if type_ == "report" else type_
    return f"(e.type = '{EVENT_TYPES[type_]}' AND substr(e.stream, {len(family) + 2}) IN ({labelled}))"


def _by_type(names: Iterable[str]) -> dict[KnowledgeType, str]:
    ids_of: dict[str, list[str]] = {}
    for name in names:
        type_, _, id_ = name.partition("/")
        if type_ not in _BY_INDEX or _INDEX.fullmatch(id_):
            ids_of.setdefault(type_, []).append(id_)
    return {type_: query.json_list(ids_of[type_]) for type_ in _THINGS if type_ in ids_of}


def _value(type_: str) -> str:
    return "CAST(value AS BIGINT)" if type_ in _BY_INDEX else "value"


def _things(context: query.QueryContext, hops: Mapping[str, int]) -> list[KnowledgeNode]:
    by_type = _by_type(hops)
    queries = [(_NAMED.format(_THING.format(*_THINGS[type_]), _value(type_)), (ids,)) for type_, ids in by_type.items()]
    return [
        KnowledgeNode(
            **row | {"id": name, "is_claimed": bool(row["is_claimed"])},
            type=type_,
            is_stale=row["state"] in _STALE,
            hops=hops[name],
        )
        for type_, rows in zip(by_type, context.together(*queries), strict=True)
        for row in rows
        for name in (f"{type_}/{row['id']}",)
    ]


def _links(context: query.QueryContext, names: Iterable[str], args: KnowledgeGraph) -> list[KnowledgeEdge]:
    ids = _by_type(names)
    queries: list[tuple[str, tuple[str, int]]] = []
    for relation in _RELATIONS:
        start, start_id, end, end_id, *_ = relation
        ways: tuple[tuple[str, KnowledgeType, str], ...] = (("back", end, end_id), ("forward", start, start_id))
        for towards, type_, known in ways:
            is_left_out = end in _HUBS if type_ == start else args.id is None and start in _HUBS
            if type_ in ids and args.direction in (towards, "both") and not is_left_out:
                queries.append((_LINK.format(*relation, known, _value(type_)), (ids[type_], query.page_rows_max)))
    rows = [row for rows in context.together(*queries) for row in rows]
    return [KnowledgeEdge(**row | {"is_stale": bool(row["is_stale"])}) for row in rows if row["start"] and row["end"]]
