"""What `record_reasoning` takes: one type of entry for each thing that an agent records, told apart by ``type``.

Entries of a session are its assessments, findings, unknowns, dead ends and tools, and its end; entries of a reasoning
are the five types of step, in one class: every session of an agent pays for the published schema. Types are strict and
unknown fields are refused: what is signed for ever is what was meant.
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
Words = Annotated[str, Field(max_length=40_000)]
Line = Annotated[str, Field(min_length=1, max_length=2_000)]
Lines = Annotated[list[Line], Field(max_length=64)]
Unit = Annotated[float, Field(ge=0, le=1)]
StepNumber = Annotated[int, Field(ge=1, le=1_000_000)]
Subject = Annotated[str, Field(max_length=2_000, description="The subject, as a module or topic.")]
Evidence = Annotated[Lines, Field(description="As path:line, path:5-9, path:line:text, REV:path:line, a URL or a ref.")]


class Entry(BaseModel):
    """One thing to record."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def made(self, kind: type[StructT], **others: Any) -> StructT:
        """Return a ``kind`` whose fields are those of the same name here, and ``others``."""
        same = {name: getattr(self, name) for name in kind.__struct_fields__ if name in type(self).model_fields}
        return kind(**same | others)


class SessionEntry(Entry):
    """One thing to record in a session."""

    kind: ClassVar[type[EventData]]

    def event(self) -> EventData:
        """Return the event that records it."""
        return self.made(self.kind)


class Assessment(SessionEntry):
    """How well you know, can and are sure; POSTFLIGHT makes the report."""

    kind = session_kinds.AssessmentRecorded
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
        """Return the event that records it, its vectors read."""
        return self.made(self.kind, vectors=read_vectors(dict(self.vectors)))


class Finding(SessionEntry):
    """Something you found out."""

    kind = session_kinds.FindingLogged
    type: Literal["finding"]
    finding: Text
    evidence: Evidence = []
    impact: Unit | None = None
    subject: Subject = ""


class Unknown(SessionEntry):
    """Something you do not know yet."""

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
    basis: Annotated[session_kinds.Basis | None, Field(description="argued: reasons only, it was not tried.")] = None


class ToolUse(SessionEntry):
    """A tool you used to find something out."""

    kind = session_kinds.ToolUsed
    type: Literal["tool"]
    tool: Annotated[str, Field(min_length=1, max_length=200)]
    purpose: Words = ""


class SessionEnd(SessionEntry):
    """The end of the session; its report can still be made."""

    kind = session_kinds.SessionEnded
    type: Literal["session_end"]
    summary: Words = ""


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
    """Alone in its call: a snapshot of the reasoning `ref`, its validation in the server's work tree, a human's review.

    Or take back the finding or dead end `ref` (its event_index), or resolve the unknown `ref`; `context` says why.
    """

    type: Literal["snapshot", "validation", "review", "retraction", "resolution"]
    ref: Line
    context: Words = ""


class Thoughts(Entry):
    """Alone in its call: search a tree of thoughts for `problem`, for minutes; or how the search `ref` stands."""

    type: Literal["thoughts"]
    problem: Words = ""
    task_type: Annotated[Line, Field(description="Or creative_writing, planning, debugging, architecture_design.")] = (
        "math_reasoning"
    )
    ref: Annotated[Words, Field(description="The task_id that the start gave.")] = ""
    resume: Annotated[bool, Field(description="Go on with one that is paused, or that nobody searches.")] = False
    after: Annotated[int, Field(ge=0, description="Only lines after this; default: the last ones.")] = 0

    @model_validator(mode="after")
    def check_which(self) -> Thoughts:
        """Refuse what neither begins a search nor asks about one."""
        if bool(self.problem.strip()) == bool(self.ref.strip()):
            raise ValueError("give a problem to begin a search, or its ref to ask how it stands")
        return self


AnyEntry = Annotated[
    Assessment | Finding | Unknown | DeadEnd | ToolUse | SessionEnd | Step | Alone | Thoughts,
    Field(discriminator="type"),
]
