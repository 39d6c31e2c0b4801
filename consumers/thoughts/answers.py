"""Makes messages of the protocol from a thinker's answers.

An answer is cut to the requested size (the first k of 10,000 candidates) and checked against the protocol's types (a
score of 11 is INVALID_FORMAT). So no thinker can make an agent send a message that the ledger refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.task import Nodes, cut_to_bytes, fitting, path_to
from deedbook.consumers.thoughts.thinkers import Thinker
from deedbook.consumers.thoughts.transition import parties_of
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.format.codec import read_json

ANSWERS: Final[dict[type, type[kinds.Reply]]] = {
    kinds.DecomposeTask: kinds.DecompositionResult,
    kinds.GenerateThoughts: kinds.GeneratedThoughts,
    kinds.EvaluateThoughts: kinds.EvaluationResults,
    kinds.SynthesizeSolution: kinds.FinalSolution,
}
step_size_max_bytes: Final = 2_000
path_answer_max_bytes: Final = 12_000
"""Sizes as JSON of a step, and of a whole path, in an answer that is the path itself."""

T = TypeVar("T", bound=msgspec.Struct)
M = TypeVar("M", bound=kinds.Message)


def message(form: type[M], task_id: str, payload: msgspec.Struct | None, error: kinds.Failure | None = None) -> M:
    """Return a message of the type ``form``, which also decides its sender and receiver."""
    type_ = KIND_OF[form].removeprefix("tot.")
    sender, to = parties_of(type_)
    make: Callable[..., M] = form
    return make(sender=sender, to=to, type=type_, task_id=task_id, payload=payload, error=error)


def respond(nodes: Nodes, request: kinds.Message, thinker: Thinker, language: kinds.Language = "en") -> kinds.Reply:
    """Return a thinker's answer to ``request``; ``nodes`` are those of the tree when it was made."""
    result: tuple[msgspec.Struct | None, kinds.Failure | None]
    match request:
        case kinds.DecomposeTask(payload=wanted):
            result = _checked(thinker.decompose(wanted.problem, wanted.task_type), kinds.Decomposition)
        case kinds.GenerateThoughts(payload=wanted):
            result = _generated(nodes, wanted, thinker)
        case kinds.EvaluateThoughts(payload=wanted):
            result = _evaluated(nodes, wanted, thinker)
        case kinds.SynthesizeSolution(payload=wanted):
            result = _synthesized(wanted, thinker, language)
        case _:  # any other message: those of the orchestrator, and answers
            raise TypeError(f"{type(request).__name__} is not a request to a thinker")
    return message(ANSWERS[type(request)], request.task_id, *result)


def _generated(
    nodes: Nodes, wanted: kinds.GeneratePayload, thinker: Thinker
) -> tuple[kinds.GeneratedPayload | None, kinds.Failure | None]:
    answer = thinker.generate(path_to(nodes, wanted.parent_node.id), wanted)
    if isinstance(answer, kinds.GeneratedPayload):
        answer = msgspec.structs.replace(answer, candidates=fitting(answer.candidates[: wanted.num_candidates]))
    payload, failure = _checked(answer, kinds.GeneratedPayload)
    if payload is not None and len({candidate.temp_id for candidate in payload.candidates}) != len(payload.candidates):
        text = "two candidates have the same temporary id"
        return None, kinds.Failure(code="GENERATION_FAILED", message=text, recoverable=True)
    return payload, failure


def _evaluated(
    nodes: Nodes, wanted: kinds.EvaluatePayload, thinker: Thinker
) -> tuple[kinds.ResultsPayload | None, kinds.Failure | None]:
    ids = {node.id for node in wanted.candidates}
    paths = [path_to(nodes, node.id) for node in wanted.candidates]
    answer = thinker.evaluate(paths, wanted)
    if isinstance(answer, kinds.ResultsPayload):
        by_id = {judged.node_id: judged for judged in answer.evaluations if judged.node_id in ids}
        answer = msgspec.structs.replace(
            answer,
            evaluations=list(by_id.values()),
            ranking=[id_ for id_ in dict.fromkeys(answer.ranking) if id_ in ids],
            pruning_suggestions=[id_ for id_ in dict.fromkeys(answer.pruning_suggestions) if id_ in ids],
        )
    return _checked(answer, kinds.ResultsPayload)


def _synthesized(
    wanted: kinds.SynthesizePayload, thinker: Thinker, language: kinds.Language
) -> tuple[kinds.Solution | None, kinds.Failure | None]:
    """Return the solution; if the path does not claim to be a solution, it is marked as checked by nobody."""
    if wanted.verbatim:
        return _path_itself(wanted.best_path, language), None
    payload, failure = _checked(thinker.synthesize(wanted), kinds.Solution)
    if payload is None or thinker.checks or thinker.is_solution(wanted.best_path):
        return payload, failure
    errors = [*payload.verification.validation_errors, phrase(language, "unchecked")]
    unproven = kinds.Verification(is_valid=False, by="nobody", validation_errors=errors)
    return msgspec.structs.replace(payload, verification=unproven), failure


def _path_itself(path: list[kinds.ThoughtNode], language: kinds.Language) -> kinds.Solution:
    steps = [cut_to_bytes(node.content, step_size_max_bytes) for node in path[1:]]
    lines = steps if len(steps) == 1 else [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    judged = path[-1].evaluation
    return kinds.Solution(
        answer=cut_to_bytes("\n".join(lines), path_answer_max_bytes),
        reasoning_trace=fitting(steps),
        confidence=0.0 if judged is None else judged.confidence,
        verification=kinds.Verification(is_valid=False, by="nobody", validation_errors=[phrase(language, "verbatim")]),
    )


def _checked(answer: T | kinds.Failure, form: type[T]) -> tuple[T | None, kinds.Failure | None]:
    """Return an answer as the protocol's type, or a failure: the thinker's own, or a violation of the type."""
    if isinstance(answer, kinds.Failure):
        return None, answer
    try:
        return read_json(msgspec.json.encode(answer), form), None
    except (msgspec.ValidationError, msgspec.EncodeError, TypeError, ValueError) as error:
        text = f"the thinker's answer breaks the protocol: {error}"[:1_000]
        return None, kinds.Failure(code="INVALID_FORMAT", message=text, recoverable=True)
