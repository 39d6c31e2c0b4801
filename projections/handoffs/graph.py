"""Who waits for whom, as a tree with its critical path.

The functions of graphs are pure, take a mapping from an id to the ids that it depends on, and never recurse: ten
thousand handoffs may stand in one row. An id that is not in the mapping (a handoff that nobody created) has no level,
and what stands on a cycle, which the gate refuses, comes last. ``graphlib`` stops at a cycle, gives an order but no
levels, and takes several times as long (measured): so the levels are counted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import UnlockAt
from deedbook.ledger.lifecycle.handoff_status import Status, is_unlocked
from deedbook.projections.answers.query import Answer, Arguments, Limit, QueryContext, json_list
from deedbook.projections.handoffs.facts import DEPENDS_ON, stage_of
from deedbook.projections.handoffs.queries import SUMMARY, find_handoff, summary
from deedbook.projections.stores.dialect import stated

graph_handoffs_max: Final = 20_000

OPEN: Final[tuple[Status, ...]] = tuple(status for status in get_args(Status) if stage_of(status) != "over")
# What is completed only waits for its reviewer: it is on nobody's critical path but where `verified` unlocks.
UNFINISHED: Final = frozenset(status for status in OPEN if stage_of(status) != "completed")

_OPEN_SQL: Final = "h.status IN ({})".format(", ".join(f"'{status}'" for status in OPEN))
# What a dependency still holds up, by when it unlocks.
_HOLDING: Final = {at: {status for status in OPEN if not is_unlocked(status, at)} for at in get_args(UnlockAt)}
# One row of JSON: read as rows, the same costs four times as long (measured at 20,000 dependencies).
_LINK: Final = stated(
    sqlite="json_group_object(id, json_array(status, unlock_at, json(depends_on)))",
    postgres="coalesce(json_object_agg(id, json_build_array(status, unlock_at, depends_on)), '{}')",
)
_LINKS: Final = f"""
    SELECT {_LINK} AS links FROM (
        SELECT h.id, h.status, h.unlock_at, {DEPENDS_ON} AS depends_on
        FROM handoffs h WHERE {{}} ORDER BY h.created_index DESC LIMIT ?
    )"""  # noqa: S608 - fixed texts
# What begins a recursion has its collation there; that of columns is by bytes in both stores.
_BEGIN: Final = stated(sqlite="AS (SELECT ? UNION", postgres='AS (SELECT ? COLLATE "C" UNION')
_REACHED: Final = f"""
    WITH RECURSIVE wanted(id) {_BEGIN} SELECT d.{{}} FROM handoff_dependencies d JOIN wanted w ON d.{{}} = w.id
    ) """  # noqa: S608 - fixed texts
# Both stores go on only as long as somebody reads on.
_WANTED: Final = f"h.id IN (SELECT id FROM wanted LIMIT {graph_handoffs_max + 1})"  # noqa: S608 - a fixed number
_DOWN: Final = _REACHED.format("depends_on", "handoff_id")
_UP: Final = _REACHED.format("handoff_id", "depends_on")

Links: TypeAlias = "dict[str, Link]"
Graph: TypeAlias = "dict[str, list[str]]"


class HandoffGraph(Arguments, frozen=True, rename={"is_all": "all"}):
    """What to draw: what one handoff waits for, who waits for it (``dependents``), or all that are open.

    ``after`` is the ``next`` of the page before, ``limit`` the lines of a page; ``all`` draws finished ones as well.
    """

    id: str | None = None
    dependents: bool = False
    is_all: bool = False
    after: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    limit: Limit = 200


class Surroundings(Arguments, frozen=True, rename={"is_all": "all"}):
    """What to draw around a handoff (default: the end of the longest chain that is not done).

    That is what it waits for, and what waits for it up to ``depth`` steps on; ``all`` adds every other one.
    """

    id: str | None = None
    depth: Annotated[int, msgspec.Meta(ge=0, le=32)] = 2
    is_all: bool = False
    limit: Limit = 100


class Link(NamedTuple):
    """Of the facts of a handoff those that the graph needs, of up to 20,000 of them at once."""

    status: Status
    unlock_at: UnlockAt
    depends_on: list[str]

    def is_unlocked_by(self, status: Status | None) -> bool:
        """Whether a dependency of this status lets it start."""
        return is_unlocked(status, self.unlock_at)


_decoder: Final = msgspec.json.Decoder(dict[str, Link])


class Line(NamedTuple):
    """One line of a tree; ``is_again``: its own branches were drawn before."""

    id: str
    depth: int
    parent: str | None
    is_again: bool


def levels(depends_on: Graph) -> dict[str, int]:
    """Return for each id the length of the longest chain that ends at it, from 1; sorted by it, an order of work."""
    found: dict[str, int] = {}
    # Mostly they were created in the order in which they wait, or in its reverse: a third of the time of counting.
    for names in (depends_on, reversed(depends_on)):
        for name in names:
            level = 1
            for on in depends_on[name]:
                below = found.get(on)
                if below is not None:
                    level = below + 1 if below >= level else level
                elif on in depends_on:
                    break
            else:
                found[name] = level
    return found if len(found) == len(depends_on) else _counted_levels(depends_on)


def _counted_levels(depends_on: Graph) -> dict[str, int]:
    """Return levels whatever the order, and where there are cycles."""
    waited_for_by: dict[str, list[str]] = {}
    missing = dict.fromkeys(depends_on, 0)
    for name, wanted in depends_on.items():
        for on in wanted:
            if on in missing:
                missing[name] += 1
                waited_for_by.setdefault(on, []).append(name)
    found = {name: 1 for name, count in missing.items() if not count}
    free = list(found)
    for name in free:  # grows while it is walked
        level = found[name] + 1
        for above in waited_for_by.get(name, ()):
            missing[above] -= 1
            if not missing[above]:
                found[above] = level  # the last of what it waits for has the highest level: they are met in order
                free.append(above)
    last = len(depends_on) + 1
    return found | {name: last for name in depends_on if name not in found}


def critical_path(depends_on: Graph, end: str | None = None) -> list[str]:
    """Return the longest chain, or the longest that ends at ``end``, in the order in which it must be done."""
    # Where two are as long, the smaller id wins, from the end backwards.
    found = {name: level for name, level in levels(depends_on).items() if level <= len(depends_on)}
    if end is None:
        end = min(found, key=lambda name: (-found[name], name), default=None)
    if end is None or end not in found:
        return []
    path = [end]
    while found[path[-1]] > 1:
        below = found[path[-1]] - 1
        path.append(min(on for on in depends_on[path[-1]] if found.get(on) == below))
    return path[::-1]


def walk(branches: Graph, roots: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of a forest, each with what branches from it below it; an id's branches are drawn once."""
    seen: set[str] = set()
    waiting: list[tuple[str, int, str | None]] = [(root, 0, None) for root in reversed(roots)]
    while waiting:
        name, depth, parent = waiting.pop()
        is_again = name in seen
        yield Line(name, depth, parent, is_again)
        if not is_again:
            seen.add(name)
            waiting.extend((on, depth + 1, name) for on in reversed(branches.get(name, ())))


