"""The generator of handoff reports: what a session's events and its author's words come to (seed 004, "Key Methods").

Pure functions with the seed's rules and thresholds, and the seed's class as a way to call them by its names. Rules:

- what was not assessed is not compared: where the seed reads a missing vector as 0 or 1, no gap is claimed here and
  nothing is recommended (DESIGN §11);
- differences are rounded to 4 decimals before they are compared with a threshold;
- recommendations are never empty: a session about which nothing is remarkable goes on as planned;
- without a POSTFLIGHT the recommendations rest on the vectors that were assessed last.

Nothing here writes: ``publishing`` makes an event of what is generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sessions.reports.inputs import ReportInputs, check_told, told_by
from ledger.author import now
from ledger.codec import converted
from ledger.events.report import Deltas, FilledGap, ReportGenerated
from ledger.events.session import Vectors
from projections.reports.calibration import compare, decimals, ends_of
from projections.reports.compressed import compressed_of
from projections.reports.markdown import markdown_of
from projections.reports.report import Report, plain, report_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from consumers.sessions.reports.inputs import Told
    from ledger.client import Ask
    from projections.reports.calibration import Ends

know_gain_min: Final = 0.15
uncertainty_fall_min: Final = 0.20
uncertain_above: Final = 0.40
ready_uncertainty_below: Final = 0.30
ready_know_above: Final = 0.80

GO_ON: Final = "Continue with planned next steps"
_LEARNED: Final = ("learned", "discovered")


def generate(shown: Mapping[str, Any], given: ReportInputs, accomplished: Sequence[str]) -> ReportGenerated:
    """Return the report of a session: ``shown`` is the answer of ``sessions.show``.

    Raises:
        Refused: ``INVALID_FIELD`` without a task or a finding, given or logged (see ``inputs``).
    """
    return _made(shown, check_told(told_by(shown, given, accomplished)))


def unreported(shown: Mapping[str, Any]) -> ReportGenerated:
    """Return what a session without a report can tell of itself; it may lack a task and findings, and is no event."""
    return _made(shown, told_by(shown, ReportInputs(), ()))


def _made(shown: Mapping[str, Any], told: Told) -> ReportGenerated:
    ends = ends_of(shown["assessments"])
    before, after = _vectors(ends.preflight), _vectors(ends.postflight)
    compared = compare(before, after, given_before=_overall(ends.preflight), given_after=_overall(ends.postflight))
    return ReportGenerated(
        report_type=ends.report_type,
        ai_id=shown["ai_id"] or shown["author"],
        task_summary=told.task_summary,
        key_findings=told.key_findings,
        recommended_next_steps=recommend(latest_vectors(shown, ends), told.remaining_unknowns, compared.status),
        calibration_status=compared.status,
        accomplished=told.accomplished,
        knowledge_gaps_filled=identify_filled_gaps(before or {}, after or {}, told.key_findings),
        remaining_unknowns=told.remaining_unknowns,
        investigation_tools=told.tools,
        next_session_context=told.next_session_context,
        artifacts_created=told.artifacts_created,
        epistemic_deltas=Deltas(**compared.deltas),
        preflight=None if before is None else Vectors(**before),
        postflight=None if after is None else Vectors(**after),
        overall_confidence_before=compared.overall_before,
        overall_confidence_after=compared.overall_after,
        is_overall_given=compared.is_overall_given,
        duration_seconds=duration_of(shown),
    )


def identify_filled_gaps(
    before: Mapping[str, float], after: Mapping[str, float], findings: Sequence[str]
) -> list[FilledGap]:
    """Return the gaps that a session filled (seed: ``_identify_filled_gaps``)."""
    gaps: list[FilledGap] = []
    gained, fell = _difference(before, after, "know"), _difference(after, before, "uncertainty")
    if gained is not None and gained >= know_gain_min:
        gaps.append(_filled("Domain knowledge", "know", before, after, gained))
    if fell is not None and fell >= uncertainty_fall_min:
        gaps.append(_filled("Task uncertainty", "uncertainty", before, after, fell))
    told = [finding for finding in findings if any(word in finding.lower() for word in _LEARNED)]
    return gaps + [FilledGap(gap="Investigation finding", before="Unknown", after=finding) for finding in told]


def recommend(vectors: Mapping[str, float], unknowns: Sequence[str], status: str) -> list[str]:
    """Return the next steps that follow from where a session stands (seed: ``_generate_recommendations``)."""
    steps: list[str] = []
    uncertainty, know = vectors.get("uncertainty"), vectors.get("know")
    if uncertainty is not None and uncertainty > uncertain_above:
        steps.append("Continue investigation - uncertainty still elevated")
    if unknowns:
        steps.append(f"Address {len(unknowns)} remaining unknowns")
    if status == "overconfident":
        steps.append("Validate assumptions - showing overconfidence pattern")
    elif status == "underconfident":
        steps.append("Consider execution - showing underconfidence pattern")
    is_certain = uncertainty is not None and uncertainty < ready_uncertainty_below
    if is_certain and know is not None and know > ready_know_above:
        steps.append("Ready for execution - strong epistemic foundation")
    return steps or [GO_ON]


def latest_vectors(shown: Mapping[str, Any], ends: Ends) -> dict[str, float]:
    """Return the vectors that recommendations rest on: POSTFLIGHT's, else those assessed last."""
    if ends.postflight is not None:
        return dict(ends.postflight["vectors"])
    assessed = [one["vectors"] for one in shown["assessments"] if one["vectors"]]
    return dict(assessed[-1]) if assessed else {}


