"""What changes from one version of a reasoning graph to another: what a delta says (seed 001, "Delta Compression").

``ReasoningDelta`` has the seed's ``steps_added`` and ``assumptions_updated``, and whatever else may differ. It is
complete: between any two graphs, also backwards or to another graph altogether, there is one that turns the first into
the second. In the order of the log only the first group of its fields is ever needed.

Its JSON is short, because it is sent again and again: what is absent did not change, a step leaves out what has the
seed's default, and text stands as UTF-8. Whatever is left out comes back when the graph is hashed, so the short form
never decides what a ref covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ledger.events import reasoning as kinds
from projections.reasoning.memory import ReasoningStep

if TYPE_CHECKING:
    from collections.abc import Iterable


class SentStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A ``ReasoningStep`` as it is sent: ``step`` for its number, and no field that has its default."""

    step_number: int = msgspec.field(name="step")
    type: str
    content: str
    reasoning_type: str = ""
    evidence: list[str] = []
    premises: list[str] = []
    alternatives_considered: list[str] = []
    assumptions: list[str] = []
    confidence: float | UnsetType = UNSET
    needs_validation: bool | UnsetType = UNSET
    validation_method: str | UnsetType = UNSET
    conclusion: str | UnsetType = UNSET

    def whole(self) -> ReasoningStep:
        """Return the step with its defaults."""
        confidence = 1.0 if self.confidence is UNSET else self.confidence
        return ReasoningStep(**msgspec.structs.asdict(self) | {"confidence": confidence})


class ReasoningDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What changes; a field that is absent stays as it is.

    ``steps_added`` follow the steps that are kept, ``assumptions_updated`` says how each was settled (after what the
    step concluded before, as an update event does). ``steps_removed`` lose their dependencies too.
    """

    task: str | UnsetType = UNSET
    ai_id: str | UnsetType = UNSET
    reasoning_strategy: str | UnsetType = UNSET
    steps_added: list[SentStep] = []
    dependencies: dict[int, list[int]] = {}
    assumptions_updated: dict[int, str] = {}
    conclusion: str | UnsetType = UNSET
    confidence_in_reasoning: float | UnsetType = UNSET
    known_limitations: list[str] | UnsetType = UNSET
    steps_changed: list[SentStep] = []
    steps_removed: list[int] = []
    dependencies_removed: list[int] = []


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ReasoningDelta)


def encode_change(change: ReasoningDelta) -> bytes:
    """Return the short JSON of a change."""
    return _encoder.encode(change)


def decode_change(text: str | bytes) -> ReasoningDelta:
    """Return the change that ``encode_change`` wrote."""
    return _decoder.decode(text)


def sent_step(step: ReasoningStep) -> SentStep:
    """Return the step as it is sent."""
    return SentStep(**msgspec.structs.asdict(step) | {"confidence": sent_confidence(step.confidence)})


def sent_confidence(confidence: float) -> float | UnsetType:
    """Return a confidence as it is sent: not at all when it is the seed's default.

    ``omit_defaults`` would not do: it knows a default by its identity, and two floats of 1.0 are two objects.
    """
    return UNSET if confidence == 1.0 else confidence + 0.0  # -0.0 would be spelt differently


def change_of(data: Any) -> ReasoningDelta:
    """Return what the data of a ``reasoning.started``, ``.extended`` or ``.concluded`` changes; of others, nothing."""
    match data:
        case kinds.ReasoningStarted():
            return ReasoningDelta(
                task=data.task, ai_id=data.ai_id or UNSET, reasoning_strategy=data.reasoning_strategy or UNSET
            )
        case kinds.ReasoningConcluded():
            return ReasoningDelta(
                conclusion=data.conclusion,
                confidence_in_reasoning=data.confidence_in_reasoning + 0.0,  # -0.0 would be spelt differently
                known_limitations=data.known_limitations,
            )
        case kinds.ReasoningExtended():
            return ReasoningDelta(
                steps_added=_steps_of(data.steps),
                dependencies=data.dependencies,
                assumptions_updated=data.assumptions_updated,
            )
        case _:
            return ReasoningDelta()


def _steps_of(steps: Iterable[kinds.Step]) -> list[SentStep]:
    return [
        SentStep(
            step_number=step.step_number,
            type=step.type,
            content=step.content,
            reasoning_type=step.reasoning_type,
            evidence=step.evidence,
            premises=step.premises,
            alternatives_considered=step.alternatives_considered,
            assumptions=step.assumptions,
            confidence=sent_confidence(step.confidence),
            needs_validation=UNSET if step.needs_validation is None else step.needs_validation,
            validation_method=UNSET if step.validation_method is None else step.validation_method,
            conclusion=UNSET if step.conclusion is None else step.conclusion,
        )
        for step in steps
    ]
