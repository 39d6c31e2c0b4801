"""Makes a reasoning, ``reasoning/TASK``, from a finished task. It can have briefs and be handed off.

Its steps are the nodes of the best path: the root is the observation and the answer the conclusion. The events that
added and evaluated a node cause its step's event; the step's alternatives are the siblings that were not taken.
Everything is one submission, so long texts are cut to fit; the causing events have the whole texts.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.task import AGENTS, Step, Task, cut_to_bytes, json_size
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.fields import EventData

line_max_chars: Final = 2_000
alternatives_max: Final = 8

# Sizes as JSON. One request event had all thoughts of a path; each of its at most 65 nodes has eight siblings.
alternative_size_max_bytes: Final = 512
answer_size_max_bytes: Final = 8_192
premises_size_max_bytes: Final = 16_384


def remembered(task: Task) -> list[Step]:
    """Return the reasoning of a finished task as one submission; nothing without a solution."""
    if task.started is None or task.complete is None or task.solution is None:
        return []
    solution = task.solution.data.payload
    started = reasoning.ReasoningStarted(
        task=task.started.problem,
        ai_id=AGENTS["orchestrator"],
        domain=task.started.task_type,
        reasoning_strategy=f"Tree of Thoughts, {task.config.strategy}",
    )
    steps: list[tuple[str, EventData, list[str]]] = [("started", started, [task.complete.id])]
    for number, node in enumerate((task.nodes[node.id] for node in task.complete.data.payload.best_path), 1):
        step = reasoning.Step(
            step_number=number,
            type="inference" if node.parent_id else "observation",
            content=node.content,
            alternatives_considered=_alternatives(task, node),
            confidence=node.evaluation.confidence if node.evaluation else 1.0,
        )
        steps.append(_step(step, [ids[node.id] for ids in (task.added, task.judged) if node.id in ids]))
    answer = cut_to_bytes(solution.answer, answer_size_max_bytes)
    last = reasoning.Step(
        step_number=len(steps),
        type="conclusion",
        content=answer,
        conclusion=answer,
        confidence=solution.confidence,
        premises=_first(solution.reasoning_trace, premises_size_max_bytes),
    )
    checked = solution.verification
    by_model = [phrase(task.language, "by_model")] if checked.by == "model" else []
    concluded = reasoning.ReasoningConcluded(
        conclusion=solution.answer,
        confidence_in_reasoning=solution.confidence,
        known_limitations=by_model + checked.validation_errors,
    )
    steps += [_step(last, [task.solution.id]), ("concluded", concluded, [task.solution.id])]
    return [Step(data, causes, f"reasoning:{key}", f"reasoning/{task.id}") for key, data, causes in steps]


def _step(step: reasoning.Step, causes: list[str]) -> tuple[str, EventData, list[str]]:
    number = step.step_number
    rests_on = {number: [number - 1]} if number > 1 else {}
    return f"step:{number}", reasoning.ReasoningExtended(steps=[step], dependencies=rests_on), causes


def _alternatives(task: Task, node: kinds.ThoughtNode) -> list[str]:
    others = [other for other in task.nodes.values() if other.parent_id == node.parent_id and other.id != node.id]
    return [
        cut_to_bytes(other.content, alternative_size_max_bytes)
        + (f" ({other.evaluation.score:g})" if other.evaluation else "")
        for other in others[:alternatives_max]
    ]


def _first(texts: list[str], size_max_bytes: int) -> list[str]:
    """Return the first texts that have together at most ``size_max_bytes``."""
    lines = [text[:line_max_chars] for text in texts]
    return [line for line, size in zip(lines, accumulate(map(json_size, lines)), strict=True) if size <= size_max_bytes]
