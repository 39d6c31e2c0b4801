"""Reasoning, step by step: one step of an agent at work is an extension of one.

``domain`` stands on ``reasoning.started`` because it decides how much a receiver must fetch; it is never part of the
graph's own ref.
"""

from __future__ import annotations

from typing import Literal

from ledger.events.brief import Brief, Prose, Tokens
from ledger.events.fields import EventData, Line, OptionalText, StepNumber, Text, Unit

StepType = Literal["observation", "inference", "assumption", "hypothesis", "conclusion"]
ReasoningType = Literal["", "deductive", "inductive", "abductive", "analogical"]


class Step(EventData, frozen=True):
    """One step of a reasoning graph."""

    step_number: StepNumber
    type: StepType
    content: Text
    reasoning_type: ReasoningType = ""
    evidence: list[Line] = []
    premises: list[Line] = []
    alternatives_considered: list[Line] = []
    assumptions: list[Line] = []
    confidence: Unit = 1.0
    needs_validation: bool | None = None
    validation_method: Line | None = None
    conclusion: Text | None = None


class ReasoningStarted(EventData, frozen=True):
    """Opens the reasoning named by the stream; from now on only its author extends it."""

    task: Text
    ai_id: str = ""
    reasoning_strategy: str = ""
    domain: str = ""
    session: str = ""


class ReasoningExtended(EventData, frozen=True):
    """The delta between two versions of a graph: steps added, what they rest on, assumptions settled."""

    steps: list[Step] = []
    dependencies: dict[StepNumber, list[StepNumber]] = {}
    assumptions_updated: dict[StepNumber, Line] = {}


class ReasoningConcluded(EventData, frozen=True):
    """What the reasoning comes to, and where it may be wrong."""

    conclusion: Text
    confidence_in_reasoning: Unit = 1.0
    known_limitations: list[Line] = []


class ReasoningBriefed(EventData, frozen=True):
    """A brief of one version of a graph, made by a compressor, and the prompt it renders to at its own level.

    ``prose`` is what a language model wrote beside the facts, if one is configured; ``prose_missing`` says why there
    is none although one is. Gates and fidelity see the facts only.
    """

    brief: Brief
    prompt: Text
    tokens: Tokens
    prose: Prose | None = None
    prose_missing: OptionalText = ""
