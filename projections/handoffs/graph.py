"""The dependency graph of handoffs, as a tree with its critical path.

The graph functions are pure, take a mapping from an id to the ids that it depends on, and never recurse: ten thousand
handoffs may form one chain. An id that is not in the mapping (a handoff that nobody created) has no level. Ids on a
cycle, which the gate refuses, come last. ``graphlib`` stops at a cycle, gives an order but no levels, and takes several
times as long (measured), so this module counts the levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Final, NamedTuple, TypeAlias, get_args

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import json_decoder
from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.handoff_status import Status, is_unlocked, stage_of
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.answers.query import Arguments, Limit, QueryContext, id_of, json_list
from deedbook.projections.handoffs.answers import (
    GraphEdge,
    GraphNode,
    GraphTotals,
    NearEdge,
    NearNode,
    Surrounding,
    Tree,
    TreeLine,
    TreeTotals,
)
from deedbook.projections.handoffs.queries import SUMMARY, with_ready
from deedbook.projections.stores.dialect import stated

graph_handoffs_max: Final = 20_000

OPEN: Final[tuple[Status, ...]] = tuple(status for status in get_args(Status) if stage_of(status) != "over")
# A completed handoff waits only for its reviewer. It is on a critical path only if its dependents need `verified`.
UNFINISHED: Final = frozenset(status for status in OPEN if stage_of(status) != "completed")

_OPEN_SQL: Final = "h.is_history = 0 AND h.status IN ({})".format(", ".join(f"'{status}'" for status in OPEN))
# Maps the status at which a dependency unlocks a handoff to the statuses in which the dependency still blocks it.
_HOLDING: Final = {at: {status for status in OPEN if not is_unlocked(status, at)} for at in get_args(UnlockAt)}
# The dependencies of the handoff ``h``, in order, as JSON.
_DEPENDS_ON: Final = """(
    SELECT json_group_array(depends_on) FROM (
        SELECT d.depends_on FROM handoff_dependencies d WHERE d.handoff_id = h.id ORDER BY d.position
    )
)"""
# All links as one row of JSON: one row for each link takes four times as long (measured at 20,000 dependencies).
_LINK: Final = stated(
    sqlite="json_group_object(id, json_array(status, unlock_at, json(depends_on)))",
    postgres="coalesce(json_object_agg(id, json_build_array(status, unlock_at, depends_on)), '{}')",
)
_LINKS: Final = f"""
    SELECT {_LINK} AS links FROM (
        SELECT h.id, h.status, h.unlock_at, {_DEPENDS_ON} AS depends_on
        FROM handoffs h WHERE {{}} ORDER BY h.created_index DESC LIMIT ?
    )"""  # noqa: S608 - fixed texts
# The first term sets the collation of the recursion; columns are compared by bytes in both stores.
_BEGIN: Final = stated(sqlite="AS (SELECT ? UNION", postgres='AS (SELECT ? COLLATE "C" UNION')
_REACHED: Final = f"""
    WITH RECURSIVE wanted(id) {_BEGIN} SELECT d.{{}} FROM handoff_dependencies d JOIN wanted w ON d.{{}} = w.id
    ) """  # noqa: S608 - fixed texts
# Both stores stop the recursion when no more rows are read.
_WANTED: Final = f"h.id IN (SELECT id FROM wanted LIMIT {graph_handoffs_max + 1})"  # noqa: S608 - a fixed number
_DOWN: Final = _REACHED.format("depends_on", "handoff_id")
_UP: Final = _REACHED.format("handoff_id", "depends_on")

Links: TypeAlias = "dict[str, Link]"
Graph: TypeAlias = "dict[str, list[str]]"


class HandoffGraph(Arguments, frozen=True, rename={"is_all": "all"}):
    """The part to draw: the dependencies of the handoff ``id``, its ``dependents``, or all open handoffs.

    ``after`` is the ``next`` of the previous page, ``limit`` the lines of a page; ``all`` draws finished handoffs, too.
    """

    id: str | None = None
    dependents: bool = False
    is_all: bool = False
    after: Annotated[int, msgspec.Meta(ge=0, le=json_integer_max)] = 0
    limit: Limit = 200


class Surroundings(Arguments, frozen=True, rename={"is_all": "all"}):
    """``id`` is the handoff in the middle (default: the end of the longest unfinished chain).

    The drawing has its dependencies, and its dependents up to ``depth`` steps away; ``all`` adds every other handoff.
    """

    id: str | None = None
    depth: Annotated[int, msgspec.Meta(ge=0, le=32)] = 2
    is_all: bool = False
    limit: Limit = 100


class Link(NamedTuple):
    """A handoff in the graph: only the fields that the graph needs, because it has up to 20,000 handoffs."""

    status: Status
    unlock_at: UnlockAt
    depends_on: list[str]

    def is_unlocked_by(self, status: Status | None) -> bool:
        """Whether this handoff may start when a dependency has this status."""
        return is_unlocked(status, self.unlock_at)


_decoder: Final = json_decoder(dict[str, Link])


class Line(NamedTuple):
    """One line of a tree; ``is_again``: its branches were drawn before."""

    id: str
    depth: int
    parent: str | None
    is_again: bool


def levels(depends_on: Graph) -> dict[str, int]:
    """Return for each id the length of the longest chain that ends at it, from 1. Work can be done in this order."""
    level_of: dict[str, int] = {}
    # Most handoffs are created in the order of work, or in the reverse order. Then this way takes a third of the time
    # that counting takes.
    for names in (depends_on, reversed(depends_on)):
        for name in names:
            level = 1
            for on in depends_on[name]:
                below = level_of.get(on)
                if below is not None:
                    level = below + 1 if below >= level else level
                elif on in depends_on:
                    break
            else:
                level_of[name] = level
    return level_of if len(level_of) == len(depends_on) else _counted_levels(depends_on)


def _counted_levels(depends_on: Graph) -> dict[str, int]:
    """Return levels for any order of ids, also with cycles."""
    waited_for_by: dict[str, list[str]] = {}
    missing = dict.fromkeys(depends_on, 0)
    for name, dependencies in depends_on.items():
        for on in dependencies:
            if on in missing:
                missing[name] += 1
                waited_for_by.setdefault(on, []).append(name)
    level_of = {name: 1 for name, count in missing.items() if not count}
    free = list(level_of)
    for name in free:  # the list grows in the loop
        level = level_of[name] + 1
        for above in waited_for_by.get(name, ()):
            missing[above] -= 1
            if not missing[above]:
                level_of[above] = level  # its last dependency has the highest level, because they come in order
                free.append(above)
    last = len(depends_on) + 1
    return level_of | {name: last for name in depends_on if name not in level_of}


def critical_path(depends_on: Graph, end: str | None = None) -> list[str]:
    """Return the longest chain, or the longest that ends at ``end``, in the order of work."""
    # Among equally long chains, the smaller id wins, from the end backwards.
    level_of = {name: level for name, level in levels(depends_on).items() if level <= len(depends_on)}
    if end is None:
        end = min(level_of, key=lambda name: (-level_of[name], name), default=None)
    if end is None or end not in level_of:
        return []
    path = [end]
    while level_of[path[-1]] > 1:
        below = level_of[path[-1]] - 1
        path.append(min(on for on in depends_on[path[-1]] if level_of.get(on) == below))
    return path[::-1]


def walk(branches: Graph, roots: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of a forest, each with its branches below it; the branches of an id are drawn once."""
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
    """Return for each id the ids that depend on it."""
    dependents: dict[str, list[str]] = {}
    for name, dependencies in depends_on.items():
        for on in dict.fromkeys(dependencies):
            dependents.setdefault(on, []).append(name)
    return dependents


