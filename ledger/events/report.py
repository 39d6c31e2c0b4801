"""The epistemic handoff report: what a session learned, for whoever goes on.

The whole report stands in its event once; markdown and compressed JSON are derived from it (``projections.reports``).
A text that an entry cannot hold is shortened at a word and stands whole as a blob under its place in ``long_texts``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ledger.events.fields import Count, EventData, Label, Line, OptionalText, Ref, Text, Unit
from ledger.events.session import Vectors

ReportType = Literal["complete", "investigation", "planning", "preflight_only"]
Calibration = Literal["well_calibrated", "overconfident", "underconfident", "not_assessable"]
Change = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0, description="A difference of two values between 0 and 1.")]


class Deltas(EventData, frozen=True):
    """POSTFLIGHT minus PREFLIGHT for each vector assessed on both sides; 4 decimals."""

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
    """A text that stands whole as a blob; ``path`` is the JSON pointer of its short form in the report."""

    path: Label
    ref: Ref


class ReportGenerated(EventData, frozen=True):
    """A version of a session's report; the latest one counts, and all are kept.

    ``preflight`` and ``postflight`` are the assessments that the deltas are taken from, ``overall_confidence_before``
    and ``_after`` the means over vectors assessed on both sides (``is_overall_given``: the author's own values).
    """

    report_type: ReportType
    ai_id: str
    task_summary: Text
    key_findings: Annotated[list[Text], msgspec.Meta(min_length=1)]
    recommended_next_steps: Annotated[list[Text], msgspec.Meta(min_length=1)]
    calibration_status: Calibration
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
    generator: Label = "baton-report/1"
