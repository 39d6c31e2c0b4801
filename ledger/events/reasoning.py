"""Reasoning, step by step (seed 001): one step of an agent at work is an extension of one.

Field names are the seed's. ``domain`` stands on ``reasoning.started`` because it decides how much a receiver must
fetch; it is never part of the graph's own ref.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ledger.events.fields import Count, EventData, Label, Line, OptionalText, Ref, StepNumber, Text, Unit

StepType = Literal["observation", "inference", "assumption", "hypothesis", "conclusion"]
ReasoningType = Literal["", "deductive", "inductive", "abductive", "analogical"]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000, description="A number of tokens.")]


class Step(EventData, frozen=True):
    """One step of a reasoning graph (seed 001, ``ReasoningStep``)."""

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


class BriefFact(EventData, frozen=True):
    """One fact of a brief: byte-equal to the trimmed text of the step it names."""

    step: StepNumber
    text: Text
    evidence: list[Line] = []


class BriefTag(EventData, frozen=True):
    """A routing tag, its sort (finding, action, urgency, domain) and the step it was drawn from, if any."""

    tag: Annotated[str, msgspec.Meta(pattern=r"^[^\s\x00-\x1f]{1,80}\Z")]
    sort: Literal["finding", "action", "urgency", "domain"]
    step: StepNumber | None = None


class BriefFidelity(EventData, frozen=True):
    """How much of the graph's critical content the prompt keeps, measured; parts that do not exist are absent."""

    value: Unit
    band: Literal["lossless", "high", "medium", "low"]
    key_facts: Unit | None = None
    anchors: Unit | None = None
    edges: Unit | None = None
    cap: Unit = 1.0
    vetoes: list[Line] = []
    weights: dict[str, Unit] = {}
    metric: Label = "baton-lexical-1"


class ReasoningBriefed(EventData, frozen=True):
    """A brief of one version of a graph at one transfer level, made by a compressor."""

    reasoning_ref: Ref
    level: Literal["minimal", "standard", "full"]
    budget: Tokens
    prompt: Text
    tokens: Tokens
    full_tokens: Tokens
    exact: bool
    tokenizer: Label
    compressor: Label
    compressor_version: Label
    fidelity: BriefFidelity
    reasoning_brief: OptionalText = ""
    facts: list[BriefFact] = []
    tags: list[BriefTag] = []
    top_assumptions: list[Line] = []
    observations_summary: OptionalText = ""
    inferences_summary: OptionalText = ""
    conclusion_summary: OptionalText = ""
    evidence_count: Count = 0
    assumption_count: Count = 0
    dropped_steps: list[StepNumber] = []
    dropped_sections: list[Label] = []
    budget_needed: Tokens | None = None
