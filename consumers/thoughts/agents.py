"""One agent of a task: follow the stream, recompute, say what is to be said, until the task is over.

Nothing is kept beside the stream. What is refused because it was said already (by the process that was here before, or
one that is thought dead) means: read again. A refusal after which there is nothing new to read is a fault of ours.

The orchestrator opens a task, has it decomposed and asks for the search, from the task's events and ``tot.started``
alone; what it cannot begin ends with ``tot.error``. The explorer says what ``next_action`` tells. The other four take
the oldest request that waits for their role, say that they begin, think, and answer; what the thinker cannot do becomes
the message's ``error``.

The best path of a finished search becomes a reasoning memory, ``reasoning/TASK``, which can be briefed and handed off:
a step for each node, the root as what was observed and the answer as the conclusion. The events that made and judged a
node are the causes of its step's event; its alternatives are the siblings not taken. Everything is one submission, so
what is long is cut to what that holds; the events among the causes say it whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from consumers.thoughts import answers
from consumers.thoughts.search import next_step, search_complete
from consumers.thoughts.settings import read_overrides, search_config
from consumers.thoughts.task import PAUSING, Asked, Say, Task, TreeState, attempts_max, drafts, line
from consumers.thoughts.thinkers import Thinker
from ledger.author import Author
from ledger.client import read_event
from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events import reasoning
from ledger.events import tot as kinds

wait_s: Final = 1.0
tree_inline_max_bytes: Final = 32 * 1024
message_max_chars: Final = 1_000

# Somebody else said it, or said something before it.
_SAID_ALREADY: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY", "STREAM_CONFLICT", "ALREADY_RECORDED"}
)
# What a thinker thought does not fit into an event.
_NO_EVENT: Final = frozenset(
    {"TOO_LARGE", "INVALID_FIELD", "INVALID_FORMAT", "NESTING_TOO_DEEP", "INTEGER_OUT_OF_RANGE", "UNKNOWN_FIELD"}
)
_BEGIN: Final[dict[kinds.Role, str]] = {
    "decomposer": "⏳ [Decomposer] 正在分解问题",
    "generator": "⏳ [Generator] 正在生成候选",
    "evaluator": "⏳ [Evaluator] 正在评估候选",
    "synthesizer": "⏳ [Synthesizer] 正在合成答案",
}
_ANSWERS: Final[dict[kinds.Role, type[kinds.Message]]] = {
    "decomposer": kinds.DecompositionResult,
    "generator": kinds.GeneratedThoughts,
    "evaluator": kinds.EvaluationResults,
    "synthesizer": kinds.FinalSolution,
}


class Agent:
    """One role of one task, played by ``author`` with ``thinker``."""

    def __init__(
        self,
        role: kinds.Role,
        task_id: str,
        author: Author,
        thinker: Thinker,
        *,
        opening: kinds.TotStarted | None = None,
    ) -> None:
        """Play ``role``; the orchestrator of a task that is not there yet begins it with ``opening``."""
        self._role = role
        self._author = author
        self._thinker = thinker
        self._opening = opening
        self._task = Task(task_id)

    def run(self, stop: threading.Event, start: int = 0) -> bool:
        """Play until the task is over, or ``stop`` is set; return whether it is over. ``start`` is where to read from.

        Raises:
            Refused: the ledger does not take what is to be said, and nobody said it before.
            Unavailable: the ledger cannot be used; whoever starts the agent again goes on.
        """
        position, wait, has_news, refusal = start, 0.0, False, None
        client, stream = self._author.client, f"tot/{self._task.id}"
        while not stop.is_set():
            page = client.entries(position, stream=stream, wait_s=wait)
            for index, data in page.entries:
                self._task.apply(read_event(index, data))
            position, has_news = page.next_index, has_news or bool(page.entries)
            if position < page.size:
                continue  # an agent that has not read everything would answer what is answered
            if refusal is not None and not has_news:
                raise refusal
            refusal = self._say(self._next())
            if self._task.is_over or self._task.paused:
                self._end()
                return True
            wait, has_news = wait_s, False
        return False

    def _next(self) -> list[Say]:
        match self._role:
            case "orchestrator":
                return orchestrate(self._task, self._opening)
            case "explorer":
                return explore(self._task, self._thinker, self._author.put_blob)
            case "decomposer" | "generator" | "evaluator" | "synthesizer":
                return answer(self._role, self._task, self._thinker)
            case _:
                assert_never(self._role)

    def _end(self) -> None:
        """Keep what the task came to; said again by whoever resumes it, it is taken once."""
        if self._role == "orchestrator":
            refusal = self._say(remembered(self._task))
            if refusal is not None:
                raise refusal

    def _say(self, says: list[Say], *, is_last_try: bool = False) -> Refused | None:
        """Append one submission; return the refusal that says that somebody was faster."""
        if not says:
            return None
        try:
            self._author.emit(*drafts(self._task.id, says))
        except Refused as refusal:
            if refusal.code in _SAID_ALREADY:
                return refusal
            # Before its task, and after it, the orchestrator has none that could end with what went wrong.
            has_task = self._role != "orchestrator" or (self._task.started is not None and not self._task.is_over)
            if refusal.code not in _NO_EVENT or is_last_try or not has_task:
                raise
            return self._say(self._instead(refusal.message), is_last_try=True)
        return None

    def _instead(self, message: str) -> list[Say]:
        if self._role == "orchestrator":
            return not_begun(self._task, message)
        if self._role == "explorer":
            return given_up(self._task, message, self._author.put_blob)
        return refused(self._role, self._task, message)


def orchestrate(task: Task, opening: kinds.TotStarted | None) -> list[Say]:
    """Return what the orchestrator says next, one submission; nothing while it waits."""
    if task.started is None:
        # Without a key: a task of this id that is there already must be refused, even if it was opened in these words.
        return [] if opening is None else [Say("", opening)]
    if task.is_over or task.tree is not None or task.waiting or task.paused:
        return []
    last = task.decompositions[-1] if task.decompositions else None
    if last is None:
        return [_decompose(task, task.started)]
    failure, shape = last.data.error, last.data.payload
    if shape is None:
        if failure.code in PAUSING and last.id not in task.paused_for:
            paused = kinds.TotPaused(sender="orchestrator", task_id=task.id, error=failure)
            return [Say(f"paused:{last.id}", paused, [last.id])]
        counted = [event for event in task.decompositions if event.data.error.code not in PAUSING]
        if failure.code in PAUSING or (failure.recoverable and len(counted) < attempts_max):
            return [_decompose(task, task.started)]
        return [_error(task, failure, last.id)]
    try:
        config = search_config(task.started.task_type, shape, read_overrides(task.started.options))
    except Refused as refusal:
        return not_begun(task, refusal.message)
    about = {"problem": task.started.problem, "task_type": task.started.task_type}
    payload = kinds.InitializePayload(**about, search_config=config, decomposition_result=shape)
    request = answers.message(kinds.InitializeSearch, task.id, payload)
    return [Say(f"ask:initialize_search:{last.id}", request, [last.id])]


def not_begun(task: Task, message: str) -> list[Say]:
    """Return the end of a task whose search cannot be asked for: the ledger did not take the request."""
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return [_error(task, kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False), cause)]


def explore(task: Task, thinker: Thinker, store: Callable[[bytes], str]) -> list[Say]:
    """Return what the explorer says next, one submission; ``store`` keeps a blob and returns its ref.

    The key of what it says is the number of its step, so two explorers of one task (one of them thought dead) can never
    walk two ways: the ledger takes a step once, and whoever was later reads on.
    """
    if task.is_over or task.tree is None:
        return []
    step = next_step(task.tree, thinker, task.now_ms)
    if step is None:
        return []
    if isinstance(step.data, kinds.TotPaused):
        return [Say(f"paused:{step.causes[0]}", step.data, step.causes)]
    if isinstance(step.data, kinds.SearchComplete):
        return [Say(f"answer:{task.tree.request}", _fitted(step.data, store), step.causes)]
    return [Say(f"step:{task.steps + 1}", step.data, step.causes)]


def given_up(task: Task, message: str, store: Callable[[bytes], str]) -> list[Say]:
    """Return the end of a search that the ledger did not take the next step of: it was too much for one event."""
    if task.is_over or task.tree is None:
        return []
    failure = kinds.Failure(code="INVALID_FORMAT", message=message[:message_max_chars], recoverable=False)
    data = search_complete(task.tree, failure)
    data = msgspec.structs.replace(data, payload=msgspec.structs.replace(data.payload, best_path=[]))
    return [Say(f"answer:{task.tree.request}", _fitted(data, store), [task.tree.request])]


def answer(role: kinds.Role, task: Task, thinker: Thinker) -> list[Say]:
    """Return what ``role`` says next, one submission; nothing when no request waits for it.

    What happens if we crash here: the request still waits; the next process of the role finds the line that was
    written, and answers under the same key.
    """
    asked = _oldest(role, task)
    if asked is None or task.is_over:
        return []
    id_ = asked.event.id
    if (role, id_) not in task.announced:
        return [line(role, task, id_, _BEGIN[role], [id_])]
    request = asked.event.data
    if isinstance(request, kinds.DecomposeTask):
        reply = answers.decompose(request, thinker)
    else:
        assert asked.tree is not None  # noqa: S101 - the gate lets nobody ask these before there is a search
        reply = answers.respond(asked.tree, request, thinker)
    return [Say(f"answer:{id_}", reply, [id_])]


def refused(role: kinds.Role, task: Task, message: str) -> list[Say]:
    """Return the answer of ``role`` when the ledger did not take what its thinker thought: it was too much."""
    asked = _oldest(role, task)
    if asked is None:
        return []
    code = "GENERATION_FAILED" if role == "generator" else "INVALID_FORMAT"
    failure = kinds.Failure(code=code, message=message[:message_max_chars], recoverable=True)
    reply = answers.message(_ANSWERS[role], asked.event.data.task_id, None, failure)
    return [Say(f"answer:{asked.event.id}", reply, [asked.event.id])]


def _decompose(task: Task, started: kinds.TotStarted) -> Say:
    payload = kinds.DecomposePayload(problem=started.problem, task_type=started.task_type)
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return Say(f"ask:decompose_task:{cause}", answers.message(kinds.DecomposeTask, task.id, payload), [cause])


def _error(task: Task, failure: kinds.Failure, cause: str) -> Say:
    data = kinds.TotError(sender="orchestrator", task_id=task.id, error=failure)
    return Say(f"error:{cause}", data, [cause])


def _fitted(data: kinds.SearchComplete, store: Callable[[bytes], str]) -> kinds.SearchComplete:
    """Return the message with its tree as a blob if it is too large to stand in it."""
    tree = encode_canonical(data.payload.tree)
    if len(tree) <= tree_inline_max_bytes:
        return data
    # If we crash after this line, there is a blob that nobody names.
    payload = msgspec.structs.replace(data.payload, tree=None, tree_ref=store(tree))
    return msgspec.structs.replace(data, payload=payload)


def _oldest(role: kinds.Role, task: Task) -> Asked | None:
    return next((asked for asked in task.waiting.values() if asked.event.data.to == role), None)


line_max_chars: Final = 2_000
alternatives_max: Final = 8

# As JSON. The thoughts of a path were asked about in one event; beside each of its at most 65 nodes stand eight others.
alternative_size_max_bytes: Final = 512
answer_size_max_bytes: Final = 8_192
premises_size_max_bytes: Final = 16_384


def remembered(task: Task) -> list[Say]:
    """Return the reasoning of a finished task, one submission: all of it or nothing; nothing without a solution."""
    if task.started is None or task.tree is None or task.complete is None or task.solution is None:
        return []
    solution: kinds.Solution = task.solution.data.payload
    stream = f"reasoning/{task.id}"
    started = reasoning.ReasoningStarted(
        task=task.started.problem,
        ai_id="tot-orchestrator",
        reasoning_strategy=f"Tree of Thoughts, {task.tree.config.strategy}",
        domain=task.started.task_type,
    )
    steps = _steps(task, task.tree, task.complete.data.payload.best_path, solution)
    says = [Say("reasoning:started", started, [task.complete.id], stream)]
    for step, causes in steps:
        number = step.step_number
        rests_on = {number: [number - 1]} if number > 1 else {}
        extended = reasoning.ReasoningExtended(steps=[step], dependencies=rests_on)
        says.append(Say(f"reasoning:step:{number}", extended, causes, stream))
    concluded = reasoning.ReasoningConcluded(
        conclusion=solution.answer,
        confidence_in_reasoning=solution.confidence,
        known_limitations=solution.verification.validation_errors,
    )
    return [*says, Say("reasoning:concluded", concluded, [task.solution.id], stream)]


def _steps(
    task: Task, tree: TreeState, path: list[kinds.ThoughtNode], solution: kinds.Solution
) -> list[tuple[reasoning.Step, list[str]]]:
    steps: list[tuple[reasoning.Step, list[str]]] = []
    for number, node in enumerate(path, 1):
        kept = tree.nodes[node.id]
        evaluation = kept.evaluation
        causes = [ids[node.id] for ids in (task.added, task.judged) if node.id in ids]
        step = reasoning.Step(
            step_number=number,
            type="observation" if kept.parent_id is None else "inference",
            content=kept.content,
            alternatives_considered=_alternatives(tree, kept),
            confidence=1.0 if evaluation is None else evaluation.confidence,
        )
        steps.append((step, causes))
    causes = [] if task.solution is None else [task.solution.id]
    answer = _cut(solution.answer, answer_size_max_bytes)
    last = reasoning.Step(
        step_number=len(steps) + 1,
        type="conclusion",
        content=answer,
        premises=_first(solution.reasoning_trace, premises_size_max_bytes),
        confidence=solution.confidence,
        conclusion=answer,
    )
    return [*steps, (last, causes)]


def _alternatives(tree: TreeState, node: kinds.ThoughtNode) -> list[str]:
    if node.parent_id is None:
        return []
    others = [other for other in tree.nodes.values() if other.parent_id == node.parent_id and other.id != node.id]
    return [
        _cut(other.content, alternative_size_max_bytes) + (f" ({other.evaluation.score:g})" if other.evaluation else "")
        for other in others[:alternatives_max]
    ]


def _first(texts: list[str], size_max_bytes: int) -> list[str]:
    """Return as many texts, from the first on, as have so many bytes together."""
    kept: list[str] = []
    for text in texts:
        line = text[:line_max_chars]
        size_max_bytes -= _size(line)
        if size_max_bytes < 0:
            break
        kept.append(line)
    return kept


def _cut(text: str, size_max_bytes: int) -> str:
    """Return a text, its end left out if it has more bytes (as JSON, in which one character may have six)."""
    if _size(text) <= size_max_bytes:
        return text
    kept, size = 0, _size("…")
    while (size := size + _size(text[kept]) - 2) <= size_max_bytes:
        kept += 1
    return f"{text[:kept]}…"


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))
