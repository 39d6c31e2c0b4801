"""The border between decisions and messages: what an action says on the bus, and how a thinker answers a request.

Both are pure up to the thinker. What a thinker returns is cut to what was asked for (10,000 candidates: the first k)
and checked against the protocol's own types (a score of 11 is INVALID_FORMAT), so that nothing a thinker does makes an
agent send a message that the ledger refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, assert_never

import msgspec

from consumers.thoughts import tree
from consumers.thoughts.search import (
    AddNodes,
    Backtrack,
    Done,
    Evaluate,
    Finish,
    Generate,
    MarkTerminal,
    Prune,
    Synthesize,
    Wait,
)
from ledger.events import tot as kinds
from ledger.events.fields import EventData

if TYPE_CHECKING:
    from consumers.thoughts.search import Action
    from consumers.thoughts.thinking.protocol import Thinker
    from consumers.thoughts.tree import TreeState

T = TypeVar("T", bound=msgspec.Struct)

CRITERIA: Final = ("correctness", "progress", "feasibility")


class Outgoing(NamedTuple):
    """An event to be appended: its kind, data and causes."""

    kind: str
    data: EventData
    causes: list[str] = []


def outgoing(state: TreeState, action: Action) -> Outgoing | None:
    """Return what the explorer appends to carry out ``action``; None when there is nothing to say."""
    match action:
        case Wait() | Done():
            return None
        case AddNodes():
            added = kinds.TotNodesAdded(nodes=list(action.nodes), temp_ids=list(action.temp_ids))
            return Outgoing("tot.nodes_added", added, [action.answer])
        case Prune():
            return Outgoing("tot.nodes_marked", _marked(action, "pruned"))
        case MarkTerminal():
            return Outgoing("tot.nodes_marked", _marked(action, "terminal"))
        case Backtrack():
            data = kinds.TotBacktracked(node_id=action.node_id, to_node_id=action.to_node_id, reason=action.reason)
            return Outgoing("tot.backtracked", data)
        case Generate():
            return Outgoing("tot.generate_thoughts", _generate(state, action), [state.request])
        case Evaluate():
            return Outgoing("tot.evaluate_thoughts", _evaluate(state, action), [state.request])
        case Synthesize():
            return Outgoing("tot.synthesize_solution", _synthesize(state, action), [state.request])
        case Finish():
            return Outgoing("tot.search_complete", _complete(state, action), [state.request])
        case _:
            assert_never(action)


def respond(state: TreeState, request: kinds.Message, thinker: Thinker) -> Outgoing:
    """Return the answer of the generator, evaluator or synthesizer to ``request``; the caller names it as the cause.

    Raises:
        TypeError: when ``request`` is none that these three answer.
    """
    match request:
        case kinds.GenerateThoughts():
            return _generated(state, request, thinker)
        case kinds.EvaluateThoughts():
            return _evaluated(state, request, thinker)
        case kinds.SynthesizeSolution():
            asked = request.payload
            solution, failure = _checked(thinker.synthesize(asked.best_path, asked.problem), kinds.Solution)
            final = kinds.FinalSolution(
                sender="synthesizer",
                to="explorer",
                type="final_solution",
                task_id=request.task_id,
                payload=solution,
                error=failure,
            )
            return Outgoing("tot.final_solution", final)
        case _:
            raise TypeError(f"{type(request).__name__} is no request to a thinker")


def decompose(request: kinds.DecomposeTask, thinker: Thinker) -> Outgoing:
    """Return the decomposer's answer to ``request``; the caller names it as the cause."""
    asked = request.payload
    shape, failure = _checked(thinker.decompose(asked.problem, asked.task_type), kinds.Decomposition)
    data = kinds.DecompositionResult(
        sender="decomposer",
        to="orchestrator",
        type="decomposition_result",
        task_id=request.task_id,
        payload=shape,
        error=failure,
    )
    return Outgoing("tot.decomposition_result", data)


def _generated(state: TreeState, request: kinds.GenerateThoughts, thinker: Thinker) -> Outgoing:
    asked = request.payload
    path = tree.path_to(state, asked.parent_node.id)
    said = thinker.generate(path, asked.generation_strategy, asked.num_candidates, asked.context)
    if isinstance(said, kinds.GeneratedPayload):
        said = msgspec.structs.replace(said, candidates=said.candidates[: asked.num_candidates])
    payload, failure = _checked(said, kinds.GeneratedPayload)
    if payload is not None and len({one.temp_id for one in payload.candidates}) != len(payload.candidates):
        message = "two candidates have one temporary id"
        payload, failure = None, kinds.Failure(code="GENERATION_FAILED", message=message, recoverable=True)
    data = kinds.GeneratedThoughts(
        sender="generator",
        to="explorer",
        type="generated_thoughts",
        task_id=request.task_id,
        payload=payload,
        error=failure,
    )
    return Outgoing("tot.generated_thoughts", data)


