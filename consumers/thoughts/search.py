"""What an explorer says next, as a pure function of the tree that the log tells.

    step = next_step(state, thinker, now_ms)

Whoever takes the step appends it and folds it into the state; whoever was killed folds the log again and is told the
same step: nothing about a search lives in an explorer's memory.

Breadth first: a level is generated from and judged whole, its requests waiting side by side, and nodes are added in the
order of their parents, so that the tree does not depend on who answered first; solutions of it end the search; of the
others those below the threshold and those beyond the beam are pruned. Depth first: the best child is entered until a
solution, the depth limit or a dead end; then the search turns back to the deepest node that has a child left.

Where the thinker proves answers (``checks``), only a solution ends well. Where it does not, the best node at the depth
limit is an end too, and so is the best that is left when a budget is spent or nothing is left to try: its answer says
that nobody checked it. A budget costs that answer's call more, and never what was found or is only proposed.

An endpoint that cannot be asked pauses the search, and counts against no node. Any other request that failed is asked
again, ``attempts_max`` times at most, for the nodes that got no answer, and of the ends that were found the best
``ends_tried_max`` are synthesized. A search of which no thought was ever judged has exhausted nothing: it ends with
what went wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from consumers.thoughts.answers import message
from consumers.thoughts.phrases import phrase
from consumers.thoughts.settings import criteria_of
from consumers.thoughts.task import Step, TreeState, attempts_max, best_path, fitting, in_order, path_to, stats
from consumers.thoughts.thinkers import Thinker
from ledger.events import tot as kinds
from ledger.events.tot import Failure, ThoughtNode
from ledger.lifecycle.authority import to_ms
from ledger.lifecycle.tot import node_states, tree_digest
from projections.thoughts.tree import cut_off, root_of, search_state, with_children

batch_nodes_max: Final = 64
path_full_bytes: Final = 34 * 1024
path_size_max_bytes: Final = 39 * 1024
"""A path with the problem beside it, as JSON: a full one ends there, and a larger one than the most would stand in no
message once its last node is judged."""

ends_tried_max: Final = 3


def next_step(state: TreeState, thinker: Thinker, now_ms: int = 0) -> Step | None:
    """Return what to say next; ``now_ms`` is the ledger's clock, against which a deadline stands.

    None: the search has ended, is paused, or waits for answers.
    """
    if state.is_complete or state.is_paused:
        return None
    if state.trouble is not None:
        cause, failure = state.trouble
        return Step(kinds.TotPaused(sender="explorer", task_id=state.task_id, error=failure), [cause])
    if not state.nodes:
        # The root, of the request to search, has no temporary id.
        root = ThoughtNode(id="root", depth=0, content=state.problem, action_type="root")
        return Step(kinds.TotNodesAdded(nodes=[root]), [state.request])
    if state.solution is not None:
        left = [node.id for node in _pending(state)]
        return _mark(state, left, "pruned", "reason_answered") if left else _finish(state)
    more = _alongside(state, now_ms)
    if more is not None or state.requests:
        return more
    return (
        _add(state)
        or _give_up(state)
        or _evaluate(state, thinker, now_ms)
        or _mark_solutions(state, thinker, _level(state))
        or _synthesize(state)
        or _prune(state, thinker)
        or _expand(state, thinker, now_ms)
    )


def _alongside(state: TreeState, now_ms: int) -> Step | None:
    """Return what a breadth-first search asks beside what waits, or before it adds: the rest of a level."""
    if state.config.strategy == "DFS":
        return None
    if _waiting(state, kinds.EvaluateThoughts):
        batch = _unasked(state)
        return None if batch is None else _ask(state, kinds.EvaluateThoughts, batch, now_ms)
    node_id = _next_node(state)
    if node_id is None:
        return None
    asked = {request.payload.parent_node.id for request in _waiting(state, kinds.GenerateThoughts)}
    parents = asked.union(drawn.parent for drawn in state.drawn)
    beside = sum(state.nodes[id_].depth == state.nodes[node_id].depth for id_ in parents)
    return _generate(state, node_id, now_ms, beside * state.config.branching_factor) if beside else None


def _finish(state: TreeState, failure: Failure | None = None) -> Step:
    return Step(search_complete(state, failure), [state.request])


def _mark(state: TreeState, ids: list[str], status: Literal["pruned", "terminal"], name: str, **values: Any) -> Step:
    reason = phrase(state.language, name, **values)
    marked = kinds.TotNodesMarked(node_ids=ids[:batch_nodes_max], status=status, reason=reason)
    return Step(marked, [state.request])


def _add(state: TreeState) -> Step | None:
    parents = in_order(state, state.nodes)  # not in the order of the answers
    for drawn in sorted(state.drawn, key=lambda drawn: parents.index(drawn.parent)):
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
            fields = {name: getattr(candidate, name) for name in ("content", "action_type", "metadata")}
            id_ = f"node_{depth}_{number + len(nodes) + 1}"
            node = ThoughtNode(id=id_, depth=depth, parent_id=drawn.parent, **fields)
            path = [*path_to(state, drawn.parent), node]
            if fitting([*nodes, node])[len(nodes) :] and _size(state, path) <= path_size_max_bytes:
                nodes.append(node)
                temp_ids.append(candidate.temp_id)
        if nodes:
            return Step(kinds.TotNodesAdded(nodes=nodes, temp_ids=temp_ids), [drawn.answer])
    return None


def _give_up(state: TreeState) -> Step | None:
    lost = [node.id for node in _unjudged(state) if _is_lost(state, node.id)]
    return _mark(state, lost, "pruned", "reason_unjudged") if lost else None


def _evaluate(state: TreeState, thinker: Thinker, now_ms: int) -> Step | None:
    asked = _unasked(state)
    if asked is None:
        return None
    return _ask(state, kinds.EvaluateThoughts, asked, now_ms) or _out_of_budget(state, thinker)


def _unasked(state: TreeState) -> kinds.EvaluatePayload | None:
    """Return the next request to say what nodes are worth that nobody was asked about."""
    unjudged = [node for node in _unjudged(state) if not _is_lost(state, node.id)]
    if not unjudged:
        return None
    first = unjudged[0]
    if state.config.evaluation_strategy == "comparative_voting" and state.config.strategy == "BFS":
        # A vote compares a whole level, so the level above has to be expanded first.
        if any(node.depth < first.depth for node in _pending(state)):
            return None
        group = [node for node in unjudged if node.depth == first.depth]
    else:
        group = [node for node in unjudged if node.parent_id == first.parent_id]
    return evaluation(state, fitting(group[:batch_nodes_max]))


def _mark_solutions(state: TreeState, thinker: Thinker, nodes: Iterable[ThoughtNode]) -> Step | None:
    # What a model calls a solution ends a search only if the judge thinks that much of it.
    least = 0.0 if thinker.checks else state.config.pruning_threshold
    good = [node.id for node in nodes if node.evaluation is None or node.evaluation.score >= least]
    solutions = [id_ for id_ in good if thinker.is_solution(path_to(state, id_))]
    return _mark(state, solutions, "terminal", "reason_solution") if solutions else None


def _synthesize(state: TreeState) -> Step | None:
    ends = in_order(state, [node.id for node in state.nodes.values() if node.status == "terminal"])
    if not ends:
        return None
    open_ends = [id_ for id_ in ends if not _is_lost(state, id_)]
    if not open_ends or len(ends) - len(open_ends) >= ends_tried_max:
        return _finish(state, state.failure)
    asked = _synthesis(state, path_to(state, open_ends[0]))
    return Step(message(kinds.SynthesizeSolution, state.task_id, asked), [state.request])


def _synthesis(state: TreeState, path: list[ThoughtNode]) -> kinds.SynthesizePayload:
    return kinds.SynthesizePayload(
        best_path=path, problem=state.problem, task_type=state.task_type,
        goal=state.decomposition.success_criteria, constraints=state.decomposition.constraints,
    )  # fmt: skip


def _size(state: TreeState, path: list[ThoughtNode]) -> int:
    return len(msgspec.json.encode(_synthesis(state, path)))


def _prune(state: TreeState, thinker: Thinker) -> Step | None:
    level = [node for node in _level(state) if node.depth > 0]
    config = state.config
    suggested = [node.id for node in level if node.id in state.suggested]
    low = [node.id for node in level if node.evaluation and node.evaluation.score < config.pruning_threshold]
    width = config.beam_width or (config.branching_factor if config.strategy == "BFS" else batch_nodes_max)
    beyond = in_order(state, [node.id for node in level])[width:]
    full = (node.id for node in level if _size(state, path_to(state, node.id)) >= path_full_bytes)
    deep = [node.id for node in level if node.depth >= config.max_depth] or list(full)
    if deep and not thinker.checks and not suggested and not low:
        return _mark(state, in_order(state, deep)[:1], "terminal", "reason_limit", depth=level[0].depth)
    about = {"threshold": config.pruning_threshold, "depth": level[0].depth if level else 0, "width": width}
    reasons = {"reason_suggested": suggested, "reason_low": low, "reason_deep": deep, "reason_beam": beyond}
    for name, ids in reasons.items():
        if ids:
            return _mark(state, ids, "pruned", name, **about)
    return None


def _expand(state: TreeState, thinker: Thinker, now_ms: int) -> Step:
    node_id = _next_node(state)
    if node_id is None:
        return _nothing_left(state, thinker)
    asked = _generate(state, node_id, now_ms)
    if asked is None:
        return _out_of_budget(state, thinker)
    last, parent = state.last_expanded, state.nodes[node_id].parent_id
    if state.config.strategy == "DFS" and last not in (None, node_id, parent, state.turned_from):
        reason = phrase(state.language, "reason_exhausted")
        return Step(kinds.TotBacktracked(node_id=last or "", to_node_id=parent, reason=reason), [state.request])
    return asked


def _generate(state: TreeState, node_id: str, now_ms: int, reserved: int = 0) -> Step | None:
    """Return the request for thoughts from a node, ``reserved`` nodes kept for others; None beyond the budget."""
    k = min(state.config.branching_factor, state.config.nodes_max - len(state.nodes) - reserved)
    return None if k < 1 else _ask(state, kinds.GenerateThoughts, generation(state, node_id, k), now_ms)


def _ask(state: TreeState, form: type[M], payload: Asked, now_ms: int) -> Step | None:
    """Return a request; None beyond the budget."""
    if _is_spent(state, payload, now_ms):
        return None
    return Step(message(form, state.task_id, payload), [state.request])


def _next_node(state: TreeState) -> str | None:
    asked = {request.payload.parent_node.id for request in _waiting(state, kinds.GenerateThoughts)}
    for node in state.nodes.values():
        failed = node.status == "expanded" and node.id in state.attempts and not _is_lost(state, node.id)
        if failed and node.id not in asked:
            return node.id
    return next(iter(in_order(state, [node.id for node in _level(state)])), None)


def _nothing_left(state: TreeState, thinker: Thinker) -> Step:
    if state.failure is not None and all(node.evaluation is None for node in state.nodes.values()):
        return _finish(state, state.failure)
    last = phrase(state.language, "last_failure", code=state.failure.code) if state.failure else ""
    return _exhausted(state, thinker, phrase(state.language, "exhausted", count=len(state.nodes)) + last)


def _out_of_budget(state: TreeState, thinker: Thinker) -> Step:
    step = _mark_solutions(state, thinker, _pending(state)) or _synthesize(state)
    if step is not None:
        return step
    config, say = state.config, partial(phrase, state.language)
    limits = say("spent_nodes", nodes=config.nodes_max, calls=config.calls_max)
    limits += say("spent_tokens", tokens=config.tokens_max) if config.tokens_max else ""
    limits += say("spent_deadline", deadline=config.deadline) if config.deadline else ""
    text = say("spent", limits=limits, calls=state.paid.total.requests)
    return _exhausted(state, thinker, text, is_recoverable=True)


def _exhausted(state: TreeState, thinker: Thinker, text: str, *, is_recoverable: bool = False) -> Step:
    """Return the end of a search without a solution: the best that is left, if nothing could prove it anyway."""
    cut = cut_off(state.nodes)
    left = [node for node in state.nodes.values() if node.depth and node.id not in cut]
    if left and not thinker.checks:
        judged, threshold = [node for node in left if node.evaluation], state.config.pruning_threshold
        good = [node for node in judged if node.evaluation and node.evaluation.score >= threshold] or judged or left
        depth = max(node.depth for node in good)
        best = in_order(state, [node.id for node in good if node.depth == depth])[:1]
        return _mark(state, best, "terminal", "reason_left", why=text)
    path = best_path(state)
    if len(path) > 1 and path[-1].evaluation:
        ids = " → ".join(node.id for node in path)
        text += phrase(state.language, "best_path", path=ids, score=path[-1].evaluation.score)
    return _finish(state, Failure(code="SEARCH_EXHAUSTED", message=text, recoverable=is_recoverable))


def _is_spent(state: TreeState, asked: Asked, now_ms: int) -> bool:
    """Return whether a request would go beyond a budget, if it and those that wait cost what their strategy needs.

    What a program thinks costs nothing: an estimate counts only where a model was paid already.
    """
    config, spent = state.config, state.paid.total
    waiting = (request.payload for request in state.requests.values())
    estimate = sum(map(calls_of, (asked, *waiting))) if spent.requests else 0
    return (
        spent.requests + estimate > config.calls_max
        or (config.tokens_max is not None and spent.tokens_in + spent.tokens_out >= config.tokens_max)
        or (config.deadline is not None and now_ms >= to_ms(config.deadline))
    )


def calls_of(asked: msgspec.Struct) -> int:
    """Return how many questions a request puts to a model, each at least once."""
    if isinstance(asked, kinds.GeneratePayload) and asked.generation_strategy == "independent_sampling":
        return asked.num_candidates
    if isinstance(asked, kinds.EvaluatePayload) and asked.evaluation_strategy == "independent_scoring":
        return len(asked.candidates)
    return 1


def _waiting(state: TreeState, form: type[M]) -> list[M]:
    return [request for request in state.requests.values() if isinstance(request, form)]


def _is_lost(state: TreeState, node_id: str) -> bool:
    return node_id in state.given_up or state.attempts.get(node_id, 0) >= attempts_max


def _pending(state: TreeState) -> list[ThoughtNode]:
    return [node for node in state.nodes.values() if node.status == "pending"]


def _unjudged(state: TreeState) -> list[ThoughtNode]:
    """Return the nodes that nobody has judged, nor is asked to."""
    asked = {node.id for request in _waiting(state, kinds.EvaluateThoughts) for node in request.payload.candidates}
    return [node for node in _pending(state) if node.evaluation is None and node.depth > 0 and node.id not in asked]


def _level(state: TreeState) -> list[ThoughtNode]:
    """Return the pending nodes that are looked at now: the uppermost of a breadth-first search, else the deepest."""
    pending = _pending(state)
    if not pending:
        return []
    depths = [node.depth for node in pending]
    depth = min(depths) if state.config.strategy == "BFS" else max(depths)
    return [node for node in pending if node.depth == depth]


M = TypeVar("M", bound=kinds.Message)
Asked: TypeAlias = kinds.GeneratePayload | kinds.EvaluatePayload | kinds.SynthesizePayload


def generation(state: TreeState, node_id: str, k: int) -> kinds.GeneratePayload:
    """Return the request for ``k`` thoughts from a node."""
    parent, shape = state.nodes[node_id], state.decomposition
    granularity, steps = shape.thought_granularity, shape.intermediate_steps
    context = _context(state, parent.depth + 1)
    context = msgspec.structs.replace(context, thought_granularity=granularity, intermediate_steps=steps)
    return kinds.GeneratePayload(parent, state.config.generation_strategy, k, context)


def evaluation(state: TreeState, nodes: list[kinds.ThoughtNode]) -> kinds.EvaluatePayload:
    """Return the request to say what nodes are worth."""
    context, criteria = _context(state, nodes[0].depth), criteria_of(state.task_type)
    return kinds.EvaluatePayload(nodes, state.config.evaluation_strategy, context, criteria)


def _context(state: TreeState, depth: int) -> kinds.ThoughtContext:
    goal, constraints = state.decomposition.success_criteria, state.decomposition.constraints
    return kinds.ThoughtContext(state.problem, depth, state.config.max_depth, goal, constraints)


def search_complete(state: TreeState, failure: kinds.Failure | None) -> kinds.SearchComplete:
    """Return the end of a search; with ``failure`` when it found nothing."""
    tree = kinds.ThoughtTree(
        task_id=state.task_id, problem=state.problem, task_type=state.task_type, search_config=state.config,
        nodes=with_children(state.nodes), root_id=root_of(state.nodes) or "root",
        search_state=search_state(state.nodes, state.config),
    )  # fmt: skip
    digest, path = tree_digest(node_states(state.nodes.values())), best_path(state)
    payload = kinds.SearchPayload(stats=stats(state), tree_digest=digest, best_path=path, tree=tree)
    return message(kinds.SearchComplete, state.task_id, payload, failure)
