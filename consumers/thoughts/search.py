"""Decides an explorer's next step, as a pure function of the task in the log.

The explorer keeps no state of a search in memory: after a kill it folds the log again and computes the same step.

Breadth first: a whole level is generated and evaluated with parallel requests, and nodes are added in the order of
their parents, so that the tree does not depend on who answers first. Solutions in the level end the search; of the
other nodes those below the threshold and those beyond the beam are pruned. Depth first: the search enters the best
child until a solution, the depth limit or a dead end; then it backtracks to the deepest node with a child left.

If the thinker proves answers (``checks``), only a solution counts as an answer. If not, the best node at the depth
limit is an answer, too. The best remaining node is the answer when a budget is spent or nothing is left to try. Such an
answer is marked as unchecked, and costs one call beyond the budget.

A model that cannot be reached, or whose answers cannot be used, pauses the search and counts against no node. Any other
failed request is repeated, at most ``attempts_max`` times, for the nodes without an answer, and the best
``ends_tried_max`` ends are synthesized. If no answer can be written, or the user wants none, the best path itself is
the answer, unless the thinker proves answers. A search in which no thought was ever evaluated has exhausted nothing: it
ends with its last error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.answers import message
from deedbook.consumers.thoughts.events import Failure, ThoughtNode
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.settings import criteria_of
from deedbook.consumers.thoughts.task import Step, Task, attempts_max, fitting, in_order, path_to, path_to_best, stats
from deedbook.consumers.thoughts.thinkers import Thinker
from deedbook.consumers.thoughts.transition import node_states, tree_digest
from deedbook.consumers.thoughts.views.tree import cut_off, root_of, search_state, with_children
from deedbook.ledger.lifecycle.authority import to_ms

batch_nodes_max: Final = 64
path_full_bytes: Final = 34 * 1024
path_size_max_bytes: Final = 39 * 1024
"""Sizes of a path with the problem, as JSON. A path of at least the first size is not extended.

