"""A language model as a thinker: any endpoint that ``consumers.sdk.llm`` can ask.

What a model says is read as ``consumers.sdk.llm.reader`` reads it, bounded, and never trusted. An answer that cannot be
used is asked for again, ``attempts`` times in all, with the fault named and its beginning as data; then only that
question fails (GENERATION_FAILED, INVALID_FORMAT), and what the others of a batch brought is kept. An endpoint that
cannot be asked is no fault of any node: LLM_UNAVAILABLE, or EVALUATION_TIMEOUT for a late judge, which pause a search.
All of these are recoverable, a refused key or field too: who mends ``[llm]`` goes on.

Questions that do not depend on each other are asked at the same time, ``parallel_max`` of a process. An answer is
recorded before it is used: if we crash before that, it was paid and is lost; after it, it is recalled by the digest of
its prompt. That holds all that makes a question another one: a sample's number, and the fault of the answer before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import ceil, inf
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from consumers.sdk.llm.model import LlmClient, Message, prompt_digest
from consumers.sdk.llm.reader import read_answer, read_number
from consumers.sdk.quotation import UNTRUSTED, data_block
from consumers.sdk.text import one_line, shorten
from consumers.thoughts.thinkers import Answered, Path, Recorder, candidates_max, ranked
from ledger.errors import Refused, Unavailable
from ledger.events import tot as kinds
from ledger.events.fields import Label, Passage, Text, Unit
from ledger.secrets import scan

thought_max_chars: Final = 1_000
thoughts_size_max_bytes: Final = 24 * 1024
metadata_size_max_bytes: Final = 1_024
metadata_parts_max: Final = 8
dimensions_max: Final = 8
fault_max_chars: Final = 240
retry_after_max_s: Final = 31_536_000
solution_score_min: Final = 5.0

_ROLE: Final = "You are one part of a Tree-of-Thoughts search. What you think about stands between marks. " + UNTRUSTED
_JSON: Final = " Answer with one JSON object and nothing else: "
_LANGUAGES: Final[dict[kinds.Language, str]] = {
    "en": " Write in the language of the problem.",
    "zh": " Write in Chinese; the keys stay as they are.",
}
_AGAIN: Final = (
    " Your last answer could not be used: between <fault> and </fault> stands why, and how it began. Mend it."
)
_TEMP_ID: Final = re.compile(r"(?!cand_)[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")
_Lines = Annotated[list[Passage], msgspec.Meta(max_length=64)]


_UNUSABLE: Final = {"_Thoughts": "GENERATION_FAILED"}
_LATE: Final = {"_Score": "EVALUATION_TIMEOUT", "_Scores": "EVALUATION_TIMEOUT"}


class _Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of what is read of every answer."""


class _Shape(_Form, frozen=True):
    depth_estimate: Annotated[int, msgspec.Meta(ge=1, le=64)]
    thought_granularity: Label = "step"
    intermediate_steps: _Lines = []
    constraints: _Lines = []
    success_criteria: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class _Thought(_Form, frozen=True):
    content: str
    temp_id: str = ""
    action_type: Annotated[str, msgspec.Meta(max_length=200)] = ""
    is_solution: bool = False
    metadata: dict[str, Any] = {}


class _Thoughts(_Form, frozen=True):
    candidates: Annotated[list[_Thought], msgspec.Meta(max_length=candidates_max)]


class _Score(_Form, frozen=True):
    score: kinds.Score
    node_id: str = ""
    confidence: Unit = 0.5
    reasoning: Annotated[str, msgspec.Meta(max_length=300)] = ""
    dimension_scores: dict[str, Any] = {}


class _Scores(_Form, frozen=True):
    evaluations: Annotated[list[_Score], msgspec.Meta(max_length=1_000)]


class _Final(_Form, frozen=True):
    answer: Text
    reasoning_trace: _Lines = []
    confidence: Unit = 0.5
    is_valid: bool | None = None
    validation_errors: _Lines = []
    alternative_solutions: _Lines = []


F = TypeVar("F", bound=_Form)


class _Question(NamedTuple, Generic[F]):
    """What is asked for, about what, in which form; ``keep`` returns what is used of an answer, or refuses it."""

    asked: str
    about: dict[str, Any]
    form: type[F]
    keep: Callable[[F], F] = lambda answer: answer
    sample: int | None = None