def _evaluated(state: TreeState, request: kinds.EvaluateThoughts, thinker: Thinker) -> Outgoing:
    asked = request.payload
    ids = {node.id for node in asked.candidates}
    paths = [tree.path_to(state, node.id) for node in asked.candidates]
    said = thinker.evaluate(paths, asked.evaluation_strategy, asked.evaluation_criteria, asked.context)
    if isinstance(said, kinds.ResultsPayload):
        once = {one.node_id: one for one in said.evaluations if one.node_id in ids}
        said = msgspec.structs.replace(
            said,
            evaluations=list(once.values()),
            ranking=[id_ for id_ in dict.fromkeys(said.ranking) if id_ in ids],
            pruning_suggestions=[id_ for id_ in dict.fromkeys(said.pruning_suggestions) if id_ in ids],
        )
    payload, failure = _checked(said, kinds.ResultsPayload)
    data = kinds.EvaluationResults(
        sender="evaluator",
        to="explorer",
        type="evaluation_results",
        task_id=request.task_id,
        payload=payload,
        error=failure,
    )
    return Outgoing("tot.evaluation_results", data)


def _checked(said: T | kinds.Failure, form: type[T]) -> tuple[T | None, kinds.Failure | None]:
    """Return what was said as the protocol's type, or the failure: the thinker's own, or that it broke the form."""
    if isinstance(said, kinds.Failure):
        return None, said
    try:
        return msgspec.json.decode(msgspec.json.encode(said), type=form), None
    except (msgspec.ValidationError, msgspec.EncodeError, TypeError, ValueError) as error:
        message = f"the thinker's answer breaks the protocol: {error}"[:1_000]
        return None, kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=True)


def _marked(action: Prune | MarkTerminal, status: str) -> kinds.TotNodesMarked:
    return kinds.TotNodesMarked(
        node_ids=list(action.node_ids),
        status="pruned" if status == "pruned" else "terminal",
        reason=action.reason,
    )


def _generate(state: TreeState, action: Generate) -> kinds.GenerateThoughts:
    shape = state.decomposition
    context = kinds.GenerationContext(
        problem=state.problem, goal=shape.success_criteria, constraints=list(shape.constraints)
    )
    payload = kinds.GeneratePayload(
        parent_node=state.nodes[action.node_id],
        generation_strategy=state.config.generation_strategy,
        num_candidates=action.k,
        context=context,
    )
    return kinds.GenerateThoughts(
        sender="explorer", to="generator", type="generate_thoughts", task_id=state.task_id, payload=payload
    )


def _evaluate(state: TreeState, action: Evaluate) -> kinds.EvaluateThoughts:
    nodes = [state.nodes[id_] for id_ in action.node_ids]
    context = kinds.EvaluationContext(
        problem=state.problem,
        current_depth=nodes[0].depth,
        max_depth=state.config.max_depth,
        goal=state.decomposition.success_criteria,
    )
    payload = kinds.EvaluatePayload(
        candidates=nodes,
        evaluation_strategy=state.config.evaluation_strategy,
        context=context,
        evaluation_criteria=list(CRITERIA),
    )
    return kinds.EvaluateThoughts(
        sender="explorer", to="evaluator", type="evaluate_thoughts", task_id=state.task_id, payload=payload
    )


def _synthesize(state: TreeState, action: Synthesize) -> kinds.SynthesizeSolution:
    path = [state.nodes[id_] for id_ in action.node_ids]
    payload = kinds.SynthesizePayload(best_path=path, problem=state.problem, task_type=state.task_type)
    return kinds.SynthesizeSolution(
        sender="explorer", to="synthesizer", type="synthesize_solution", task_id=state.task_id, payload=payload
    )


def _complete(state: TreeState, action: Finish) -> kinds.SearchComplete:
    payload = kinds.SearchPayload(
        stats=tree.stats(state),
        tree_digest=tree.digest(state),
        best_path=tree.best_path(state),
        tree=tree.thought_tree(state),
    )
    return kinds.SearchComplete(
        sender="explorer",
        to="orchestrator",
        type="search_complete",
        task_id=state.task_id,
        payload=payload,
        error=action.failure,
    )
