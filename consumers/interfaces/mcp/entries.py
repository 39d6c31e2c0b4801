"""The entries that `record_reasoning` takes: one type for each thing that an agent records, selected by ``type``.

Entries of a session are assessments, findings, unknowns, dead ends, tools and the end. Entries of a reasoning are the
five types of step, in one class, because every agent session pays for the published schema. Types are strict and
unknown fields are refused, because signed events can never be changed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from deedbook.ledger.events import reasoning as reasoning_kinds
from deedbook.ledger.events import session as session_kinds
from deedbook.ledger.events.fields import EventData
from deedbook.projections.snapshots.vectors import read_vectors

StructT = TypeVar("StructT", bound=msgspec.Struct)
Text = Annotated[str, Field(min_length=1, max_length=40_000)]
OptionalText = Annotated[str, Field(max_length=40_000)]
Line = Annotated[str, Field(min_length=1, max_length=2_000)]
Lines = Annotated[list[Line], Field(max_length=64)]
Unit = Annotated[float, Field(ge=0, le=1)]
StepNumber = Annotated[int, Field(ge=1, le=1_000_000)]
Subject = Annotated[str, Field(max_length=2_000, description="The topic, such as a module: src/auth.py.")]
Evidence = Annotated[
    Lines,
    Field(
        description="Each as path:line, path:5-9, path:line:text, REV:path:line, a URL or a ref; e.g. src/auth.py:5-7."
    ),
]


class Entry(BaseModel):
    """One thing to record."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def made(self, kind: type[StructT], **others: Any) -> StructT:
        """Return a ``kind`` with this entry's fields of the same names, and ``others``."""
        shared = {name: getattr(self, name) for name in kind.__struct_fields__ if name in type(self).model_fields}
        return kind(**shared | others)


class SessionEntry(Entry):
    """One thing to record in a session."""

    kind: ClassVar[type[EventData]]

    def event(self) -> EventData:
        """Return the event that records it."""
        return self.made(self.kind)


class Assessment(SessionEntry):
    """Your self-assessment: PREFLIGHT before the work, POSTFLIGHT after it, which also makes the report."""

    kind = session_kinds.AssessmentRecorded
    type: Literal["assessment"]
    phase: session_kinds.Phase
    vectors: Annotated[
        dict[str, float],
        Field(
            max_length=13,
            description="Some of engagement, know, do, context, clarity, coherence, signal, density, state, change,"
            ' completion, impact, uncertainty; each 0 to 1. Omit any you cannot assess. E.g. {"know": 0.3}.',
        ),
    ] = {}
    reasoning: OptionalText = ""
    round: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    overall_confidence: Unit | None = None

    def event(self) -> EventData:
        """Return the event that records it, with normalized vectors."""
        return self.made(self.kind, vectors=read_vectors(dict(self.vectors)))


class Finding(SessionEntry):
    """A fact that you found out."""

    kind = session_kinds.FindingLogged
    type: Literal["finding"]
    finding: Text
    evidence: Evidence = []
    impact: Unit | None = None
    subject: Subject = ""


class Unknown(SessionEntry):
    """A question that is still open."""

    kind = session_kinds.UnknownLogged
    type: Literal["unknown"]
    unknown: Text
    impact: Unit | None = None
    subject: Subject = ""


class DeadEnd(SessionEntry):
    """An approach that failed, so that nobody tries it again."""

    kind = session_kinds.DeadEndLogged
    type: Literal["dead_end"]
    approach: Text
    why_failed: Text
    impact: Unit | None = None
    subject: Subject = ""
    basis: Annotated[
        session_kinds.Basis | None, Field(description="tried, or argued: rejected for reasons without trying.")
    ] = None


class ToolUse(SessionEntry):
    """A tool you used to find something out."""

    kind = session_kinds.ToolUsed
    type: Literal["tool"]
    tool: Annotated[str, Field(min_length=1, max_length=200)]
    purpose: OptionalText = ""


class SessionEnd(SessionEntry):
    """The end of the session; a report can still be made later."""

    kind = session_kinds.SessionEnded
    type: Literal["session_end"]
    summary: OptionalText = ""


class Step(Entry):
    """A step of a reasoning: an observation, inference, assumption, hypothesis or the conclusion."""

    type: reasoning_kinds.StepType
    content: Text
    evidence: Evidence = []
    rests_on: Annotated[
        list[StepNumber],
        Field(
            max_length=64,
            description="Numbers of the earlier steps that support this one, e.g. [1, 2]; the first step is 1.",
        ),
    ] = []
    confidence: Unit = 1.0
    step: Annotated[StepNumber | None, Field(description="Its number; default: the next free number.")] = None
    reasoning_type: reasoning_kinds.ReasoningType = ""
    premises: Lines = []
    alternatives_considered: Lines = []
    assumptions: Lines = []
    needs_validation: Annotated[bool | None, Field(description="Default: true for an assumption.")] = None
    validation_method: Line | None = None
    known_limitations: Annotated[Lines, Field(description="For a conclusion only: where it may be wrong.")] = []

    @model_validator(mode="after")
    def check_limitations(self) -> Step:
        """Refuse limitations on a step that is not a conclusion, because they would be lost."""
        if self.known_limitations and self.type != "conclusion":
            raise ValueError("known_limitations are only for a conclusion")
        return self

    def events(self, number: int) -> list[EventData]:
        """Return the events that record the step under a number; a conclusion has a second event."""
        by_default = True if self.type == "assumption" else None
        needs_validation = by_default if self.needs_validation is None else self.needs_validation
        step = self.made(reasoning_kinds.Step, step_number=number, needs_validation=needs_validation)
        rests_on = {number: self.rests_on} if self.rests_on else {}
        extended = reasoning_kinds.ReasoningExtended(steps=[step], dependencies=rests_on)
        if self.type != "conclusion":
            return [extended]
        concluded = reasoning_kinds.ReasoningConcluded(
            conclusion=self.content, confidence_in_reasoning=self.confidence, known_limitations=self.known_limitations
        )
        return [extended, concluded]


class Alone(Entry):
    """Must be the only entry. snapshot: of the reasoning `ref`. validation: check it against the server's work tree.

    review: ask a human about it. retraction, resolution: of the finding, dead end or unknown with the event_index
    `ref`; `context` says why.
    """

    type: Literal["snapshot", "validation", "review", "retraction", "resolution"]
    ref: Line
    context: OptionalText = ""


class Thoughts(Entry):
    """Must be the only entry. Start a tree-of-thoughts search for `problem` (minutes), or get the state of `ref`."""

    type: Literal["thoughts"]
    problem: OptionalText = ""
    task_type: Annotated[Line, Field(description="Or creative_writing, planning, debugging, architecture_design.")] = (
        "math_reasoning"
    )
    ref: Annotated[OptionalText, Field(description="The task_id from the call that started it.")] = ""
    resume: Annotated[bool, Field(description="Continue the search `ref` if it is paused or no longer running.")] = (
        False
    )
    after: Annotated[int, Field(ge=0, description="Only log lines after this index; default: the latest lines.")] = 0

    @model_validator(mode="after")
    def check_which(self) -> Thoughts:
        """Refuse an entry with both or neither of ``problem`` and ``ref``."""
        if bool(self.problem.strip()) == bool(self.ref.strip()):
            raise ValueError("set either problem, to start a search, or ref, to get its state")
        return self


AnyEntry = Annotated[
    Assessment | Finding | Unknown | DeadEnd | ToolUse | SessionEnd | Step | Alone | Thoughts,
    Field(discriminator="type"),
]
