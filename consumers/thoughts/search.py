"""What an explorer does next, as a pure function of the tree that the log tells.

    action = next_action(state, thinker.is_solution, elapsed_s)

Whoever applies the action appends what it says (``messages.outgoing``) and folds it into the state; whoever was killed
folds the log again and is told the same action: nothing about a search lives in an explorer's memory.

Breadth first: a level is generated from and judged whole; solutions of it end the search; of the others those below the
threshold and those beyond the beam are pruned. Depth first: the best child is entered until a solution, the depth limit
or a dead end; then the search turns back to the deepest node that has a child left, and says so.

A request that failed is asked again, ``attempts_max`` times at most, and of the solutions that were found the best
``ends_tried_max`` are synthesized. A budget never cuts off what was found already. A search of which no thought was
ever judged has exhausted nothing: it ends with what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from consumers.thoughts.tree import TreeState, attempts_max, in_order, path_to
from ledger.events.tot import Failure, ThoughtNode

SolutionTest: TypeAlias = Callable[[Sequence[ThoughtNode]], bool]

batch_nodes_max: Final = 64
batch_size_max_bytes: Final = 24 * 1024
ends_tried_max: Final = 3


class Wait(msgspec.Struct, frozen=True):
    """Nothing, until these requests are answered."""

    requests: tuple[str, ...]


class AddNodes(msgspec.Struct, frozen=True):
    """Give candidates of ``answer`` their ids; the root, of the request to search, has no temporary id."""

    answer: str
    nodes: tuple[ThoughtNode, ...]
    temp_ids: tuple[str, ...] = ()


class Generate(msgspec.Struct, frozen=True):
    """Ask for ``k`` thoughts from a node."""

    node_id: str
    k: int


class Evaluate(msgspec.Struct, frozen=True):
    """Ask what nodes are worth."""

    node_ids: tuple[str, ...]


class Mark(msgspec.Struct, frozen=True):
    """Leave nodes out of the search, or note that they are solutions."""

    node_ids: tuple[str, ...]
    status: Literal["pruned", "terminal"]
    reason: str


class Backtrack(msgspec.Struct, frozen=True):
    """Turn back from a node where nothing is left, to one where something is."""

    node_id: str
    to_node_id: str | None
    reason: str


class Synthesize(msgspec.Struct, frozen=True):
    """Ask for the answer that a path leads to."""

    node_ids: tuple[str, ...]


class Finish(msgspec.Struct, frozen=True):
    """End the search; ``failure`` says why when nothing was found."""

    outcome: Literal["found", "exhausted", "budget", "failed"]
    failure: Failure | None = None


class Done(msgspec.Struct, frozen=True):
    """Nothing any more: the search has ended."""


Action: TypeAlias = Wait | AddNodes | Generate | Evaluate | Mark | Backtrack | Synthesize | Finish | Done


def next_action(state: TreeState, is_solution: SolutionTest, elapsed_s: float = 0.0) -> Action:
    """Return what to do next; ``elapsed_s`` are the seconds since the search was asked for."""
    if state.is_complete:
        return Done()
    if state.requests:
        return Wait(tuple(state.requests))
    if not state.nodes:
        return AddNodes(state.request, (ThoughtNode(id="root", depth=0, content=state.problem, action_type="root"),))
    if state.solution is not None:
        return Finish("found")
    return (
        _add(state)
        or _give_up(state)
        or _evaluate(state, is_solution, elapsed_s)
        or _mark(state, is_solution, _level(state))
        or _synthesize(state)
        or _prune(state)
        or _expand(state, is_solution, elapsed_s)
    )


def _add(state: TreeState) -> Action | None:
    for drawn in state.drawn:
        depth = state.nodes[drawn.parent].depth + 1
        present = {node.content for node in state.nodes.values() if node.parent_id == drawn.parent}
        number = sum(node.depth == depth for node in state.nodes.values())
        room = min(batch_nodes_max, state.config.nodes_max - len(state.nodes))
        nodes: list[ThoughtNode] = []
        temp_ids: list[str] = []
        for candidate in drawn.candidates:
            if len(nodes) >= room:
                break
            if not candidate.content.strip() or candidate.content in present:
                continue
            present.add(candidate.content)
            temp_ids.append(candidate.temp_id)
            nodes.append(
                ThoughtNode(
                    id=f"node_{depth}_{number + len(nodes) + 1}",
                    depth=depth,
                    content=candidate.content,
                    parent_id=drawn.parent,
                    action_type=candidate.action_type,
                    metadata=candidate.metadata,
                )
            )
        if nodes:
            return AddNodes(drawn.answer, tuple(nodes), tuple(temp_ids))
    return None


def _give_up(state: TreeState) -> Action | None:
    """Prune what could not be judged in ``attempts_max`` attempts."""
    lost = [node.id for node in _unjudged(state) if _is_lost(state, node.id)]
    return Mark(tuple(lost[:batch_nodes_max]), "pruned", "it could not be evaluated") if lost else None


def _evaluate(state: TreeState, is_solution: SolutionTest, elapsed_s: float) -> Action | None:
    unjudged = _unjudged(state)
    if not unjudged:
        return None
    first = unjudged[0]
    compares = state.config.evaluation_strategy == "comparative_voting"
    if compares and state.config.strategy == "BFS":
        # A vote compares a whole level, so the level above has to be expanded first.
        if any(node.depth < first.depth for node in _pending(state)):
            return None
        group = [node for node in unjudged if node.depth == first.depth]
    else:
        group = [node for node in unjudged if node.parent_id == first.parent_id]
    batch = _batch(group)
    if _is_spent(state, 1 if compares else len(batch), elapsed_s):
        return _out_of_budget(state, is_solution)
    return Evaluate(tuple(node.id for node in batch))


def _mark(state: TreeState, is_solution: SolutionTest, nodes: Iterable[ThoughtNode]) -> Action | None:
    solutions = [node.id for node in nodes if is_solution(path_to(state, node.id))]
    return Mark(tuple(solutions[:batch_nodes_max]), "terminal", "it is a solution") if solutions else None


def _synthesize(state: TreeState) -> Action | None:
    ends = in_order(state, [node.id for node in state.nodes.values() if node.status == "terminal"])
    if not ends:
        return None
    open_ends = [id_ for id_ in ends if not _is_lost(state, id_)]
    if not open_ends or len(ends) - len(open_ends) >= ends_tried_max:
        return Finish("failed", state.failure)
    return Synthesize(tuple(node.id for node in path_to(state, open_ends[0])))


def _prune(state: TreeState) -> Action | None:
    level = [node for node in _level(state) if node.depth > 0]
    config = state.config
    suggested = [node.id for node in level if node.id in state.suggested]
    low = [node.id for node in level if node.evaluation and node.evaluation.score < config.pruning_threshold]
    width = config.beam_width or (config.branching_factor if config.strategy == "BFS" else batch_nodes_max)
    beyond = in_order(state, [node.id for node in level])[width:]
    deep = [node.id for node in level if node.depth >= config.max_depth]
    for ids, reason in (
        (suggested, "the evaluator suggests it"),
        (low, f"its score is below {config.pruning_threshold:g}"),
        (deep, f"it is no solution at depth {config.max_depth}"),
        (beyond, f"it is not among the best {width}"),
    ):
        if ids:
            return Mark(tuple(ids[:batch_nodes_max]), "pruned", reason)
    return None


def _expand(state: TreeState, is_solution: SolutionTest, elapsed_s: float) -> Action:
    node_id = _next_node(state)
    if node_id is None:
        return _nothing_left(state)
    config = state.config
    k = min(config.branching_factor, config.nodes_max - len(state.nodes))
    cost = k if config.generation_strategy == "independent_sampling" else 1
    if k < 1 or _is_spent(state, cost, elapsed_s):
        return _out_of_budget(state, is_solution)
    last, parent = state.last_expanded, state.nodes[node_id].parent_id
    if config.strategy == "DFS" and last not in (None, node_id, parent, state.turned_from):
        return Backtrack(last or "", parent, "nothing is left to try below it")
    return Generate(node_id, k)


def _next_node(state: TreeState) -> str | None:
    for node in state.nodes.values():
        if node.status == "expanded" and node.id in state.attempts and not _is_lost(state, node.id):
            return node.id
    return next(iter(in_order(state, [node.id for node in _level(state)])), None)


def _nothing_left(state: TreeState) -> Finish:
    if state.failure is not None and all(node.evaluation is None for node in state.nodes.values()):
        return Finish("failed", state.failure)
    last = f"; last failure: {state.failure.code}" if state.failure else ""
    message = f"none of {len(state.nodes)} nodes leads to a solution{last}"
    return Finish("exhausted", Failure(code="SEARCH_EXHAUSTED", message=message, recoverable=False))


def _out_of_budget(state: TreeState, is_solution: SolutionTest) -> Action:
    action = _mark(state, is_solution, _pending(state)) or _synthesize(state)
    if action is not None:
        return action
    config = state.config
    limits = f"{config.nodes_max} nodes, {config.calls_max} calls, {config.seconds_max} s"
    message = f"the search's budget is spent ({limits})"
    return Finish("budget", Failure(code="SEARCH_EXHAUSTED", message=message, recoverable=True))


def _is_spent(state: TreeState, cost: int, elapsed_s: float) -> bool:
    return state.calls + cost > state.config.calls_max or elapsed_s >= state.config.seconds_max


def _is_lost(state: TreeState, node_id: str) -> bool:
    return node_id in state.given_up or state.attempts.get(node_id, 0) >= attempts_max


def _pending(state: TreeState) -> list[ThoughtNode]:
    return [node for node in state.nodes.values() if node.status == "pending"]


def _unjudged(state: TreeState) -> list[ThoughtNode]:
    return [node for node in _pending(state) if node.evaluation is None and node.depth > 0]


def _level(state: TreeState) -> list[ThoughtNode]:
    """Return the pending nodes that are looked at now: the uppermost of a breadth-first search, else the deepest."""
    pending = _pending(state)
    if not pending:
        return []
    depths = [node.depth for node in pending]
    depth = min(depths) if state.config.strategy == "BFS" else max(depths)
    return [node for node in pending if node.depth == depth]


def _batch(nodes: list[ThoughtNode]) -> list[ThoughtNode]:
    """Return as many nodes as one message holds, at least one."""
    kept, size = nodes[:1], len(msgspec.json.encode(nodes[0]))
    for node in nodes[1:batch_nodes_max]:
        size += len(msgspec.json.encode(node))
        if size > batch_size_max_bytes:
            break
        kept.append(node)
    return kept
