"""The kinds of a session: what an agent does and learns in it, and its report for the next agent.

The event holds the whole report once. Markdown and compressed JSON are derived from it (``projections.reports``).
A text too long for an entry is shortened at a word, and ``long_texts`` names the blob with the whole text.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from deedbook.ledger.events.fields import (
    Count,
    EventData,
    Label,
    Line,
    OptionalId,
    OptionalText,
    Ref,
    Statement,
    Text,
    Unit,
)

Phase = Literal["PREFLIGHT", "THINK", "PLAN", "INVESTIGATE", "CHECK", "ACT", "POSTFLIGHT"]
ReportType = Literal["complete", "investigation", "planning", "preflight_only"]
Basis = Literal["tried", "argued"]
Calibration = Literal["well_calibrated", "overconfident", "underconfident", "not_assessable"]
Change = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0, description="A difference of two values between 0 and 1.")]
Topic = Annotated[
    str, msgspec.Meta(description="The topic of this record. A handoff attaches only the records of its own topics.")
]
Impact = Annotated[Unit | None, msgspec.Meta(description="From 0 to 1.")]
Evidence = Annotated[
    list[Line], msgspec.Meta(description="Where it can be seen: path:line, path:5-9, REV:path:line, a URL or a ref.")
]


class Vectors(EventData, frozen=True):
    """The 13 epistemic vectors, each from 0 to 1. A vector that was not assessed is absent, never 0."""

    engagement: Unit | None = None
    know: Unit | None = None
    do: Unit | None = None
    context: Unit | None = None
    clarity: Unit | None = None
    coherence: Unit | None = None
    signal: Unit | None = None
    density: Unit | None = None
    state: Unit | None = None
    change: Unit | None = None
    completion: Unit | None = None
    impact: Unit | None = None
    uncertainty: Unit | None = None


class SessionStarted(EventData, frozen=True):
    """Starts the session named by the stream. From now on only its author writes to it."""

    task: Annotated[OptionalText, msgspec.Meta(description="The task.")] = ""
    ai_id: Annotated[str, msgspec.Meta(description="The label that reports are found by.")] = ""
    resumes: Annotated[OptionalId, msgspec.Meta(description="The session that this one continues.")] = ""


class AssessmentRecorded(EventData, frozen=True):
    """The agent's assessment of itself at one phase of its work."""

    phase: Annotated[Phase, msgspec.Meta(description="The phase of the work.")]
    vectors: Annotated[
        Vectors,
        msgspec.Meta(
            description="Those that you can assess, each from 0 to 1: engagement, know, do, context, clarity, "
            "coherence, signal, density, state, change, completion, impact, uncertainty."
        ),
    ]
    reasoning: Annotated[OptionalText, msgspec.Meta(description="Why these values.")] = ""
    round: Annotated[Count, msgspec.Meta(description="The round of work it belongs to.")] = 0
    overall_confidence: Annotated[Unit | None, msgspec.Meta(description="Instead of the mean of the vectors.")] = None


class FindingLogged(EventData, frozen=True):
    """Something the agent learned."""

    finding: Annotated[Statement, msgspec.Meta(description="What you found out.")]
    evidence: Evidence = []
    impact: Impact = None
    topic: Topic = ""


class UnknownLogged(EventData, frozen=True):
    """Something the agent does not know yet."""

    unknown: Annotated[Statement, msgspec.Meta(description="What you do not know yet.")]
    impact: Impact = None
    topic: Topic = ""


class DeadEndLogged(EventData, frozen=True):
    """A failed approach and the reason, so that nobody repeats it."""

    approach: Annotated[Statement, msgspec.Meta(description="The approach.")]
    why_failed: Annotated[Statement, msgspec.Meta(description="Why it failed.")]
    impact: Impact = None
    topic: Topic = ""
    basis: Annotated[
        Basis | None, msgspec.Meta(description="It was tried and failed, or not tried: arguments speak against it.")
    ] = None


class Correction(EventData, frozen=True):
    """The base of corrections of an earlier event of the session (``target``: its id). The first correction counts."""

    target: Ref


class FindingRetracted(Correction, frozen=True):
    """Retracts a finding."""

    reason: Statement


class DeadEndRetracted(Correction, frozen=True):
    """Retracts a dead end: the approach may be tried again."""

    reason: Statement


class UnknownResolved(Correction, frozen=True):
    """Gives the answer to an unknown."""

    answer: Statement


class ToolUsed(EventData, frozen=True):
    """A tool that the agent used to find something out."""

    tool: Annotated[Label, msgspec.Meta(description="Its name, at most 200 characters.")]
    purpose: Annotated[OptionalText, msgspec.Meta(description="The purpose.")] = ""
    topic: Topic = ""


class SessionEnded(EventData, frozen=True):
    """Ends the session."""

    summary: Annotated[OptionalText, msgspec.Meta(description="The outcome.")] = ""


class Deltas(EventData, frozen=True):
    """POSTFLIGHT minus PREFLIGHT for each vector assessed in both, with 4 decimals."""

    engagement: Change | None = None
    know: Change | None = None
    do: Change | None = None
    context: Change | None = None
    clarity: Change | None = None
    coherence: Change | None = None
    signal: Change | None = None
    density: Change | None = None
    state: Change | None = None
    change: Change | None = None
    completion: Change | None = None
    impact: Change | None = None
    uncertainty: Change | None = None
    overall_confidence: Change | None = None


class FilledGap(EventData, frozen=True):
    """A gap in knowledge that the session filled."""

    gap: Line
    before: Text
    after: Text
    confidence_change: Change | None = None


class LongText(EventData, frozen=True):
    """A long text, stored as a blob. ``path`` is the JSON pointer of its short form in the report."""

    path: Label
    ref: Ref


class LeftOut(EventData, frozen=True):
    """How many texts of a session are not in its report."""

    key_findings: Count = 0
    remaining_unknowns: Count = 0
    accomplished: Count = 0


class ReportGenerated(EventData, frozen=True):
    """A version of a session's report. The latest counts, and the log keeps all of them.

    The deltas are computed from the assessments ``preflight`` and ``postflight``. ``overall_confidence_before`` and
    ``_after`` are the means over vectors assessed in both (with ``is_overall_given``: the author's own values).
    ``task`` is the goal of the session, ``task_summary`` its result. ``left_out`` counts the texts that the session has
    and the report lacks.
    """

    blob_path = ("long_texts", "ref")

    report_type: ReportType
    ai_id: str
    task_summary: Text
    key_findings: Annotated[list[Text], msgspec.Meta(min_length=1)]
    calibration_status: Calibration
    recommended_next_steps: list[Text] = []
    task: OptionalText = ""
    accomplished: list[Text] = []
    knowledge_gaps_filled: list[FilledGap] = []
    remaining_unknowns: list[Text] = []
    investigation_tools: list[Label] = []
    next_session_context: OptionalText = ""
    artifacts_created: list[Line] = []
    epistemic_deltas: Deltas = Deltas()
    preflight: Vectors | None = None
    postflight: Vectors | None = None
    overall_confidence_before: Unit | None = None
    overall_confidence_after: Unit | None = None
    is_overall_given: bool = False
    duration_seconds: Count | None = None
    long_texts: list[LongText] = []
    left_out: LeftOut = LeftOut()
    generator: Label = "deedbook-report/1"