def still_waits_for(links: Links) -> dict[str, list[str]]:
    """Return the remaining work: unfinished handoffs, each with its dependencies that must still change."""
    holding = {at: {name for name, link in links.items() if link.status in _HOLDING[at]} for at in _HOLDING}
    remaining = {
        name: [on for on in link.depends_on if on in holding[link.unlock_at]]
        for name, link in links.items()
        if link.status in UNFINISHED
    }
    # Completed dependencies that must be verified first are remaining work, too.
    return remaining | {on: [] for dependencies in remaining.values() for on in dependencies if on not in remaining}


def graph_handoffs(context: QueryContext, args: HandoffGraph) -> Tree:
    """Return a page of the tree.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``TOO_LARGE`` when more than ``graph_handoffs_max`` are connected.
    """
    root = None if args.id is None else id_of(context, "handoff", args.id)
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
    pairs = [(line.parent, line.id)[:: -1 if args.dependents else 1] for line in page if line.parent is not None]
    return Tree(
        id=root,
        lines=[TreeLine(id=line.id, depth=line.depth, is_again=line.is_again) for line in page],
        path=_path_to(page, parents),
        nodes=_nodes(context, names),
        edges=[GraphEdge(waiting=name, on=on) for name, on in pairs],
        critical_path=critical_path(still_waits_for(known), root),
        order=sorted(names, key=lambda name: (level.get(name, 0), name)),
        totals=TreeTotals(nodes=count, edges=sum(map(len, drawn.values())), left_out=count - len(parents)),
        next=args.after + len(page) if more else None,
    )