def reversed_graph(depends_on: Graph) -> dict[str, list[str]]:
    """Return for each id those that depend on it."""
    found: dict[str, list[str]] = {}
    for name, wanted in depends_on.items():
        for on in dict.fromkeys(wanted):
            found.setdefault(on, []).append(name)
    return found


def still_waits_for(links: Links) -> dict[str, list[str]]:
    """Return what is left to do: unfinished handoffs, and of what each depends on that which must still move."""
    holding = {at: {name for name, link in links.items() if link.status in _HOLDING[at]} for at in _HOLDING}
    found = {
        name: [on for on in link.depends_on if on in holding[link.unlock_at]]
        for name, link in links.items()
        if link.status in UNFINISHED
    }
    # What is completed and not yet verified, as one of them asks, is left to do, too.
    return found | {on: [] for wanted in found.values() for on in wanted if on not in found}


def graph_handoffs(context: QueryContext, args: HandoffGraph) -> Answer:
    """Return a page of the tree, with ``nodes``, ``edges`` (``from`` waits for ``to``) and the whole's figures.

    ``lines`` are ``{"id", "depth", "is_again"}``; ``path`` leads from a root to the first of them; a node that nobody
    created has ``status`` None. ``critical_path`` is the longest chain of unfinished handoffs, to the args one or
    anywhere, and ``order`` an order in which the page's nodes can be done. Raises Refused: ``NOT_FOUND``,
    ``REF_AMBIGUOUS``; ``TOO_LARGE`` when more than ``graph_handoffs_max`` hang together.
    """
    root = None if args.id is None else find_handoff(context, args.id)
    links, drawn = _drawn(context, args, root)
    branches = reversed_graph(drawn) if args.dependents else drawn
    waited_for = set(chain.from_iterable(drawn.values()))
    inner = set(chain.from_iterable(branches.values())) if args.dependents else waited_for
    roots = [name for name in branches if name not in inner] if root is None else [root]
    parents: dict[str, str | None] = {}
    lines = walk(branches, roots)
    for line in islice(lines, args.after):
        parents.setdefault(line.id, line.parent)
    page = list(islice(lines, args.limit))
    for line in page:
        parents.setdefault(line.id, line.parent)
    more = next(lines, None) is not None
    known = links if not args.dependents else _linked(context, _DOWN, root) if root else links
    names = list(dict.fromkeys(name for line in page for name in (line.parent, line.id) if name is not None))
    total = len(drawn.keys() | waited_for)
    count = total if root is not None else total + _beyond(context, args)
    level = levels(drawn)
    return {
        "id": root,
        "lines": [{"id": line.id, "depth": line.depth, "is_again": line.is_again} for line in page],
        "path": _path_to(page, parents),
        "nodes": _nodes(context, names),
        "edges": [
            {"from": line.id, "to": line.parent} if args.dependents else {"from": line.parent, "to": line.id}
            for line in page
            if line.parent is not None
        ],
        "critical_path": critical_path(still_waits_for(known), root),
        "order": sorted(names, key=lambda name: (level.get(name, 0), name)),
        "totals": {"nodes": count, "edges": sum(map(len, drawn.values())), "left_out": count - len(parents)},
        "next": args.after + len(page) if more else None,
    }


