"""A language model as a thinker: any endpoint that ``consumers.sdk.llm`` can ask.

What a model says is decoded strictly, bounded, and never trusted. A malformed, late or refused answer becomes an error:
GENERATION_FAILED, EVALUATION_TIMEOUT, or INVALID_FORMAT for any other answer that came and cannot be read; what the
endpoint would not take stays LLM_UNAVAILABLE. It is recoverable unless the endpoint refused the request itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from consumers.sdk.llm.model import LlmClient, Message
from consumers.sdk.quotation import UNTRUSTED, data_block
from consumers.thoughts.thinkers import Path, candidates_max, ranked
from ledger.errors import Refused, Unavailable
from ledger.events import tot as kinds
from ledger.events.fields import Label, Line, OptionalText, Text, Unit

T = TypeVar("T")

thought_max_chars: Final = 1_000
thoughts_size_max_bytes: Final = 24 * 1024
solution_score_min: Final = 5.0

_ROLE: Final = "You are one part of a Tree-of-Thoughts search. What you think about stands between marks. " + UNTRUSTED
_JSON: Final = " Answer with one JSON object and nothing else: "


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every answer: strict."""


class _Shape(_Form, frozen=True):
    thought_granularity: Label
    intermediate_steps: Annotated[list[Line], msgspec.Meta(max_length=64)]
    depth_estimate: Annotated[int, msgspec.Meta(ge=1, le=64)]
    constraints: Annotated[list[Line], msgspec.Meta(max_length=64)] = []
    success_criteria: OptionalText = ""


class _Thought(_Form, frozen=True):
    content: Text
    action_type: Annotated[str, msgspec.Meta(max_length=200)] = ""
    is_solution: bool = False


class _Thoughts(_Form, frozen=True):
    candidates: list[_Thought]


class _Judged(_Form, frozen=True):
    score: kinds.Score
    confidence: Unit
    reasoning: Annotated[str, msgspec.Meta(max_length=4_000)] = ""


class _JudgedOne(_Judged, frozen=True, kw_only=True):
    node_id: Label


class _JudgedAll(_Form, frozen=True):
    evaluations: list[_JudgedOne]


class _Answered(_Form, frozen=True):
    answer: Annotated[str, msgspec.Meta(min_length=1, max_length=8_000)]
    reasoning_trace: Annotated[list[Line], msgspec.Meta(max_length=64)]
    confidence: Unit
    is_valid: bool
    validation_errors: Annotated[list[Line], msgspec.Meta(max_length=16)] = []
    alternative_solutions: Annotated[list[Line], msgspec.Meta(max_length=16)] = []


