"""A thinker for a task that needs no thinking here: no process of ours asks it.

``nobody`` thinks about a task whose user takes the best path as the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.thinkers import Path, claims_solution

NOBODY: Final = "nobody"

_ABSENT: Final = kinds.Failure(code="LLM_UNAVAILABLE", message="nothing thinks about this task here", recoverable=True)


class AbsentThinker:
    """A thinker whose every answer is a failure that pauses the task; see ``Thinker``."""

    problems = "no problem"
    checks = False
    language: kinds.Language = "en"

    def __init__(self, name: str) -> None:
        """Use ``name`` as the thinker's name in the log."""
        self.name: Final = name

    def reads(self, problem: str, task_type: str) -> bool:
        return False

    def decompose(self, problem: str, task_type: str) -> kinds.Failure:
        return _ABSENT

    def generate(self, path: Path, request: kinds.GeneratePayload) -> kinds.Failure:
        return _ABSENT

    def evaluate(self, paths: Sequence[Path], request: kinds.EvaluatePayload) -> kinds.Failure:
        return _ABSENT

    def is_solution(self, path: Path) -> bool:
        return claims_solution(path)

    def synthesize(self, request: kinds.SynthesizePayload) -> kinds.Failure:
        return _ABSENT
