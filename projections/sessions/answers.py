"""The types of answers about sessions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.session import Basis, Calibration, Deltas, Phase, ReportType, Vectors
from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Untrusted
from deedbook.projections.records.marks import Imported

SessionStatus: TypeAlias = Literal["open", "ended", "imported"]
StatementType: TypeAlias = Literal["finding", "unknown", "dead_end"]
CorrectionKind: TypeAlias = Literal["finding.retracted", "dead_end.retracted", "unknown.resolved"]
Unit = Annotated[float, msgspec.Meta(description="A value from 0 to 1.")]
Bias = Annotated[
    float,
    msgspec.Meta(
        description="How much knowledge grew, less how much uncertainty fell: negative is overconfident. "
        "Null: one of them was not assessed before and after."
    ),
]


class SessionHead(Marked, frozen=True, kw_only=True):
    """A session. ``ended_*`` are null while it is open, and ``resumes`` is the id of the session that it continues.

    The ``author`` of an imported session is its importer, and ``ai_id`` the agent that is said to have worked.
    ``happened_ms`` is the time to show: the start, or the time that an imported session claims, 0 if it claims none.
    """

    id: str
    author: str
    ai_id: Untrusted
    task: Untrusted
    resumes: str
    status: SessionStatus
    summary: Untrusted
    started_index: Index
    started_ms: Ms
    ended_index: Index | None
    ended_ms: Ms | None
    updated_index: Index
    happened_ms: Ms
    imported: Imported | None


class SessionLine(SessionHead, frozen=True, kw_only=True):
    """A session in a list, with the numbers of recorded things. Retracted and resolved ones are not counted."""

    assessments: int
    findings: int
    unknowns: int
    dead_ends: int
    tools: int


class RecordCounts(Answer, frozen=True, kw_only=True):
    """The numbers of things recorded in a session, as in a list: retracted and resolved ones are not counted."""

    assessments: int
    findings: int
    unknowns: int
    dead_ends: int
    tools: int


class AppliedCorrection(Marked, frozen=True, kw_only=True):
    """The retraction of a finding or dead end, or the answer to an unknown. ``words`` are the reason or the answer."""

    kind: CorrectionKind
    event_index: Index
    author: str
    words: Untrusted
    happened_ms: Ms


class RecordedThing(Marked, frozen=True, kw_only=True):
    """A thing that an agent recorded in its session.

    ``at`` is the author's clock. ``happened_ms`` is the ledger's clock, or the time that an imported
    record claims, 0 if it claims none.
    """

    event_index: Index
    at: str
    accepted_ms: Ms
    happened_ms: Ms


class RecordedAssessment(RecordedThing, frozen=True, kw_only=True):
    """An assessment of an agent by itself. A vector that was not assessed is absent."""

    phase: Phase
    round: int
    reasoning: Untrusted
    overall_confidence: Unit | None
    vectors: Vectors


class RecordedStatement(RecordedThing, frozen=True, kw_only=True):
    """A statement; ``correction`` is null if it is still in force."""

    impact: Unit | None
    topic: Untrusted
    correction: AppliedCorrection | None


class RecordedFinding(RecordedStatement, frozen=True, kw_only=True):
    """Something that an agent learned."""

    finding: Untrusted
    evidence: list[Untrusted]


class RecordedUnknown(RecordedStatement, frozen=True, kw_only=True):
    """Something that an agent does not know."""

    unknown: Untrusted


class RecordedDeadEnd(RecordedStatement, frozen=True, kw_only=True):
    """A failed approach."""

    approach: Untrusted
    why_failed: Untrusted
    basis: Basis | None


class StatementLine(Marked, frozen=True, kw_only=True):
    """A finding, unknown or dead end in a list over sessions.

    ``agent`` is the author, or the agent that an imported record claims; ``author`` signed it. ``detail`` says why an
    approach failed, and is empty otherwise. ``task`` is that of the session, and ``imported`` the origin of an imported
    session. ``correction`` is null if it is still in force.
    """

    type: StatementType
    text: Untrusted
    detail: Untrusted
    event_index: Index
    session_id: str
    task: Untrusted
    agent: Untrusted
    author: str
    accepted_ms: Ms
    happened_ms: Ms
    impact: Unit | None
    topic: Untrusted
    imported: Imported | None
    correction: AppliedCorrection | None


class RecordedTool(RecordedThing, frozen=True, kw_only=True):
    """A tool that an agent used, and its purpose."""

    tool: Untrusted
    purpose: Untrusted
    topic: Untrusted


class ShownSession(SessionHead, frozen=True, kw_only=True):
    """A session with everything recorded in it, in the order of the log."""

    counts: RecordCounts
    assessments: list[RecordedAssessment]
    findings: list[RecordedFinding]
    unknowns: list[RecordedUnknown]
    dead_ends: list[RecordedDeadEnd]
    tools: list[RecordedTool]


class TrajectoryPoint(RecordedAssessment, frozen=True, kw_only=True):
    """An assessment, and its ``changes`` since the last assessment of each vector."""

    changes: Deltas


class Trajectory(Marked, frozen=True, kw_only=True):
    """The movement of a session's vectors: all assessments in order, and a comparison of PREFLIGHT and POSTFLIGHT.

    The comparison is that of the session's report, which would have the type ``report_type``. A vector that was not
    assessed on both sides is absent from ``deltas``. ``is_overall_given``: the agent gave its overall confidence, which
    is otherwise a mean of its vectors.
    """

    session_id: str
    points: list[TrajectoryPoint]
    report_type: ReportType
    deltas: Deltas
    overall_confidence_before: Unit | None
    overall_confidence_after: Unit | None
    is_overall_given: bool
    calibration_status: Calibration
    bias: Bias | None
