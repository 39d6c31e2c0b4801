"""One shape for a report, wherever it comes from: a published event, a row of the view, or a report just made.

A report is signed and never changes; but whoever reads it must not go on from what its author no longer believes. What
its session took back or found out since is laid over it whenever it is read: struck in Markdown, and left out of what
others go on from (``uncorrected``). A text is known by its words, also where the report holds it shortened: one that
was told in other words for the report stands, and what was corrected stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from deedbook.ledger.events.session import (
    Calibration,
    Deltas,
    FilledGap,
    LongText,
    ReportGenerated,
    ReportType,
    Vectors,
)
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.records.marks import Imported

DERIVED: Final = "(Derived from the session's events.)"
# What begins a sentence of a derived context, or a next step, about an unknown or a dead end.
OPEN: Final = "Open: "
DEAD_END: Final = "Dead end: "
FIND_OUT: Final = "Find out: "


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What the session took back, or resolved: the ``text``, who did, when, and in which ``words``."""

    kind: str
    text: str
    author: str
    timestamp: str
    words: str
    event_index: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a session's report, with the event it stands in.

    ``report_id`` is the id of that event and ``timestamp`` the ledger's clock when it was accepted, or the time that
    an ``imported`` one claims. The deltas are POSTFLIGHT minus PREFLIGHT. ``long_texts`` name the blobs of texts that
    stand shortened here. ``task`` is what was to be done, empty where nobody said; ``task_summary`` what was done.
    ``corrections`` are no part of it: they are laid over it when it is read.
    """

    session_id: str
    report_id: str
    event_index: int
    ai_id: str
    author: str
    timestamp: str
    duration_seconds: int | None
    report_type: ReportType
    task: str
    task_summary: str
    epistemic_deltas: dict[str, float]
    key_findings: list[str]
    knowledge_gaps_filled: list[FilledGap]
    remaining_unknowns: list[str]
    investigation_tools: list[str]
    next_session_context: str
    recommended_next_steps: list[str]
    accomplished: list[str]
    artifacts_created: list[str]
    calibration_status: Calibration
    overall_confidence_before: float | None
    overall_confidence_after: float | None
    overall_confidence_delta: float | None
    is_overall_given: bool
    preflight: dict[str, float] | None
    postflight: dict[str, float] | None
    long_texts: list[LongText]
    generator: str
    imported: Imported | None = None
    corrections: list[Correction] = []

    @property
    def title(self) -> str:
        """What the work was about: its task, and where nobody said one, what came of it."""
        return self.task or self.task_summary

    @property
    def outcome(self) -> str:
        """What came of the task; empty where that is all that was said of it."""
        return "" if self.task_summary == self.title else self.task_summary


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
    """Return the report of an event: ``at_ms`` is when it happened (Unix milliseconds), by the ledger's clock."""
    # What the event says under the same name, and beside it what has to be read, or stands beside its data.
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
        "imported": imported,
        "preflight": None if data.preflight is None else assessed(data.preflight),
        "postflight": None if data.postflight is None else assessed(data.postflight),
    }
    return Report(**fields)


def plain(report: Report) -> dict[str, Any]:
    """Return a report as plain JSON values, every field present (None where there is nothing)."""
    made: dict[str, Any] = msgspec.to_builtins(report) | {"outcome": report.outcome}
    made["knowledge_gaps_filled"] = [msgspec.structs.asdict(gap) for gap in report.knowledge_gaps_filled]
    return made


def read_report(fields: Mapping[str, Any]) -> Report:
    """Return the report that ``plain`` made plain. Raises msgspec.ValidationError: the fields are not those of one."""
    return msgspec.convert(fields, Report)


def assessed(values: Vectors | Deltas) -> dict[str, float]:
    """Return the values that are there, by name, in the order of the kind; what is absent stays absent."""
    return {name: float(value) for name, value in msgspec.structs.asdict(values).items() if value is not None}


def is_same(whole: str, held: str) -> bool:
    """Return whether a report's text is this one, or what is left of it."""
    parts, place = held.strip().split("…"), 0
    if len(parts) == 1 or not whole.strip().startswith(parts[0].rstrip()):
        return held.strip() == whole.strip()
    for part in parts:
        place = whole.find(part.strip(), place) + len(part.strip())
        if place < len(part.strip()):
            return False
    return True


def uncorrected(report: Report) -> Report:
    """Return the report without what was corrected."""
    if not report.corrections:
        return report
    corrected = [one.text for one in report.corrections]

    def stands(text: str) -> bool:
        return not any(is_same(whole, text) for whole in corrected)

    context = report.next_session_context
    for beginning in (f"{what}{text.strip()}" for text in corrected for what in (OPEN, DEAD_END)):
        before, there, after = context.partition(beginning)
        context = f"{before.rstrip()} {after.lstrip('.').lstrip()}".strip() if there else context
    return msgspec.structs.replace(
        report,
        key_findings=list(filter(stands, report.key_findings)),
        remaining_unknowns=list(filter(stands, report.remaining_unknowns)),
        recommended_next_steps=[step for step in report.recommended_next_steps if stands(step.removeprefix(FIND_OUT))],
        knowledge_gaps_filled=[gap for gap in report.knowledge_gaps_filled if stands(gap.after)],
        next_session_context="" if context == DERIVED else context,
    )