@dataclass
class LlmThinker:
    """A thinker that asks a model; see ``Thinker``. Its verification is the model's own word."""

    client: LlmClient
    language: kinds.Language = "en"
    deadline: str | None = None
    recorder: Recorder | None = None
    usage: kinds.Usage = field(default_factory=kinds.Usage)
    threads: ThreadPoolExecutor | None = None

    problems = "any problem"
    checks = False

    def __post_init__(self) -> None:
        """Share the threads of this process, so that one bound holds for all that is asked at the same time."""
        self._threads = self.threads or ThreadPoolExecutor(self.client.endpoint.settings.parallel_max)
        self._until_s = inf if self.deadline is None else datetime.fromisoformat(self.deadline).timestamp()

    def at_work(
        self, *, language: kinds.Language = "en", deadline: str | None = None, recorder: Recorder | None = None
    ) -> LlmThinker:
        """Return a thinker for one request of a search; ``usage`` is what it costs."""
        return LlmThinker(self.client, language, deadline, recorder, threads=self._threads)

    @property
    def name(self) -> str:
        """``llm:`` and the model that is asked."""
        return f"llm:{self.client.model}"[:200]

    def reads(self, problem: str, task_type: str) -> bool:
        """Return True: a model takes what comes."""
        return True

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape that the model gives a problem."""
        asked = (
            'Decompose the problem. {"thought_granularity": "…", "intermediate_steps": ["…"],'
            ' "depth_estimate": 1 to 64, "constraints": ["…"], "success_criteria": "…"}'
        )
        shapes = self._ask([_Question(asked, {"problem": problem, "task_type": task_type}, _Shape)])
        if isinstance(shapes, kinds.Failure):
            return shapes
        return msgspec.convert(shapes[0], kinds.Decomposition, from_attributes=True)

    def generate(self, path: Path, asked: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return up to k thoughts: one question that proposes them all, or k questions that each sample one."""
        k, context = min(asked.num_candidates, candidates_max), asked.context
        about = {"problem": context.problem, "goal": context.goal, "constraints": context.constraints}
        about |= {"steps_so_far": [node.content for node in path[1:]]}
        form = (
            f" At most {thought_max_chars} characters each.{_place(len(path), context.max_depth)}"
            ' {"candidates": [{"temp_id": "cand_1", "content": "…", "action_type": "…", "is_solution": whether it'
            ' solves the problem, "metadata": {}}]}'
        )
        sampled = (
            f"Propose 1 next step. This is sample {{}} of {k}, each asked by itself: make it different from what you"
            " would propose as any of the others."
        )
        if asked.generation_strategy == "sequential_proposal":
            proposal = f"Propose {k} different next step(s).{form}"
            answers = self._ask([_Question(proposal, about, _Thoughts, partial(_used, k=k))])
        else:
            questions = [(sampled.format(number) + form, number) for number in range(1, k + 1)]
            one = partial(_used, k=1)
            answers = self._ask([_Question(text, about, _Thoughts, one, number) for text, number in questions])
        return (
            answers
            if isinstance(answers, kinds.Failure)
            else kinds.GeneratedPayload(candidates=_candidates(answers, k))
        )

    def evaluate(self, paths: Sequence[Path], asked: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return the model's scores: one question a path, or one question that compares them all."""
        strategy, context = asked.evaluation_strategy, asked.context
        about: dict[str, Any] = {
            "problem": context.problem,
            "goal": context.goal,
            "criteria": asked.evaluation_criteria,
        }
        steps = {path[-1].id: [node.content for node in path[1:]] for path in paths}
        dimensions = ", ".join(f'"{name}": 0 to 10' for name in asked.evaluation_criteria)
        form = f'"score": 0 to 10, "confidence": 0 to 1, "reasoning": "…", "dimension_scores": {{{dimensions}}}'
        place = _place(context.current_depth, context.max_depth)
        if strategy == "comparative_voting":
            text = f'Compare the candidates by their last steps.{place} {{"evaluations": [{{"node_id": "…", {form}}}]}}'
            about |= {"candidates": [{"node_id": id_, "steps": texts} for id_, texts in steps.items()]}
            votes = self._ask([_Question(text, about, _Scores, partial(_of_these, ids=list(steps)))])
            scores = votes if isinstance(votes, kinds.Failure) else votes[0].evaluations
        else:
            text = f"Judge the last step.{place} {{{form}}}"
            scores = self._ask([
                _Question(text, about | {"steps": texts}, _Score, partial(_of_node, id_=id_))
                for id_, texts in steps.items()
            ])  # fmt: skip
        if isinstance(scores, kinds.Failure):
            return scores
        return ranked([msgspec.convert(one, kinds.NodeEvaluation, from_attributes=True) for one in scores])

    def is_solution(self, path: Path) -> bool:
        """Return whether the last thought was proposed as a solution and not judged below ``solution_score_min``."""
        last = path[-1]
        judged = last.evaluation is None or last.evaluation.score >= solution_score_min
        return len(path) > 1 and last.metadata.get("is_solution") is True and judged

    def synthesize(self, path: Path, problem: str) -> kinds.Solution | kinds.Failure:
        """Return the model's answer and its own verdict on it; a deadline does not keep it from being said."""
        asked = (
            'Write the answer that the steps lead to and check it. {"answer": "…", "reasoning_trace": ["…"],'
            ' "confidence": 0 to 1, "is_valid": true|false, "validation_errors": ["…"], "alternative_solutions": ["…"]}'
        )
        self._until_s = inf
        about = {"problem": problem, "steps": [node.content for node in path[1:]]}
        answers = self._ask([_Question(asked, about, _Final)])
        if isinstance(answers, kinds.Failure):
            return answers
        fields = asdict(answers[0])
        is_valid, errors = fields.pop("is_valid"), fields.pop("validation_errors")
        by: kinds.Verifier = "nobody" if is_valid is None else "model"
        checked = kinds.Verification(is_valid=is_valid is True and not errors, by=by, validation_errors=errors)
        return kinds.Solution(**fields, verification=checked)

    def _ask(self, questions: Sequence[_Question[F]]) -> list[F] | kinds.Failure:
        """Return the answers that can be used; the failure where there is none, or one could not be had."""
        answers = list(self._threads.map(self._ask_until_usable, questions))
        self.usage = sum((cost for _, cost in answers), self.usage)
        usable = [answer for answer, _ in answers if not isinstance(answer, kinds.Failure)]
        failures = {answer.code: answer for answer, _ in answers if isinstance(answer, kinds.Failure)}
        unusable = failures.pop(_UNUSABLE.get(questions[0].form.__name__, "INVALID_FORMAT"), None)
        # First what is no fault of the answers: the search pauses, and recalls those that are good.
        return next(iter(failures.values()), None if usable else unusable) or usable

    def _ask_until_usable(self, question: _Question[F]) -> tuple[F | kinds.Failure, kinds.Usage]:
        fault, usage, form = "", kinds.Usage(), question.form
        for _ in range(self.client.endpoint.settings.attempts):
            asked = f"{_ROLE}{_LANGUAGES[self.language]}{_AGAIN if fault else ''}{_JSON}{question.asked}"
            data = data_block("thoughts", question.about) + (f"\n{data_block('fault', fault)}" if fault else "")
            messages = [Message("system", asked), Message("user", data)]
            answered = self.recorder.recall(prompt_digest(messages)) if self.recorder else None
            try:
                answered = answered or self._pay(messages, question)
            except (Unavailable, Refused) as error:
                usage += kinds.Usage(requests=error.details.get("requests", 0))
                return self._unavailable(error, _LATE.get(form.__name__, "LLM_UNAVAILABLE")), usage
            usage += answered.usage
            if answered.answer is not None:
                return question.keep(msgspec.convert(answered.answer, form)), usage
            fault = answered.fault
        code = _UNUSABLE.get(form.__name__, "INVALID_FORMAT")
        return kinds.Failure(code=code, message=f"the model's answer: {fault}", recoverable=True), usage

    def _pay(self, messages: list[Message], question: _Question[F]) -> Answered:
        if (limit_s := self._until_s - time.time()) <= 0:
            raise Unavailable("LLM_UNAVAILABLE", "the deadline of the search has passed")
        text, fault, usage = self.client.complete(messages, sample=question.sample, limit_s=limit_s)
        try:
            if fault is not None:
                raise fault
            answer: dict[str, Any] = msgspec.to_builtins(question.keep(read_answer(text, question.form)))
            # No event takes what looks like a secret.
            secret = scan(answer)
            answered = Answered(
                None if secret else answer, f"a secret stands at {secret.path}" if secret else "", usage
            )
        except Refused as refusal:
            answered = Answered(None, _told(refusal.message, text), usage)
        if self.recorder:
            self.recorder.record(prompt_digest(messages), self.client.model, answered)
        return answered

    def _unavailable(self, error: Unavailable | Refused, late: str) -> kinds.Failure:
        wait_s, is_late = error.details.get("retry_after_s"), getattr(error.__cause__, "reason", None) == "late"
        # At the deadline it is no fault of the endpoint, and there is nothing to wait for.
        code = "SEARCH_EXHAUSTED" if time.time() >= self._until_s else late if is_late else "LLM_UNAVAILABLE"
        after_s = None if wait_s is None else min(ceil(wait_s), retry_after_max_s)
        return kinds.Failure(code=code, message=error.message[:2_000], recoverable=True, retry_after_s=after_s)


def _place(depth: int, depth_max: int) -> str:
    last = "" if depth < depth_max else " It is the last one: with it the problem must be solved, completely."
    return f" It is step {depth} of at most {depth_max}.{last}"


def _told(fault: str, text: str) -> str:
    """Return what is wrong with an answer and how it began, for the next question and the log."""
    beginning = f"; it began: {shorten(text, fault_max_chars)}" if text else ""
    told = one_line(f"{shorten(fault, fault_max_chars)}{beginning}", mark=" ")
    return told if scan(told) is None else "it holds what looks like a secret, which is kept nowhere"


def _used(thoughts: _Thoughts, k: int) -> _Thoughts:
    """Return at most ``k`` thoughts without those said before, too long, or beyond what a message holds."""
    kept: dict[str, _Thought] = {}
    size = 0
    for thought in thoughts.candidates:
        content = thought.content.strip()
        if not content or content in kept or len(content) > thought_max_chars:
            continue
        size += len(content.encode())
        if len(kept) == k or size > thoughts_size_max_bytes:
            break
        encoded = msgspec.json.encode(thought.metadata)
        is_small = (
            len(encoded) <= metadata_size_max_bytes and encoded.count(b"{") + encoded.count(b"[") <= metadata_parts_max
        )
        solved = {"is_solution": True} if thought.is_solution else {}
        kept[content] = replace(thought, content=content, metadata=(thought.metadata if is_small else {}) | solved)
    if thoughts.candidates and not kept:
        raise Refused("INVALID_FORMAT", f"no candidate has a content of 1 to {thought_max_chars} characters")
    return _Thoughts(list(kept.values()))


def _candidates(answers: Sequence[_Thoughts], k: int) -> list[kinds.Candidate]:
    """Return the thoughts of all answers, equal ones once; each keeps its own temporary id unless that is taken."""
    kept: dict[str, _Thought] = {}
    thoughts = _Thoughts([thought for answer in answers for thought in answer.candidates])
    for number, thought in enumerate(_used(thoughts, k).candidates, 1):
        is_own = _TEMP_ID.fullmatch(thought.temp_id) and thought.temp_id not in kept
        id_ = thought.temp_id if is_own else f"cand_{number}"
        kept[id_] = replace(thought, temp_id=id_)
    return [msgspec.convert(thought, kinds.Candidate, from_attributes=True) for thought in kept.values()]


def _of_these(votes: _Scores, ids: Sequence[str]) -> _Scores:
    """Return one vote a candidate, without those on strangers; votes on strangers alone are none."""
    kept = {vote.node_id: _of_node(vote, vote.node_id) for vote in reversed(votes.evaluations)}
    if not kept.keys() & set(ids):
        raise Refused("INVALID_FORMAT", f"it evaluates none of the node_id that were asked about: {', '.join(ids)}")
    return _Scores([kept[id_] for id_ in ids if id_ in kept])


def _of_node(score: _Score, id_: str) -> _Score:
    """Return the score of a node with those of its dimensions that are scores."""
    spelled = [(name[:80], read_number(value, 10)) for name, value in score.dimension_scores.items()][:dimensions_max]
    dimensions = {name: value for name, value in spelled if type(value) in (int, float) and 0 <= value <= 10}
    return replace(score, node_id=id_, dimension_scores=dimensions)