A node whose path would exceed the second size is not added: once evaluated, the path would fit no message.
"""

ends_tried_max: Final = 3


def next_step(task: Task, thinker: Thinker) -> Step | None:
    """Return the next step; None if the search has ended, is paused, or waits for answers."""
    if task.complete is not None or task.paused is not None:
        return None
    if task.trouble is not None and not task.takes_best_path:
        cause, failure = task.trouble
        return Step(kinds.TotPaused(sender="explorer", task_id=task.id, error=failure), [cause])
    if not task.nodes:
        # The root comes from the request to search and has no temporary id.
        root = ThoughtNode(id="root", depth=0, content=task.asked.problem, action_type="root")
        return Step(kinds.TotNodesAdded(nodes=[root]), [task.search_id])
    if task.solution is not None:
        left = [node.id for node in _pending(task)]
        return _mark(task, left, "not_taken", "reason_answered") if left else _finish(task)
    if task.takes_best_path:
        return None if _waiting(task, kinds.SynthesizeSolution) else _take_best_path(task, thinker)
    more = _alongside(task)
    if more is not None or task.requests:
        return more
    return (
        _add(task)
        or _give_up(task)
        or _evaluate(task, thinker)
        or _mark_solutions(task, thinker, _level(task))
        or _synthesize(task, thinker)
        or _prune(task, thinker)
        or _expand(task, thinker)
    )


def _alongside(task: Task) -> Step | None:
    """Return the next request of a breadth-first level; other requests of the level may still wait for answers."""
    if task.config.strategy == "DFS":
        return None
    if _waiting(task, kinds.EvaluateThoughts):
        batch = _next_evaluation(task)
        return None if batch is None else _ask(task, kinds.EvaluateThoughts, batch)
    node_id = _next_node(task)
    if node_id is None:
        return None
    requested = {request.payload.parent_node.id for request in _waiting(task, kinds.GenerateThoughts)}
    parents = requested.union(drawn.parent for drawn in task.drawn)
    beside = sum(task.nodes[id_].depth == task.nodes[node_id].depth for id_ in parents)
    return _generate(task, node_id, beside * task.config.branching_factor) if beside else None


def _finish(task: Task, failure: Failure | None = None) -> Step:
    return Step(search_complete(task, failure), [task.search_id])


def _take_best_path(task: Task, thinker: Thinker) -> Step:
    return (
        _add(task) or _synthesize(task, thinker) or _exhausted(task, thinker, phrase(task.language, "best_path_wanted"))
    )


def _mark(
    task: Task, ids: list[str], status: Literal["pruned", "not_taken", "terminal"], name: str, **values: Any
) -> Step:
    reason = phrase(task.language, name, **values)
    marked = kinds.TotNodesMarked(node_ids=ids[:batch_nodes_max], status=status, reason=reason)
    return Step(marked, [task.search_id])


def _add(task: Task) -> Step | None:
    parents = in_order(task.nodes, task.nodes)  # not in the order of the answers
    for drawn in sorted(task.drawn, key=lambda drawn: parents.index(drawn.parent)):
        depth = task.nodes[drawn.parent].depth + 1
        present = {node.content for node in task.nodes.values() if node.parent_id == drawn.parent}
        number = sum(node.depth == depth for node in task.nodes.values())
        room = min(batch_nodes_max, task.config.nodes_max - len(task.nodes))
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
            path = [*path_to(task.nodes, drawn.parent), node]
            if fitting([*nodes, node])[len(nodes) :] and _size(task, path) <= path_size_max_bytes:
                nodes.append(node)
                temp_ids.append(candidate.temp_id)
        if nodes:
            return Step(kinds.TotNodesAdded(nodes=nodes, temp_ids=temp_ids), [drawn.answer])
    return None


def _give_up(task: Task) -> Step | None:
    lost = [node.id for node in _unjudged(task) if _is_lost(task, node.id)]
    return _mark(task, lost, "pruned", "reason_unjudged") if lost else None


def _evaluate(task: Task, thinker: Thinker) -> Step | None:
    payload = _next_evaluation(task)
    if payload is None:
        return None
    return _ask(task, kinds.EvaluateThoughts, payload) or _out_of_budget(task, thinker)


def _next_evaluation(task: Task) -> kinds.EvaluatePayload | None:
    """Return the next evaluation request for nodes that are in no request yet."""
    unjudged = [node for node in _unjudged(task) if not _is_lost(task, node.id)]
    if not unjudged:
        return None
    first = unjudged[0]
    if task.config.evaluation_strategy == "comparative_voting" and task.config.strategy == "BFS":
        # A vote compares a whole level, so the level above has to be expanded first.
        if any(node.depth < first.depth for node in _pending(task)):
            return None
        group = [node for node in unjudged if node.depth == first.depth]
    else:
        group = [node for node in unjudged if node.parent_id == first.parent_id]
    return evaluation(task, fitting(group[:batch_nodes_max]))


def _mark_solutions(task: Task, thinker: Thinker, nodes: Iterable[ThoughtNode]) -> Step | None:
    # A solution that a model claims ends a search only if its score reaches the threshold.
    least = 0.0 if thinker.checks else task.config.pruning_threshold
    good = [node.id for node in nodes if node.evaluation is None or node.evaluation.score >= least]
    solutions = [id_ for id_ in good if thinker.is_solution(path_to(task.nodes, id_))]
    return _mark(task, solutions, "terminal", "reason_solution") if solutions else None


def _synthesize(task: Task, thinker: Thinker) -> Step | None:
    ends = in_order(task.nodes, [node.id for node in task.nodes.values() if node.status == "terminal"])
    if not ends:
        return None
    open_ends = [id_ for id_ in ends if not _is_lost(task, id_)]
    is_tried = not open_ends or len(ends) - len(open_ends) >= ends_tried_max
    verbatim = is_tried or task.takes_best_path
    if verbatim and (thinker.checks or task.is_untellable):
        return _finish(task, task.fault)
    payload = _synthesis(task, path_to(task.nodes, (open_ends or ends)[0]))
    payload = msgspec.structs.replace(payload, verbatim=verbatim)
    return Step(message(kinds.SynthesizeSolution, task.id, payload), [task.search_id])


def _synthesis(task: Task, path: list[ThoughtNode]) -> kinds.SynthesizePayload:
    return kinds.SynthesizePayload(
        best_path=path,
        problem=task.asked.problem,
        task_type=task.asked.task_type,
        goal=task.asked.decomposition_result.success_criteria,
        constraints=task.asked.decomposition_result.constraints,
    )


def _size(task: Task, path: list[ThoughtNode]) -> int:
    return len(msgspec.json.encode(_synthesis(task, path)))


def _prune(task: Task, thinker: Thinker) -> Step | None:
    level = [node for node in _level(task) if node.depth > 0]
    config = task.config
    suggested = [node.id for node in level if node.id in task.suggested]
    low = [node.id for node in level if node.evaluation and node.evaluation.score < config.pruning_threshold]
    width = config.beam_width or (config.branching_factor if config.strategy == "BFS" else batch_nodes_max)
    beyond = in_order(task.nodes, [node.id for node in level])[width:]
    full = (node.id for node in level if _size(task, path_to(task.nodes, node.id)) >= path_full_bytes)
    deep = [node.id for node in level if node.depth >= config.max_depth] or list(full)
    if deep and not thinker.checks and not suggested and not low:
        return _mark(task, in_order(task.nodes, deep)[:1], "terminal", "reason_limit", depth=level[0].depth)
    about = {"threshold": config.pruning_threshold, "depth": level[0].depth if level else 0, "width": width}
    reasons = {"reason_suggested": suggested, "reason_low": low, "reason_deep": deep, "reason_beam": beyond}
    for name, ids in reasons.items():
        if ids:
            return _mark(task, ids, "pruned", name, **about)
    return None


def _expand(task: Task, thinker: Thinker) -> Step:
    node_id = _next_node(task)
    if node_id is None:
        return _nothing_left(task, thinker)
    request = _generate(task, node_id)
    if request is None:
        return _out_of_budget(task, thinker)
    last, parent = task.last_expanded, task.nodes[node_id].parent_id
    if task.config.strategy == "DFS" and last not in (None, node_id, parent, task.turned_from):
        reason = phrase(task.language, "reason_exhausted")
        return Step(kinds.TotBacktracked(node_id=last or "", to_node_id=parent, reason=reason), [task.search_id])
    return request


def _generate(task: Task, node_id: str, reserved: int = 0) -> Step | None:
    """Return the request for thoughts from a node; None if the budget has no room for it.

    It leaves room for ``reserved`` nodes: the thoughts that other requests may still add.
    """
    k = min(task.config.branching_factor, task.config.nodes_max - len(task.nodes) - reserved)
    return None if k < 1 else _ask(task, kinds.GenerateThoughts, generation(task, node_id, k))


def _ask(task: Task, form: type[M], payload: RequestPayload) -> Step | None:
    """Return a request; None beyond the budget."""
    if _is_spent(task, payload):
        return None
    return Step(message(form, task.id, payload), [task.search_id])


def _next_node(task: Task) -> str | None:
    requested = {request.payload.parent_node.id for request in _waiting(task, kinds.GenerateThoughts)}
    for node in task.nodes.values():
        failed = node.status == "expanded" and node.id in task.attempts and not _is_lost(task, node.id)
        if failed and node.id not in requested:
            return node.id
    return next(iter(in_order(task.nodes, [node.id for node in _level(task)])), None)


def _nothing_left(task: Task, thinker: Thinker) -> Step:
    if task.fault is not None and all(node.evaluation is None for node in task.nodes.values()):
        return _finish(task, task.fault)
    last = phrase(task.language, "last_failure", code=task.fault.code) if task.fault else ""
    return _exhausted(task, thinker, phrase(task.language, "exhausted", count=len(task.nodes)) + last)


def _out_of_budget(task: Task, thinker: Thinker) -> Step:
    step = _mark_solutions(task, thinker, _pending(task)) or _synthesize(task, thinker)
    if step is not None:
        return step
    config, say = task.config, partial(phrase, task.language)
    limits = say("spent_nodes", nodes=config.nodes_max, calls=config.calls_max)
    limits += say("spent_tokens", tokens=config.tokens_max) if config.tokens_max else ""
    limits += say("spent_deadline", deadline=config.deadline) if config.deadline else ""
    text = say("spent", limits=limits, calls=task.paid.total.requests)
    return _exhausted(task, thinker, text)


def _exhausted(task: Task, thinker: Thinker, text: str) -> Step:
    """Return the end of a search without a solution: with the best node left, unless the thinker proves answers."""
    cut = cut_off(task.nodes)
    left = [node for node in task.nodes.values() if node.depth and node.id not in cut]
    if left and not thinker.checks:
        judged, threshold = [node for node in left if node.evaluation], task.config.pruning_threshold
        good = [node for node in judged if node.evaluation and node.evaluation.score >= threshold] or judged or left
        depth = max(node.depth for node in good)
        best = in_order(task.nodes, [node.id for node in good if node.depth == depth])[:1]
        return _mark(task, best, "terminal", "reason_left", why=text)
    path = path_to_best(task.nodes)
    if len(path) > 1 and path[-1].evaluation:
        ids = " → ".join(node.id for node in path)
        text += phrase(task.language, "best_path", path=ids, score=path[-1].evaluation.score)
    scores = [node.evaluation.score for node in task.nodes.values() if node.evaluation]
    if scores and max(scores) < task.config.pruning_threshold:
        text += phrase(task.language, "all_below", score=max(scores), threshold=task.config.pruning_threshold)
    return _finish(task, Failure(code="SEARCH_EXHAUSTED", message=text, recoverable=False))


def _is_spent(task: Task, payload: RequestPayload) -> bool:
    """Return whether a request would exceed a budget; the thinking of a program costs nothing."""
    config, spent = task.config, task.paid.total
    return (
        (spent.requests > 0 and calls_needed(task) + calls_of(payload) > config.calls_max)
        or (config.tokens_max is not None and spent.tokens_in + spent.tokens_out >= config.tokens_max)
        or (config.deadline is not None and task.now_ms >= to_ms(config.deadline))
    )


def calls_needed(task: Task) -> int:
    """Return how many model calls this task needs at least.

    These are the calls that its answered requests used, plus the fewest that its pending requests can use.
    """
    calls = task.paid.answered.requests
    for id_, waiting in list(task.waiting.items()):  # a copy, because another thread adds answers
        if not isinstance(waiting.event.data, kinds.InitializeSearch):
            paid = task.paid.waiting.get(id_, kinds.Usage()).requests
            calls += max(paid, calls_of(waiting.event.data.payload) + task.asked_again.count(id_))
    return calls


def calls_of(payload: msgspec.Struct) -> int:
    """Return the number of questions that a request asks a model at least."""
    if isinstance(payload, kinds.GeneratePayload) and payload.generation_strategy == "independent_sampling":
        return payload.num_candidates
    if isinstance(payload, kinds.EvaluatePayload) and payload.evaluation_strategy == "independent_scoring":
        return len(payload.candidates)
    return 1


def _waiting(task: Task, form: type[M]) -> list[M]:
    return [request for request in task.requests.values() if isinstance(request, form)]


def _is_lost(task: Task, node_id: str) -> bool:
    return node_id in task.given_up or task.attempts.get(node_id, 0) >= attempts_max


def _pending(task: Task) -> list[ThoughtNode]:
    return [node for node in task.nodes.values() if node.status == "pending"]


def _unjudged(task: Task) -> list[ThoughtNode]:
    """Return the nodes without an evaluation, and without a pending request for one."""
    requested = {node.id for request in _waiting(task, kinds.EvaluateThoughts) for node in request.payload.candidates}
    return [node for node in _pending(task) if node.evaluation is None and node.depth > 0 and node.id not in requested]


def _level(task: Task) -> list[ThoughtNode]:
    """Return the pending nodes of the current level: the uppermost of a breadth-first search, else the deepest."""
    pending = _pending(task)
    if not pending:
        return []
    depths = [node.depth for node in pending]
    depth = min(depths) if task.config.strategy == "BFS" else max(depths)
    return [node for node in pending if node.depth == depth]


M = TypeVar("M", bound=kinds.Message)
RequestPayload: TypeAlias = kinds.GeneratePayload | kinds.EvaluatePayload | kinds.SynthesizePayload


def generation(task: Task, node_id: str, k: int) -> kinds.GeneratePayload:
    """Return the request for ``k`` thoughts from a node."""
    parent, shape = task.nodes[node_id], task.asked.decomposition_result
    granularity, steps = shape.thought_granularity, shape.intermediate_steps
    context = _context(task, parent.depth + 1)
    context = msgspec.structs.replace(context, thought_granularity=granularity, intermediate_steps=steps)
    return kinds.GeneratePayload(parent, task.config.generation_strategy, k, context)


def evaluation(task: Task, nodes: list[kinds.ThoughtNode]) -> kinds.EvaluatePayload:
    """Return the request to evaluate nodes."""
    options = {} if task.started is None else task.started.options
    context, criteria = _context(task, nodes[0].depth), criteria_of(task.asked.task_type, options)
    return kinds.EvaluatePayload(nodes, task.config.evaluation_strategy, context, criteria)


def _context(task: Task, depth: int) -> kinds.ThoughtContext:
    goal, constraints = task.asked.decomposition_result.success_criteria, task.asked.decomposition_result.constraints
    return kinds.ThoughtContext(task.asked.problem, depth, task.config.max_depth, goal, constraints)


def search_complete(task: Task, failure: kinds.Failure | None) -> kinds.SearchComplete:
    """Return the end of a search. ``failure`` says why it found no answer; a resumption cannot help any more."""
    failure = failure and msgspec.structs.replace(failure, recoverable=False)
    tree = kinds.ThoughtTree(
        task_id=task.id,
        problem=task.asked.problem,
        task_type=task.asked.task_type,
        search_config=task.config,
        nodes=with_children(task.nodes),
        root_id=root_of(task.nodes) or "root",
        search_state=search_state(task.nodes, task.config),
    )
    digest, path = tree_digest(node_states(task.nodes.values())), path_to_best(task.nodes)
    payload = kinds.SearchPayload(stats=stats(task), tree_digest=digest, best_path=path, tree=tree)
    return message(kinds.SearchComplete, task.id, payload, failure)