def last_ms_of(shown: Mapping[str, Any]) -> int:
    """Return when a session ended, else when something last happened in it (the ledger's clock)."""
    if shown["ended_ms"] is not None:
        return int(shown["ended_ms"])
    logged = (shown[name] for name in ("assessments", "findings", "unknowns", "dead_ends", "tools"))
    return int(max((one["happened_ms"] for events in logged for one in events), default=shown["happened_ms"]))


def duration_of(shown: Mapping[str, Any]) -> int:
    """Return how long a session took, in seconds."""
    return int(max(0, last_ms_of(shown) - shown["happened_ms"]) // 1000)


class EpistemicHandoffReportGenerator:
    """The seed's generator: makes reports of the sessions of one ledger, and stores none of them."""

    def __init__(self, answer: Ask | None = None) -> None:
        """Read sessions through ``answer`` (as ``Reader.answer``), by default from the ledger that settings name."""
        self._answer = answer

    def generate_handoff_report(  # noqa: PLR0917 - the seed's signature
        self,
        session_id: str,
        task_summary: str | None = None,
        key_findings: list[str] | None = None,
        remaining_unknowns: list[str] | None = None,
        next_session_context: str | None = None,
        artifacts_created: list[str] | None = None,
    ) -> dict[str, Any]:
        """Return the seed's report with ``markdown`` and ``compressed_json``; what is None is derived.

        Raises:
            Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``INVALID_FIELD`` (see ``generate``).
        """
        given = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
        if self._answer is None:
            from consumers.sessions.reports.opening import open_ledger  # noqa: PLC0415 - a given view opens nothing

            with open_ledger() as opened:
                return _generated(opened.answer, session_id, given)
        return _generated(self._answer, session_id, given)

    @staticmethod
    def _identify_filled_gaps(
        preflight_vectors: Mapping[str, float], postflight_vectors: Mapping[str, float], key_findings: Sequence[str]
    ) -> list[dict[str, Any]]:
        gaps = identify_filled_gaps(preflight_vectors, postflight_vectors, key_findings)
        return [{name: getattr(gap, name) for name in FilledGap.__struct_fields__} for gap in gaps]

    @staticmethod
    def _generate_recommendations(
        postflight_vectors: Mapping[str, float], remaining_unknowns: Sequence[str], calibration: Mapping[str, str]
    ) -> list[str]:
        return recommend(postflight_vectors, remaining_unknowns, calibration["status"])

    @staticmethod
    def _compress_report(report: Mapping[str, Any]) -> str:
        """Return the seed's compressed JSON of a report, which may lack fields."""
        known = {name: value for name, value in report.items() if name in Report.__struct_fields__}
        return compressed_of(msgspec.convert(_EMPTY | known, Report))


def inputs_of(
    task_summary: str | None,
    key_findings: list[str] | None,
    remaining_unknowns: list[str] | None,
    next_session_context: str | None,
    artifacts_created: list[str] | None,
) -> ReportInputs:
    """Return what somebody gave, checked.

    Raises:
        Refused: ``INVALID_FIELD`` for a value of another type, as one text where a list is asked for.
    """
    given = {
        "task_summary": task_summary,
        "key_findings": key_findings,
        "remaining_unknowns": remaining_unknowns,
        "next_session_context": next_session_context,
        "artifacts_created": artifacts_created,
    }
    return converted(given, ReportInputs)


_EMPTY: Final[dict[str, Any]] = {
    "session_id": "",
    "report_id": "",
    "event_index": 0,
    "ai_id": "unknown",
    "author": "",
    "timestamp": "",
    "duration_seconds": None,
    "report_type": "planning",
    "task_summary": "",
    "epistemic_deltas": {},
    "key_findings": [],
    "knowledge_gaps_filled": [],
    "remaining_unknowns": [],
    "investigation_tools": [],
    "next_session_context": "",
    "recommended_next_steps": [],
    "accomplished": [],
    "artifacts_created": [],
    "calibration_status": "not_assessable",
    "overall_confidence_before": None,
    "overall_confidence_after": None,
    "overall_confidence_delta": None,
    "is_overall_given": False,
    "preflight": None,
    "postflight": None,
    "long_texts": [],
    "generator": "",
}


def _generated(answer: Ask, session_id: str, given: ReportInputs) -> dict[str, Any]:
    shown = answer("sessions.show", {"id": session_id})
    accomplished = answer("reports.accomplished", {"id": shown["id"]})["accomplished"]
    report = report_of(shown["id"], "", 0, shown["author"], 0, generate(shown, given, accomplished))
    report = msgspec.structs.replace(report, timestamp=now())
    return plain(report) | {"markdown": markdown_of(report), "compressed_json": compressed_of(report)}


def _vectors(assessment: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if assessment is None else dict(assessment["vectors"])


def _overall(assessment: Mapping[str, Any] | None) -> float | None:
    return None if assessment is None else assessment["overall_confidence"]


def _difference(low: Mapping[str, float], high: Mapping[str, float], name: str) -> float | None:
    return round(high[name] - low[name], decimals) if name in low and name in high else None


def _filled(gap: str, name: str, before: Mapping[str, float], after: Mapping[str, float], change: float) -> FilledGap:
    label = name.upper()
    return FilledGap(
        gap=gap, before=f"{label}: {before[name]:.2f}", after=f"{label}: {after[name]:.2f}", confidence_change=change
    )
