"""What `record_reasoning` takes: one type of entry for each thing that an agent records, told apart by ``type``.

Entries of a session are its assessments, findings, unknowns, dead ends and tools, and its end; entries of a reasoning
are the five types of step, in one class: every session of an agent pays for the published schema. Types are strict and
unknown fields are refused: what is signed for ever is what was meant.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ledger.events import reasoning as reasoning_kinds
from ledger.events import session as session_kinds
from ledger.events.fields import EventData
from projections.snapshots.vectors import read_vectors

Text = Annotated[str, Field(min_length=1, max_length=40_000)]
Words = Annotated[str, Field(max_length=40_000)]
Line = Annotated[str, Field(min_length=1, max_length=2_000)]
Lines = Annotated[list[Line], Field(max_length=64)]
Unit = Annotated[float, Field(ge=0, le=1)]
StepNumber = Annotated[int, Field(ge=1, le=1_000_000)]
Subject = Annotated[str, Field(max_length=2_000, description="What it is about, as a module or a topic.")]
Evidence = Annotated[Lines, Field(description="As path:line, path:line:text or path:line:sha256:HEX.")]


class Entry(BaseModel):
    """One thing to record."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Assessment(Entry):
    """How well you know, can and are sure; POSTFLIGHT makes the report."""

    type: Literal["assessment"]
    phase: session_kinds.Phase
    vectors: Annotated[
        dict[str, float],
        Field(
            max_length=13,
            description="Some of engagement, know, do, context, clarity, coherence, signal, density, state, change,"
            " completion, impact, uncertainty; each 0 to 1. Leave out what you cannot assess.",
        ),
    ] = {}
    reasoning: Words = ""
    round: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    overall_confidence: Unit | None = None

    def event(self) -> EventData:
        """Return the event that records it.

        Raises:
            Refused: ``INVALID_FIELD`` for a vector that is none.
        """
        return session_kinds.AssessmentRecorded(
            phase=self.phase,
            vectors=read_vectors(dict(self.vectors)),
            reasoning=self.reasoning,
            round=self.round,
            overall_confidence=self.overall_confidence,
        )


class Finding(Entry):
    """Something you found out."""

    type: Literal["finding"]
    finding: Text
    evidence: Evidence = []
    impact: Unit | None = None
    subject: Subject = ""

    def event(self) -> EventData:
        """Return the event that records it."""
        return session_kinds.FindingLogged(
            finding=self.finding, evidence=self.evidence, impact=self.impact, subject=self.subject
        )


class Unknown(Entry):
    """Something you do not know yet."""

    type: Literal["unknown"]
    unknown: Text
    impact: Unit | None = None
    subject: Subject = ""

    def event(self) -> EventData:
        """Return the event that records it."""
        return session_kinds.UnknownLogged(unknown=self.unknown, impact=self.impact, subject=self.subject)


class DeadEnd(Entry):
    """An approach that failed, so that nobody tries it again."""

    type: Literal["dead_end"]
    approach: Text
    why_failed: Text
    impact: Unit | None = None
    subject: Subject = ""

    def event(self) -> EventData:
        """Return the event that records it."""
        return session_kinds.DeadEndLogged(
            approach=self.approach, why_failed=self.why_failed, impact=self.impact, subject=self.subject
        )


class ToolUse(Entry):
    """A tool you used to find something out."""

    type: Literal["tool"]
    tool: Annotated[str, Field(min_length=1, max_length=200)]
    purpose: Words = ""

    def event(self) -> EventData:
        """Return the event that records it."""
        return session_kinds.ToolUsed(tool=self.tool, purpose=self.purpose)


class SessionEnd(Entry):
    """The end of the session; its report can still be made."""

    type: Literal["session_end"]
    summary: Words = ""

    def event(self) -> EventData:
        """Return the event that records it."""
        return session_kinds.SessionEnded(summary=self.summary)


class Step(Entry):
    """A step of a reasoning: what you saw, what follows, what you assume or suppose, or what it all comes to."""

    type: reasoning_kinds.StepType
    content: Text
    evidence: Evidence = []
    rests_on: Annotated[
        list[StepNumber],
        Field(max_length=64, description="Numbers of earlier steps; a new reasoning counts from 1 in this order."),
    ] = []
    confidence: Unit = 1.0
    step: Annotated[StepNumber | None, Field(description="Its number; default: the next.")] = None
    reasoning_type: reasoning_kinds.ReasoningType = ""
    premises: Lines = []
    alternatives_considered: Lines = []
    assumptions: Lines = []
    needs_validation: Annotated[bool | None, Field(description="Default: of an assumption, yes.")] = None
    validation_method: Line | None = None
    known_limitations: Annotated[Lines, Field(description="Of a conclusion: where it may be wrong.")] = []

    @model_validator(mode="after")
    def check_limitations(self) -> Step:
        """Refuse limitations of anything but a conclusion: they would be lost."""
        if self.known_limitations and self.type != "conclusion":
            raise ValueError("known_limitations belong to a conclusion")
        return self

    def events(self, number: int) -> list[EventData]:
        """Return the events that record it under a number: an extension of one, and the conclusion it is, if it is."""
        is_assumption = self.type == "assumption"
        step = reasoning_kinds.Step(
            step_number=number,
            type=self.type,
            content=self.content,
            evidence=self.evidence,
            confidence=self.confidence,
            reasoning_type=self.reasoning_type,
            premises=self.premises,
            alternatives_considered=self.alternatives_considered,
            assumptions=self.assumptions,
            needs_validation=(is_assumption or None) if self.needs_validation is None else self.needs_validation,
            validation_method=self.validation_method,
        )
        rests_on = {number: self.rests_on} if self.rests_on else {}
        extended = reasoning_kinds.ReasoningExtended(steps=[step], dependencies=rests_on)
        if self.type != "conclusion":
            return [extended]
        concluded = reasoning_kinds.ReasoningConcluded(
            conclusion=self.content,
            confidence_in_reasoning=self.confidence,
            known_limitations=self.known_limitations,
        )
        return [extended, concluded]


SessionEntry = Assessment | Finding | Unknown | DeadEnd | ToolUse | SessionEnd
AnyEntry = Annotated[SessionEntry | Step, Field(discriminator="type")]