class LlmThinker:
    """A thinker that asks a model; see ``Thinker``. Its verification is the model's own word."""

    def __init__(self, client: LlmClient) -> None:
        self._client = client

    @property
    def name(self) -> str:
        """``llm:`` and the model that is asked."""
        return f"llm:{self._client.model}"[:200]

    problems = "any problem"
    checks = False

    def reads(self, problem: str, task_type: str) -> bool:
        """Return True: a model takes what comes."""
        return True

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape that the model gives a problem."""
        asked = (
            'Decompose the problem. {"thought_granularity": "…", "intermediate_steps": ["…"],'
            ' "depth_estimate": 1 to 64, "constraints": ["…"], "success_criteria": "…"}'
        )
        answer = self._ask(asked, {"problem": problem, "task_type": task_type}, _Shape)
        if isinstance(answer, _Shape):
            return msgspec.convert(msgspec.structs.asdict(answer), kinds.Decomposition)
        return _failure(_code_of(answer), answer)

    def generate(self, path: Path, asked: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return up to k thoughts: one call that proposes them all, or k calls that each sample one."""
        k, context = min(asked.num_candidates, candidates_max), asked.context
        is_one_call = asked.generation_strategy == "sequential_proposal"
        about = {"problem": context.problem, "goal": context.goal, "constraints": context.constraints}
        about |= {"steps_so_far": [node.content for node in path[1:]]}
        calls = [(k, "")] if is_one_call else [(1, f" This is sample {n + 1}.") for n in range(k)]
        thoughts: list[_Thought] = []
        for count, which in calls:
            question = (
                f"Propose {count} different next step(s), at most {thought_max_chars} characters each.{which}"
                ' {"candidates": [{"content": "…", "action_type": "…", "is_solution": whether it solves the problem}]}'
            )
            answer = self._ask(question, about, _Thoughts)
            if not isinstance(answer, _Thoughts):
                return _failure(_code_of(answer).replace("INVALID_FORMAT", "GENERATION_FAILED"), answer)
            thoughts += answer.candidates[:count]
        return kinds.GeneratedPayload(candidates=_kept(thoughts, k))

    def evaluate(self, paths: Sequence[Path], asked: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return the model's scores: one call a path, or one call that compares them all."""
        strategy, context = asked.evaluation_strategy, asked.context
        about = {"problem": context.problem, "goal": context.goal, "criteria": asked.evaluation_criteria}
        candidates = [{"node_id": path[-1].id, "steps": [node.content for node in path[1:]]} for path in paths]
        form = '"score": 0 to 10, "confidence": 0 to 1, "reasoning": "…"'
        evaluations: list[kinds.NodeEvaluation] = []
        if strategy == "comparative_voting":
            question = f'Compare the candidates. {{"evaluations": [{{"node_id": "…", {form}}}]}}'
            answer = self._ask(question, about | {"candidates": candidates}, _JudgedAll)
            if not isinstance(answer, _JudgedAll):
                return _evaluation_failure(answer)
            by_id = {judged.node_id: judged for judged in answer.evaluations}
            evaluations = [_evaluation(path[-1].id, by_id[path[-1].id]) for path in paths if path[-1].id in by_id]
            return ranked(evaluations)
        for candidate in candidates:
            judged = self._ask(f"Judge the last step. {{{form}}}", about | {"candidate": candidate}, _Judged)
            if not isinstance(judged, _Judged):
                return _evaluation_failure(judged)
            evaluations.append(_evaluation(str(candidate["node_id"]), judged))
        return ranked(evaluations)

    def is_solution(self, path: Path) -> bool:
        """Return whether the last thought was proposed as a solution and not judged below ``solution_score_min``."""
        last = path[-1]
        judged = last.evaluation is None or last.evaluation.score >= solution_score_min
        return len(path) > 1 and last.metadata.get("is_solution") is True and judged

    def synthesize(self, path: Path, problem: str) -> kinds.Solution | kinds.Failure:
        """Return the model's answer and its own verdict on it."""
        asked = (
            'Write the answer that the steps lead to and check it. {"answer": "…", "reasoning_trace": ["…"],'
            ' "confidence": 0 to 1, "is_valid": true|false, "validation_errors": ["…"], "alternative_solutions": ["…"]}'
        )
        answer = self._ask(asked, {"problem": problem, "steps": [node.content for node in path[1:]]}, _Answered)
        if not isinstance(answer, _Answered):
            return _failure(_code_of(answer), answer)
        is_valid = answer.is_valid and not answer.validation_errors
        return kinds.Solution(
            answer=answer.answer,
            reasoning_trace=answer.reasoning_trace,
            confidence=answer.confidence,
            verification=kinds.Verification(by="model", is_valid=is_valid, validation_errors=answer.validation_errors),
            alternative_solutions=answer.alternative_solutions,
        )

    def _ask(self, asked: str, about: Any, form: type[T]) -> T | Unavailable | Refused:
        messages = [Message("system", f"{_ROLE}{_JSON}{asked}"), Message("user", data_block("thoughts", about))]
        try:
            return self._client.ask(messages, form).value
        except (Unavailable, Refused) as error:
            return error


def _kept(thoughts: list[_Thought], k: int) -> list[kinds.Candidate]:
    """Return at most ``k`` thoughts without those said before, too long, or beyond what a message holds."""
    kept: dict[str, kinds.Candidate] = {}
    size = 0
    for thought in thoughts:
        content = thought.content.strip()
        if not content or content in kept or len(content) > thought_max_chars:
            continue
        size += len(content.encode())
        if len(kept) == k or size > thoughts_size_max_bytes:
            break
        metadata = {"is_solution": True} if thought.is_solution else {}
        kept[content] = kinds.Candidate(
            temp_id=f"cand_{len(kept) + 1}", content=content, action_type=thought.action_type, metadata=metadata
        )
    return list(kept.values())


def _evaluation(node_id: str, judged: _Judged) -> kinds.NodeEvaluation:
    reasoning = judged.reasoning[:300]
    return kinds.NodeEvaluation(node_id=node_id, score=judged.score, confidence=judged.confidence, reasoning=reasoning)


def _evaluation_failure(error: Unavailable | Refused) -> kinds.Failure:
    is_late = error.code == "LLM_UNAVAILABLE" and "status" not in error.details
    return _failure("EVALUATION_TIMEOUT" if is_late else _code_of(error), error)


def _code_of(error: Unavailable | Refused) -> str:
    """Return the protocol's code for what came and cannot be read; an endpoint that did not answer keeps ours."""
    return error.code if error.code == "LLM_UNAVAILABLE" else "INVALID_FORMAT"


def _failure(code: str, error: Unavailable | Refused) -> kinds.Failure:
    status = error.details.get("status")
    is_denial = isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429)
    denied = is_denial or isinstance(error, Refused)
    return kinds.Failure(code=code, message=f"{error.code}: {error.message}", recoverable=not denied)
