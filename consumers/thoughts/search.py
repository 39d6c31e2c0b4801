"""What an explorer says next, as a pure function of the tree that the log tells.

    step = next_step(state, thinker.is_solution, elapsed_s)

Whoever takes the step appends it and folds it into the state; whoever was killed folds the log again and is told the
same step: nothing about a search lives in an explorer's memory.

Breadth first: a level is generated from and judged whole; solutions of it end the search; of the others those below the
threshold and those beyond the beam are pruned. Depth first: the best child is entered until a solution, the depth limit
or a dead end; then the search turns back to the deepest node that has a child left, and says so.

A request that failed is asked again, ``attempts_max`` times at most, and of the solutions that were found the best
``ends_tried_max`` are synthesized. A budget never cuts off what was found already. A search of which no thought was
ever judged has exhausted nothing: it ends with what went wrong.

``respond`` and ``decompose`` answer requests: what a thinker returns is cut to what was asked for (10,000 candidates:
the first k) and checked against the protocol's own types (a score of 11 is INVALID_FORMAT), so that nothing a thinker
does makes an agent send a message that the ledger refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from consumers.thoughts import task
from consumers.thoughts.task import TreeState, attempts_max, in_order, path_to
from consumers.thoughts.thinkers import Thinker
from ledger.events import KIND_OF
from ledger.events import tot as kinds
from ledger.events.fields import EventData
from ledger.events.tot import Failure, ThoughtNode
from ledger.lifecycle.tot import parties_of

SolutionTest: TypeAlias = Callable[[Sequence[ThoughtNode]], bool]

batch_nodes_max: Final = 64
batch_size_max_bytes: Final = 24 * 1024
ends_tried_max: Final = 3


def next_step(state: TreeState, is_solution: SolutionTest, elapsed_s: float = 0.0) -> Outgoing | None:
    """Return what to say next; ``elapsed_s`` are the seconds since the search was asked for.

    None: the search has ended, or waits for answers.
    """
    if state.is_complete or state.requests:
        return None
    if not state.nodes:
        # The root, of the request to search, has no temporary id.
        root = ThoughtNode(id="root", depth=0, content=state.problem, action_type="root")
        return Outgoing(kinds.TotNodesAdded(nodes=[root]), [state.request])
    if state.solution is not None:
        return _finish(state)
    return (
        _add(state)
        or _give_up(state)
        or _evaluate(state, is_solution, elapsed_s)
        or _mark_solutions(state, is_solution, _level(state))
        or _synthesize(state)
        or _prune(state)
        or _expand(state, is_solution, elapsed_s)
    )


def _finish(state: TreeState, failure: Failure | None = None) -> Outgoing:
    return Outgoing(search_complete(state, failure), [state.request])


def _mark(state: TreeState, ids: list[str], status: Literal["pruned", "terminal"], reason: str) -> Outgoing:
    marked = kinds.TotNodesMarked(node_ids=ids[:batch_nodes_max], status=status, reason=reason)
    return Outgoing(marked, [state.request])


def _add(state: TreeState) -> Outgoing | None:
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
            said = {name: getattr(candidate, name) for name in ("content", "action_type", "metadata")}
            id_ = f"node_{depth}_{number + len(nodes) + 1}"
            nodes.append(ThoughtNode(id=id_, depth=depth, parent_id=drawn.parent, **said))
        if nodes:
            return Outgoing(kinds.TotNodesAdded(nodes=nodes, temp_ids=temp_ids), [drawn.answer])
    return None


def _give_up(state: TreeState) -> Outgoing | None:
    lost = [node.id for node in _unjudged(state) if _is_lost(state, node.id)]
    return _mark(state, lost, "pruned", "it could not be evaluated") if lost else None


def _evaluate(state: TreeState, is_solution: SolutionTest, elapsed_s: float) -> Outgoing | None:
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
    return Outgoing(message(kinds.EvaluateThoughts, state.task_id, evaluation(state, batch)), [state.request])


def _mark_solutions(state: TreeState, is_solution: SolutionTest, nodes: Iterable[ThoughtNode]) -> Outgoing | None:
    solutions = [node.id for node in nodes if is_solution(path_to(state, node.id))]
    return _mark(state, solutions, "terminal", "it is a solution") if solutions else None


def _synthesize(state: TreeState) -> Outgoing | None:
    ends = in_order(state, [node.id for node in state.nodes.values() if node.status == "terminal"])
    if not ends:
        return None
    open_ends = [id_ for id_ in ends if not _is_lost(state, id_)]
    if not open_ends or len(ends) - len(open_ends) >= ends_tried_max:
        return _finish(state, state.failure)
    path = path_to(state, open_ends[0])
    asked = kinds.SynthesizePayload(best_path=path, problem=state.problem, task_type=state.task_type)
    return Outgoing(message(kinds.SynthesizeSolution, state.task_id, asked), [state.request])


def _prune(state: TreeState) -> Outgoing | None:
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
            return _mark(state, ids, "pruned", reason)
    return None


def _expand(state: TreeState, is_solution: SolutionTest, elapsed_s: float) -> Outgoing:
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
        reason = "nothing is left to try below it"
        return Outgoing(kinds.TotBacktracked(node_id=last or "", to_node_id=parent, reason=reason), [state.request])
    return Outgoing(message(kinds.GenerateThoughts, state.task_id, generation(state, node_id, k)), [state.request])


def _next_node(state: TreeState) -> str | None:
    for node in state.nodes.values():
        if node.status == "expanded" and node.id in state.attempts and not _is_lost(state, node.id):
            return node.id
    return next(iter(in_order(state, [node.id for node in _level(state)])), None)


def _nothing_left(state: TreeState) -> Outgoing:
    if state.failure is not None and all(node.evaluation is None for node in state.nodes.values()):
        return _finish(state, state.failure)
    last = f"; last failure: {state.failure.code}" if state.failure else ""
    text = f"none of {len(state.nodes)} nodes leads to a solution{last}"
    return _finish(state, Failure(code="SEARCH_EXHAUSTED", message=text, recoverable=False))


def _out_of_budget(state: TreeState, is_solution: SolutionTest) -> Outgoing:
    step = _mark_solutions(state, is_solution, _pending(state)) or _synthesize(state)
    if step is not None:
        return step
    config = state.config
    limits = f"{config.nodes_max} nodes, {config.calls_max} calls, {config.seconds_max} s"
    text = f"the search's budget is spent ({limits})"
    return _finish(state, Failure(code="SEARCH_EXHAUSTED", message=text, recoverable=True))


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


T = TypeVar("T", bound=msgspec.Struct)
M = TypeVar("M", bound=kinds.Message)

CRITERIA: Final = ("correctness", "progress", "feasibility")


class Outgoing(NamedTuple):
    """An event to be appended: its data and causes."""

    data: EventData
    causes: list[str] = []


def message(form: type[M], task_id: str, payload: msgspec.Struct | None, error: kinds.Failure | None = None) -> M:
    """Return a message of the type ``form``; from whom and to whom it goes follows from that."""
    type_ = KIND_OF[form].removeprefix("tot.")
    sender, to = parties_of(type_)
    make: Callable[..., M] = form
    return make(sender=sender, to=to, type=type_, task_id=task_id, payload=payload, error=error)


def respond(state: TreeState, request: kinds.Message, thinker: Thinker) -> kinds.Message:
    """Return the answer of the generator, evaluator or synthesizer to ``request``; the caller names it as the cause."""
    match request:
        case kinds.GenerateThoughts():
            return message(kinds.GeneratedThoughts, request.task_id, *_generated(state, request.payload, thinker))
        case kinds.EvaluateThoughts():
            return message(kinds.EvaluationResults, request.task_id, *_evaluated(state, request.payload, thinker))
        case kinds.SynthesizeSolution():
            asked = request.payload
            solution = _checked(thinker.synthesize(asked.best_path, asked.problem), kinds.Solution)
            return message(kinds.FinalSolution, request.task_id, *solution)
        case _:  # any other message: those of the orchestrator, and answers
            raise TypeError(f"{type(request).__name__} is no request to a thinker")


def decompose(request: kinds.DecomposeTask, thinker: Thinker) -> kinds.Message:
    """Return the decomposer's answer to ``request``; the caller names it as the cause."""
    asked = request.payload
    shape = _checked(thinker.decompose(asked.problem, asked.task_type), kinds.Decomposition)
    return message(kinds.DecompositionResult, request.task_id, *shape)


