"""What an agent does and learns in one session."""

from __future__ import annotations

from typing import Literal

from ledger.events.fields import Count, EventData, Label, Line, OptionalText, Text, Unit

Phase = Literal["PREFLIGHT", "THINK", "PLAN", "INVESTIGATE", "CHECK", "ACT", "POSTFLIGHT"]


class Vectors(EventData, frozen=True):
    """The 13 epistemic vectors, each 0 to 1; one that was not assessed is absent, never 0."""

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
    """Opens the session named by the stream; from now on only its author writes to it."""

    task: OptionalText = ""
    ai_id: str = ""
    resumes: str = ""


class AssessmentRecorded(EventData, frozen=True):
    """The agent's own assessment at one phase of its work."""

    phase: Phase
    vectors: Vectors
    reasoning: OptionalText = ""
    round: Count = 0
    overall_confidence: Unit | None = None


class FindingLogged(EventData, frozen=True):
    """Something the agent learned."""

    finding: Text
    evidence: list[Line] = []
    impact: Unit | None = None
    subject: str = ""


class UnknownLogged(EventData, frozen=True):
    """Something the agent does not know yet."""

    unknown: Text
    impact: Unit | None = None
    subject: str = ""


class DeadEndLogged(EventData, frozen=True):
    """An approach that failed, and why: so that nobody tries it again."""

    approach: Text
    why_failed: Text
    impact: Unit | None = None
    subject: str = ""


class ToolUsed(EventData, frozen=True):
    """A tool the agent used to find something out."""

    tool: Label
    purpose: OptionalText = ""


class SessionEnded(EventData, frozen=True):
    """Closes the session."""

    summary: OptionalText = ""
