"""The one shape of a report, for a published event, a row of the view, and a report just made.

A report is signed and never changes, but its readers must not rely on statements that its author has retracted. So
corrections of its session are applied whenever it is read: struck through in Markdown, and left out of texts that
others build on (``uncorrected``). A text is recognised by its words, also if the report has it shortened. A text that
the report paraphrases stays, with the correction beside it. A text that the session states again, in an entry that
still stands, is not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from deedbook.ledger.events.session import (
    Calibration,
    Deltas,
    LeftOut,
    LongText,
    ReportGenerated,
    ReportType,
    Vectors,
)
from deedbook.ledger.format.codec import convert
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.answer import Answer, Index, Marked, Untrusted
from deedbook.projections.records.marks import Imported
from deedbook.projections.sessions.answers import CorrectionKind

DERIVED: Final = "(Derived from the session's events.)"
# The beginnings of sentences about an unknown or a dead end, in a derived context or a next step.
OPEN: Final = "Open: "
DEAD_END: Final = "Dead end: "
FIND_OUT: Final = "Find out: "


class ReportCorrection(Marked, frozen=True, kw_only=True):
    """A retraction or resolution by the session: the ``text``, its author, the time, and the ``words``."""

    kind: CorrectionKind
    text: Untrusted
    author: str
    timestamp: str
    words: Untrusted
    event_index: Index


class ReportedGap(Answer, frozen=True, kw_only=True):
    """A gap in knowledge that a session filled: what it knew before and after."""

    gap: Untrusted
    before: Untrusted
    after: Untrusted
    confidence_change: float | None


class Report(Marked, frozen=True, kw_only=True):
    """A version of a session's report, with its event.

    ``report_id`` is the id of that event. ``timestamp`` is the ledger's clock at acceptance, or the time that an
    ``imported`` report claims. The deltas are POSTFLIGHT minus PREFLIGHT. ``long_texts`` name the blobs of texts that
    are shortened here; ``left_out`` counts the session's texts that it lacks. ``task`` is the task, or empty;
    ``task_summary`` is what was done. ``corrections`` are not part of the report: they are added when it is read.
    """

    session_id: str
    report_id: str
    event_index: Index
    ai_id: Untrusted
    author: str
    timestamp: str
    duration_seconds: int | None
    report_type: ReportType
    task: Untrusted
    task_summary: Untrusted
    epistemic_deltas: dict[str, float]
    key_findings: list[Untrusted]
    knowledge_gaps_filled: list[ReportedGap]
    remaining_unknowns: list[Untrusted]
    investigation_tools: list[Untrusted]
    next_session_context: Untrusted
    recommended_next_steps: list[Untrusted]
    accomplished: list[Untrusted]
    artifacts_created: list[Untrusted]
    calibration_status: Calibration
    overall_confidence_before: float | None
    overall_confidence_after: float | None
    overall_confidence_delta: float | None
    is_overall_given: bool
    preflight: dict[str, float] | None
    postflight: dict[str, float] | None
    long_texts: list[LongText]
    left_out: LeftOut = LeftOut()
    generator: Untrusted
    imported: Imported | None = None
    corrections: list[ReportCorrection] = []

    @property
    def title(self) -> str:
        """The task, or if there is none, the outcome."""
        return self.task or self.task_summary

    @property
    def outcome(self) -> str:
        """The outcome of the task; empty if it is the title."""
        return "" if self.task_summary == self.title else self.task_summary


class ListedReport(Report, frozen=True, kw_only=True):
    """A report with its outcome, as lists and the stored versions have it."""

    outcome: Untrusted


def report_of(  # noqa: PLR0917 - the order is that of an event's parts
    session_id: str,
    event_id: str,
    index: int,
    author: str,
    at_ms: int,
    data: ReportGenerated,
    *,
    imported: Imported | None = None,
) -> Report:
    """Return the report of an event; ``at_ms`` is when it happened (Unix ms), by the ledger's clock."""
    # Fields with the same name in the event's data, then those that are computed or come from the envelope.
    fields = {name: getattr(data, name) for name in Report.__struct_fields__ if hasattr(data, name)}
    deltas = assessed(data.epistemic_deltas)
    fields |= {
        "session_id": session_id,
        "report_id": event_id,
        "event_index": index,
        "ai_id": data.ai_id or author,
        "author": author,
        "timestamp": clock_text(at_ms),
        "epistemic_deltas": deltas,
        "overall_confidence_delta": deltas.get("overall_confidence"),
        "knowledge_gaps_filled": [ReportedGap(**msgspec.structs.asdict(gap)) for gap in data.knowledge_gaps_filled],
        "imported": imported,
        "preflight": None if data.preflight is None else assessed(data.preflight),
        "postflight": None if data.postflight is None else assessed(data.postflight),
    }
    return Report(**fields)


def fields_of(report: Report) -> dict[str, Any]:
    """Return the fields of a report with its outcome."""
    return msgspec.structs.asdict(report) | {"outcome": report.outcome}


def plain(report: Report) -> dict[str, Any]:
    """Return a report as plain JSON values, with every field (None if empty)."""
    return ListedReport(**fields_of(report)).to_dict()


def read_report(fields: Mapping[str, Any]) -> Report:
    """Return the report of plain values. Raises msgspec.ValidationError: they are not those of a report."""
    return convert(fields, Report)


def assessed(values: Vectors | Deltas) -> dict[str, float]:
    """Return the assessed values by name, in the order of the kind; others are absent."""
    return {name: float(value) for name, value in msgspec.structs.asdict(values).items() if value is not None}


def is_same(whole: str, text: str) -> bool:
    """Return whether a report's text is this one, or a shortened form of it."""
    parts, position = text.strip().split("…"), 0
    if len(parts) == 1 or not whole.strip().startswith(parts[0].rstrip()):
        return text.strip() == whole.strip()
    for part in parts:
        position = whole.find(part.strip(), position) + len(part.strip())
        if position < len(part.strip()):
            return False
    return True


def uncorrected(report: Report) -> Report:
    """Return the report without the corrected statements."""
    if not report.corrections:
        return report
    corrected = [correction.text for correction in report.corrections]

    def is_uncorrected(text: str) -> bool:
        return not any(is_same(whole, text) for whole in corrected)

    context = report.next_session_context
    for beginning in (f"{label}{text.strip()}" for text in corrected for label in (OPEN, DEAD_END)):
        before, is_found, after = context.partition(beginning)
        context = f"{before.rstrip()} {after.lstrip('.').lstrip()}".strip() if is_found else context
    return msgspec.structs.replace(
        report,
        key_findings=list(filter(is_uncorrected, report.key_findings)),
        remaining_unknowns=list(filter(is_uncorrected, report.remaining_unknowns)),
        recommended_next_steps=[
            step for step in report.recommended_next_steps if is_uncorrected(step.removeprefix(FIND_OUT))
        ],
        knowledge_gaps_filled=[gap for gap in report.knowledge_gaps_filled if is_uncorrected(gap.after)],
        next_session_context="" if context == DERIVED else context,
    )