def around_handoff(context: QueryContext, args: Surroundings) -> Answer:
    """Return ``{"id", "nodes", "edges", "totals"}``: first what holds the handoff up, then what is nearest.

    A node has ``hops``: below 0 so many steps before it, above 0 behind it, None elsewhere; one that nobody created has
    ``status`` None. An edge (``from`` waits for ``to``) that ``holds`` is on the way to what holds the handoff up.
    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
    """
    open_ = _links(context, "", _OPEN_SQL) if args.id is None else {}
    end = next(iter(critical_path(still_waits_for(open_))[::-1] or open_), None)
    root = end if args.id is None else find_handoff(context, args.id)
    before, behind = ({} if root is None else _links(context, way, _WANTED, root) for way in (_DOWN, _UP))
    hops = {} if root is None else _hops(root, before, behind, args.depth)
    links = before | {name: link for name, link in behind.items() if name in hops}
    if args.is_all:
        links = _links(context, "", "TRUE") | links
    # What still has to move: from the handoff down, as far as something waits.
    held: dict[str, list[str]] = {}
    for name in (waiting := [] if root is None else [root]):  # which grows meanwhile
        link = links.get(name)
        if name not in held and link is not None and stage_of(link.status) == "waiting":
            statuses = {on: links[on].status if on in links else None for on in link.depends_on}
            held[name] = [on for on, status in statuses.items() if not link.is_unlocked_by(status)]
            waiting.extend(held[name])
    first = set(waiting)
    others = (on for link in links.values() for on in link.depends_on) if args.is_all else ()
    names = dict.fromkeys([*hops, *links, *others])
    kept = sorted(names, key=lambda name: (name not in first, name not in hops, abs(hops.get(name, 0))))[: args.limit]
    shown = set(kept)
    edges = [
        {"from": name, "to": on, "holds": on in held.get(name, ())}
        for name in kept
        if name in links
        for on in dict.fromkeys(links[name].depends_on)
        if on in shown
    ]
    total = len(names) + (_beyond(context, HandoffGraph(is_all=True)) if args.is_all else 0)
    nodes = [node | {"hops": hops.get(node["id"])} for node in _nodes(context, kept)]
    return {"id": root, "nodes": nodes, "edges": edges, "totals": {"nodes": total, "left_out": total - len(kept)}}


