"""What a finished task leaves: a reasoning memory, ``reasoning/TASK``, which can be briefed and handed off.

Its steps are those of the best path, one for each node: the root as what was observed and the answer as the conclusion.
The events that made and judged a node are the causes of its step's event; its alternatives are the siblings not taken.
Everything is one submission, so what is long is cut to what that holds; the events among the causes say it whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from consumers.thoughts.task import AGENTS, Say, Task, TreeState
from ledger.events import reasoning
from ledger.events import tot as kinds

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
        ai_id=AGENTS["orchestrator"],
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