def around_handoff(context: QueryContext, args: Surroundings) -> Surrounding:
    """Return a handoff and the handoffs around it. Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``."""
    open_ = _links(context, "", _OPEN_SQL) if args.id is None else {}
    end = next(iter(critical_path(still_waits_for(open_))[::-1] or open_), None)
    root = end if args.id is None else id_of(context, "handoff", args.id)
    before, behind = ({} if root is None else _links(context, recursion, _WANTED, root) for recursion in (_DOWN, _UP))
    hops = {} if root is None else _hops(root, before, behind, args.depth)
    links = before | {name: link for name, link in behind.items() if name in hops}
    if args.is_all:
        links = _links(context, "", "TRUE") | links
    # Collect the blocking dependencies of this handoff, and of each collected handoff that itself waits.
    holding: dict[str, list[str]] = {}
    for name in (waiting := [] if root is None else [root]):  # the list grows in the loop
        link = links.get(name)
        if name not in holding and link is not None and stage_of(link.status) == "waiting":
            statuses = {on: links[on].status if on in links else None for on in link.depends_on}
            holding[name] = [on for on, status in statuses.items() if not link.is_unlocked_by(status)]
            waiting.extend(holding[name])
    first = set(waiting)
    others = (on for link in links.values() for on in link.depends_on) if args.is_all else ()
    names = dict.fromkeys([*hops, *links, *others])
    chosen = sorted(names, key=lambda name: (name not in first, name not in hops, abs(hops.get(name, 0))))[: args.limit]
    drawn = set(chosen)
    edges = [
        NearEdge(waiting=name, on=on, holds=on in holding.get(name, ()))
        for name in chosen
        if name in links
        for on in dict.fromkeys(links[name].depends_on)
        if on in drawn
    ]
    total = len(names) + (_beyond(context, HandoffGraph(is_all=True)) if args.is_all else 0)
    nodes = [NearNode(**msgspec.structs.asdict(node), hops=hops.get(node.id)) for node in _nodes(context, chosen)]
    totals = GraphTotals(nodes=total, left_out=total - len(chosen))
    return Surrounding(id=root, nodes=nodes, edges=edges, totals=totals)


def _hops(root: str, before: Links, behind: Links, depth: int) -> dict[str, int]:
    """Return the steps from a handoff to each connected one: negative to dependencies, positive to dependents."""
    hops = {root: 0}
    waits_for = {name: link.depends_on for name, link in before.items()}
    waited_for_by = reversed_graph({name: link.depends_on for name, link in behind.items()})
    for graph, step, most in ((waits_for, -1, graph_handoffs_max), (waited_for_by, 1, depth)):
        for name in (walked := [root]):  # the list grows in the loop
            further = [on for on in graph.get(name, ()) if on not in hops and abs(hops[name]) < most]
            hops |= dict.fromkeys(further, hops[name] + step)
            walked.extend(further)
    return hops


def _drawn(context: QueryContext, args: HandoffGraph, root: str | None) -> tuple[Links, dict[str, list[str]]]:
    """Return the handoffs that were read, and the dependencies of each to draw."""
    if root is not None and args.dependents:
        links = _linked(context, _UP, root)
        return links, {name: [on for on in link.depends_on if on in links] for name, link in links.items()}
    links = _links(context, "", "TRUE" if args.is_all else _OPEN_SQL) if root is None else _linked(context, _DOWN, root)
    if root is not None or args.is_all:
        return links, {name: link.depends_on for name, link in links.items()}
    # Draw a finished dependency only if it blocks for ever: if it was cancelled or rejected, or is missing.
    elsewhere = sorted(set(chain.from_iterable(link.depends_on for link in links.values())) - links.keys())
    sql = "SELECT id, status FROM handoffs WHERE id IN (SELECT value FROM json_each(?))"
    status: dict[str, Status] = {row["id"]: row["status"] for row in context.rows(sql, (json_list(elsewhere),))}
    done = {at: {on for on, now in status.items() if is_unlocked(now, at)} for at in _HOLDING}
    return links, {
        name: [on for on in link.depends_on if on not in done[link.unlock_at]] for name, link in links.items()
    }


def _linked(context: QueryContext, reached: str, root: str) -> Links:
    links = _links(context, reached, _WANTED, root)
    if len(links) > graph_handoffs_max:
        raise Refused("TOO_LARGE", f"{root} is connected with more than {graph_handoffs_max} handoffs", id=root)
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
    name = page[0].parent if page else None
    while name is not None:
        path.append(name)
        name = parents[name]
    return path[::-1]


def _nodes(context: QueryContext, names: Sequence[str]) -> list[GraphNode]:
    sql = SUMMARY + " WHERE h.id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed texts
    known = GraphNode.__struct_fields__
    rows = {
        row["id"]: {name: value for name, value in with_ready(row).items() if name in known}
        for row in context.rows(sql, (context.now_ms, json_list(names)))
    }
    missing = {"title": None, "status": None, "is_ready": False}
    return [GraphNode(**rows.get(name, {"id": name} | missing)) for name in names]
