"""The calling agent as the thinker: the tool answers its call with a question, and the next call answers that.

The questions are those for a model, but one question covers a whole request: all candidates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from deedbook.consumers.sdk.llm.reader import fit
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.thinkers import Path
from deedbook.consumers.thoughts.thinkers.llm import MISSING, MOVED, Question, QuestionThinker, storable
from deedbook.ledger.format.codec import convert, schema_error

AGENT: Final = "agent"

F = TypeVar("F", bound=msgspec.Struct)


class Asked(Exception):
    """A question that the calling agent has not answered."""

    def __init__(self, text: str, about: dict[str, Any]) -> None:
        """Ask ``text`` about the data ``about``."""
        super().__init__(text)
        self.text: Final = text
        self.about: Final = about


class CallingAgent(QuestionThinker):
    """A thinker whose answer to one request is given, or that raises ``Asked``; see ``Thinker``."""

    language: kinds.Language = "en"

    def __init__(self, name: str, answer: dict[str, Any] | None = None) -> None:
        """Use ``name`` (``agent:NAME``) as the thinker's name in the log."""
        self.name: Final = name
        self._answer = answer

    def generate(self, path: Path, request: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        return super().generate(path, replace(request, generation_strategy="sequential_proposal"))

    def evaluate(self, paths: Sequence[Path], request: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        return super().evaluate(paths, replace(request, evaluation_strategy="comparative_voting"))

    def _ask(self, questions: Sequence[Question[F]]) -> list[F] | kinds.Failure:
        """Return the calling agent's answer. Raises Asked: there is none yet. Refused: it cannot be used."""
        (question,) = questions
        if self._answer is None:
            raise Asked(question.text, question.about)
        try:
            answer = convert(fit(self._answer, inspect.type_info(question.form), MISSING, MOVED), question.form)
        except msgspec.ValidationError as error:
            raise schema_error(error) from error
        kept = question.keep(answer)
        storable(kept)
        return [kept]
