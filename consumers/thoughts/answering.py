"""The four that answer: decomposer, generator, evaluator, synthesizer (seed 003, messages 1, 2, 3 and 5).

Each takes the oldest request that waits for its role, says that it begins, thinks, and answers; nothing else. What the
thinker cannot do becomes the message's ``error``. What happens if we crash here: the request still waits; the next
process of the role finds the line that was written, and answers under the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from consumers.thoughts.messages import decompose, respond
from consumers.thoughts.task import Asked, Say, Task, line
from ledger.events import tot as kinds

if TYPE_CHECKING:
    from consumers.thoughts.thinking import Thinker

message_max_chars: Final = 1_000

_BEGIN: Final[dict[kinds.Role, str]] = {
    "decomposer": "⏳ [Decomposer] 正在分解问题",
    "generator": "⏳ [Generator] 正在生成候选",
    "evaluator": "⏳ [Evaluator] 正在评估候选",
    "synthesizer": "⏳ [Synthesizer] 正在合成答案",
}


def answer(role: kinds.Role, task: Task, thinker: Thinker) -> list[Say]:
    """Return what ``role`` says next, one submission; nothing when no request waits for it."""
    asked = _oldest(role, task)
    if asked is None or task.is_over:
        return []
    id_ = asked.event.id
    if (role, id_) not in task.announced:
        return [line(role, task, id_, _BEGIN[role], [id_])]
    request = asked.event.data
    if isinstance(request, kinds.DecomposeTask):
        said = decompose(request, thinker)
    else:
        assert asked.tree is not None  # noqa: S101 - the gate lets nobody ask these before there is a search
        said = respond(asked.tree, request, thinker)
    return [Say(f"answer:{id_}", said.data, [id_])]


def refused(role: kinds.Role, task: Task, message: str) -> list[Say]:
    """Return the answer of ``role`` when the ledger did not take what its thinker thought: it was too much."""
    asked = _oldest(role, task)
    if asked is None:
        return []
    code = "GENERATION_FAILED" if role == "generator" else "INVALID_FORMAT"
    failure = kinds.Failure(code=code, message=message[:message_max_chars], recoverable=True)
    request = asked.event.data
    common: dict[str, Any] = {
        "sender": request.to,
        "to": request.sender,
        "task_id": request.task_id,
        "error": failure,
    }
    said: kinds.Message
    match request:
        case kinds.DecomposeTask():
            said = kinds.DecompositionResult(type="decomposition_result", **common)
        case kinds.GenerateThoughts():
            said = kinds.GeneratedThoughts(type="generated_thoughts", **common)
        case kinds.EvaluateThoughts():
            said = kinds.EvaluationResults(type="evaluation_results", **common)
        case _:
            said = kinds.FinalSolution(type="final_solution", **common)
    return [Say(f"answer:{asked.event.id}", said, [asked.event.id])]


def _oldest(role: kinds.Role, task: Task) -> Asked | None:
    return next((one for one in task.waiting.values() if one.event.data.to == role), None)