def _generated(
    state: TreeState, asked: kinds.GeneratePayload, thinker: Thinker
) -> tuple[kinds.GeneratedPayload | None, kinds.Failure | None]:
    path = path_to(state, asked.parent_node.id)
    answer = thinker.generate(path, asked)
    if isinstance(answer, kinds.GeneratedPayload):
        answer = msgspec.structs.replace(answer, candidates=answer.candidates[: asked.num_candidates])
    payload, failure = _checked(answer, kinds.GeneratedPayload)
    if payload is not None and len({candidate.temp_id for candidate in payload.candidates}) != len(payload.candidates):
        text = "two candidates have one temporary id"
        return None, kinds.Failure(code="GENERATION_FAILED", message=text, recoverable=True)
    return payload, failure


def _evaluated(
    state: TreeState, asked: kinds.EvaluatePayload, thinker: Thinker
) -> tuple[kinds.ResultsPayload | None, kinds.Failure | None]:
    ids = {node.id for node in asked.candidates}
    paths = [path_to(state, node.id) for node in asked.candidates]
    answer = thinker.evaluate(paths, asked)
    if isinstance(answer, kinds.ResultsPayload):
        by_id = {judged.node_id: judged for judged in answer.evaluations if judged.node_id in ids}
        answer = msgspec.structs.replace(
            answer,
            evaluations=list(by_id.values()),
            ranking=[id_ for id_ in dict.fromkeys(answer.ranking) if id_ in ids],
            pruning_suggestions=[id_ for id_ in dict.fromkeys(answer.pruning_suggestions) if id_ in ids],
        )
    return _checked(answer, kinds.ResultsPayload)


