"""The result of a Tree of Thoughts: children, frontier, best path and stats, from its nodes alone.

The explorer uses it to close a search, and the view shows it at every index. Both use the same rule.

The best path leads to the best end, among all nodes that are evaluated or terminal and neither pruned nor below a
pruned node. A terminal node comes before others; then the score decides, then the confidence, then among non-terminal
nodes the greater depth, then the earlier addition.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import astuple

from deedbook.consumers.thoughts.events import (
    Reply,
    SearchConfig,
    SearchState,
    SearchStats,
    ThoughtNode,
    TotModelAnswered,
    Usage,
)
from deedbook.ledger.events.body import Event


class Costs(msgspec.Struct, frozen=True, array_like=True):
    """The costs of a task so far: those of answers, and those of model calls for open requests (by their ids)."""

    answered: Usage = Usage()
    waiting: dict[str, Usage] = {}

    @property
    def total(self) -> Usage:
        """The sum of both."""
        return sum(self.waiting.values(), self.answered)


def costs_after(costs: Costs, event: Event) -> Costs:
    """Return the costs after one more event: an answer has the whole cost of its request, or at least what was paid."""
    match event.data:
        case TotModelAnswered(usage=usage):
            paid = {cause: costs.waiting.get(cause, Usage()) + usage for cause in event.causes[:1]}
            return Costs(costs.answered, costs.waiting | paid)
        case Reply(usage=usage):
            paid = {cause: spent for cause, spent in costs.waiting.items() if cause in event.causes}
            known = sum(paid.values(), Usage())
            whole = Usage(*(max(pair) for pair in zip(astuple(usage), astuple(known), strict=True)))
            waiting = {id_: spent for id_, spent in costs.waiting.items() if id_ not in paid}
            return Costs(costs.answered + whole, waiting)
        case _:  # the other kinds cost nothing
            return costs


def with_children(nodes: Mapping[str, ThoughtNode]) -> dict[str, ThoughtNode]:
    """Return the nodes, each with its children in the order of addition."""
    children: dict[str, list[str]] = {id_: [] for id_ in nodes}
    for id_, node in nodes.items():
        if node.parent_id is not None:
            children[node.parent_id].append(id_)
    return {id_: msgspec.structs.replace(node, children_ids=children[id_]) for id_, node in nodes.items()}


def root_of(nodes: Mapping[str, ThoughtNode]) -> str | None:
    """Return the id of the root; None before there is one."""
    return next((id_ for id_, node in nodes.items() if node.parent_id is None), None)


def search_state(nodes: Mapping[str, ThoughtNode], config: SearchConfig | None) -> SearchState:
    """Return the state of a search; ``current_depth`` is the depth of the next node to expand, else of the deepest."""
    open_ = frontier(nodes, config)
    depth = nodes[open_[0]].depth if open_ else max((node.depth for node in nodes.values()), default=0)
    return SearchState(current_depth=depth, frontier=open_, best_path=best_path(nodes))


def frontier(nodes: Mapping[str, ThoughtNode], config: SearchConfig | None) -> list[str]:
    """Return the nodes to expand: breadth-first, the shallowest first, else the deepest; at equal depth, the best."""
    if config is None:
        return []
    cut = cut_off(nodes)
    sign = 1 if config.strategy == "BFS" else -1
    open_ = [
        node
        for node in nodes.values()
        if node.status == "pending" and node.id not in cut and node.depth < config.max_depth
    ]
    return [node.id for node in sorted(open_, key=lambda node: (sign * node.depth, -_score(node)))]


def best_path(nodes: Mapping[str, ThoughtNode]) -> list[str]:
    """Return the ids from the root to the best node; only the root while nothing is evaluated."""
    cut = cut_off(nodes)
    judged = (node for node in nodes.values() if node.evaluation is not None or node.status == "terminal")
    ends = [node for node in judged if node.id not in cut]
    end = max(ends, key=_worth, default=None)
    at = root_of(nodes) if end is None else end.id
    path: list[str] = []
    while at is not None:
        path.append(at)
        at = nodes[at].parent_id
    return path[::-1]


def stats_of(nodes: Mapping[str, ThoughtNode], *, backtracks: int, costs: Costs, rounds: int) -> SearchStats:
    """Return the counts of a search; ``best_score`` is the highest of any node, pruned or not."""
    usage = costs.total
    scores = [node.evaluation.score for node in nodes.values() if node.evaluation is not None]
    return SearchStats(
        total_nodes=len(nodes),
        total_backtracks=backtracks,
        rounds=rounds,
        best_score=max(scores, default=None),
        llm_calls=usage.requests,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        nodes_pruned=sum(node.status == "pruned" for node in nodes.values()),
        max_depth_reached=max((node.depth for node in nodes.values()), default=0),
    )


def _worth(node: ThoughtNode) -> tuple[bool, float, float, int]:
    is_end, confidence = node.status == "terminal", 0.0 if node.evaluation is None else node.evaluation.confidence
    return is_end, _score(node), confidence, 0 if is_end else node.depth


def cut_off(nodes: Mapping[str, ThoughtNode]) -> set[str]:
    """Return the pruned nodes and all nodes below them; parents come before their children."""
    cut: set[str] = set()
    for id_, node in nodes.items():
        if node.status == "pruned" or node.parent_id in cut:
            cut.add(id_)
    return cut


def _score(node: ThoughtNode) -> float:
    return -1.0 if node.evaluation is None else node.evaluation.score