def _hops(root: str, before: Links, behind: Links, depth: int) -> dict[str, int]:
    """Return how far before or behind a handoff is what hangs together with it, the nearest first."""
    hops = {root: 0}
    waits_for = {name: link.depends_on for name, link in before.items()}
    waited_for_by = reversed_graph({name: link.depends_on for name, link in behind.items()})
    for graph, step, most in ((waits_for, -1, graph_handoffs_max), (waited_for_by, 1, depth)):
        for name in (walked := [root]):  # which grows meanwhile
            further = [on for on in graph.get(name, ()) if on not in hops and abs(hops[name]) < most]
            hops |= dict.fromkeys(further, hops[name] + step)
            walked.extend(further)
    return hops


def _drawn(context: QueryContext, args: HandoffGraph, root: str | None) -> tuple[Links, dict[str, list[str]]]:
    """Return the handoffs that were read, and which of their dependencies are drawn."""
    if root is not None and args.dependents:
        links = _linked(context, _UP, root)
        return links, {name: [on for on in link.depends_on if on in links] for name, link in links.items()}
    links = _links(context, "", "TRUE" if args.is_all else _OPEN_SQL) if root is None else _linked(context, _DOWN, root)
    if root is not None or args.is_all:
        return links, {name: link.depends_on for name, link in links.items()}
    # Of what is done, an open handoff shows only what holds it up for ever: cancelled, rejected, missing.
    elsewhere = sorted(set(chain.from_iterable(link.depends_on for link in links.values())) - links.keys())
    sql = "SELECT id, status FROM handoffs WHERE id IN (SELECT value FROM json_each(?))"
    status: dict[str, Status] = {row["id"]: row["status"] for row in context.rows(sql, (json_list(elsewhere),))}
    done = {at: {on for on, now in status.items() if is_unlocked(now, at)} for at in _HOLDING}
    return links, {name: [on for on in one.depends_on if on not in done[one.unlock_at]] for name, one in links.items()}


def _linked(context: QueryContext, reached: str, root: str) -> Links:
    links = _links(context, reached, _WANTED, root)
    if len(links) > graph_handoffs_max:
        raise Refused("TOO_LARGE", f"{root} hangs together with more than {graph_handoffs_max} handoffs", id=root)
    return links


def _links(context: QueryContext, before: str, condition: str, *values: str) -> Links:
    (row,) = context.rows(before + _LINKS.format(condition), (*values, graph_handoffs_max + (1 if before else 0)))
    return _decoder.decode(row["links"])


def _beyond(context: QueryContext, args: HandoffGraph) -> int:
    condition = "TRUE" if args.is_all else _OPEN_SQL
    total = context.count(f"SELECT count(*) FROM handoffs h WHERE {condition}")  # noqa: S608 - fixed texts
    return max(0, total - graph_handoffs_max)


def _path_to(page: Sequence[Line], parents: Mapping[str, str | None]) -> list[str]:
    path: list[str] = []
    here = page[0].parent if page else None
    while here is not None:
        path.append(here)
        here = parents[here]
    return path[::-1]


def _nodes(context: QueryContext, names: Sequence[str]) -> list[dict[str, Any]]:
    sql = SUMMARY + " WHERE h.id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed texts
    found = {row["id"]: summary(row) for row in context.rows(sql, (context.now_ms, json_list(names)))}
    return [found.get(name) or {"id": name, "title": None, "status": None, "is_ready": False} for name in names]