def _checked(answer: T | kinds.Failure, form: type[T]) -> tuple[T | None, kinds.Failure | None]:
    """Return an answer as the protocol's type, or the failure: the thinker's own, or that it broke the form."""
    if isinstance(answer, kinds.Failure):
        return None, answer
    try:
        return msgspec.json.decode(msgspec.json.encode(answer), type=form), None
    except (msgspec.ValidationError, msgspec.EncodeError, TypeError, ValueError) as error:
        text = f"the thinker's answer breaks the protocol: {error}"[:1_000]
        return None, kinds.Failure(code="INVALID_FORMAT", message=text, recoverable=True)


def generation(state: TreeState, node_id: str, k: int) -> kinds.GeneratePayload:
    """Return the request for ``k`` thoughts from a node."""
    shape = state.decomposition
    return kinds.GeneratePayload(
        parent_node=state.nodes[node_id],
        generation_strategy=state.config.generation_strategy,
        num_candidates=k,
        context=kinds.GenerationContext(
            problem=state.problem, goal=shape.success_criteria, constraints=list(shape.constraints)
        ),
    )


def evaluation(state: TreeState, nodes: list[kinds.ThoughtNode]) -> kinds.EvaluatePayload:
    """Return the request to say what nodes are worth."""
    return kinds.EvaluatePayload(
        candidates=nodes,
        evaluation_strategy=state.config.evaluation_strategy,
        context=kinds.EvaluationContext(
            problem=state.problem,
            current_depth=nodes[0].depth,
            max_depth=state.config.max_depth,
            goal=state.decomposition.success_criteria,
        ),
        evaluation_criteria=list(CRITERIA),
    )


def search_complete(state: TreeState, failure: kinds.Failure | None) -> kinds.SearchComplete:
    """Return the end of a search; with ``failure`` when it found nothing."""
    counts, path = task.stats(state), task.best_path(state)
    whole, digest = task.thought_tree(state), task.digest(state)
    payload = kinds.SearchPayload(stats=counts, tree_digest=digest, best_path=path, tree=whole)
    return message(kinds.SearchComplete, state.task_id, payload, failure)
