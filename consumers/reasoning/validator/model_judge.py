"""A language model as the validator's judge: its verdicts in the validator's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.reasoning.validator.validator import Verdict
from consumers.sdk.llm.judge import LlmJudge, instructions_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.sdk.llm.model import LlmClient
    from ledger.events.validation import Opinion
    from projections.reasoning.memory import ReasoningStep

# A model that could not be asked says nothing: that is unsure, and the reason tells why.
_OPINIONS: Final[dict[str, Opinion]] = {"supported": "follows", "unsupported": "does_not_follow"}


class ModelJudge:
    """Asks a model about each inference; ``prompt_hash`` is of the instructions that are the same for all."""

    def __init__(self, client: LlmClient) -> None:
        """Ask ``client``."""
        self._judge = LlmJudge(client)
        self.model = client.model
        self.prompt_hash = f"sha256:{instructions_digest()}"

    def judge(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> Verdict:
        """Return whether the step follows from those it rests on; raises nothing."""
        said = self._judge.judge(step, deps)
        return Verdict(_OPINIONS.get(said.verdict, "unsure"), said.reason)
