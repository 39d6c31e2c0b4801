"""The generator of handoff reports: what a session's events and its author's words come to. Pure.

What its author gives wins; what was left out (None) is derived from the session's events. A task or findings that were
given empty are refused, not replaced. What was not assessed is not compared: a missing vector is neither 0 nor 1, no
gap is claimed and nothing recommended. Differences are rounded to 4 decimals before they are compared with a threshold.
Without a POSTFLIGHT the recommendations rest on the vectors that were assessed last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from deedbook.consumers.sessions.open_sessions import SWEPT
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import Deltas, FilledGap, ReportGenerated, Vectors
from deedbook.ledger.format.codec import converted
from deedbook.projections.reports.calibration import assessment_pair, decimals
from deedbook.projections.reports.report import DEAD_END, DERIVED, FIND_OUT, OPEN

know_gain_min: Final = 0.15
uncertainty_fall_min: Final = 0.20
uncertain_above: Final = 0.40
ready_uncertainty_below: Final = 0.30
ready_know_above: Final = 0.80

findings_few, findings_many = 3, 5  # those that a reader takes in; fewer or more are a warning
derived_items_max: Final = 32
derived_tools_max: Final = 64
_context_items_max: Final = 3
steps_max: Final = 3
_FILLER: Final = re.compile(r"Continue with planned next steps$|Address \d+ remaining unknowns$")
_ADVICE: Final = {
    "uncertain": "Continue investigation - uncertainty still elevated",
    "overconfident": "Validate assumptions - showing overconfidence pattern",
    "underconfident": "Consider execution - showing underconfidence pattern",
    "ready": "Ready for execution - strong epistemic foundation",
}
_LEARNED: Final = ("learned", "discovered")


class ReportInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the author of a report gives; None is derived from the session."""

    task_summary: str | None = None
    key_findings: list[str] | None = None
    remaining_unknowns: list[str] | None = None
    next_session_context: str | None = None
    artifacts_created: list[str] | None = None


_NOTHING_GIVEN: Final = ReportInputs()


def inputs_of(*given: str | list[str] | None) -> ReportInputs:
    """Return what somebody gave, in the order of the fields, checked."""
    return converted(dict(zip(ReportInputs.__struct_fields__, given, strict=True)), ReportInputs)


def generate(session: Mapping[str, Any], given: ReportInputs, accomplished: Sequence[str]) -> ReportGenerated:
    """Return the report of a session, an answer of ``sessions.show``.

    Raises Refused: ``INVALID_FIELD`` for a task or findings given empty, or where there is nothing to derive them from.
    """
    report = derived(session, given, accomplished)
    if not report.task_summary:
        message = "a report says what was done: give task_summary (--task-summary) in one or two sentences"
        raise Refused("INVALID_FIELD", f"{message}, or start the session with a task", field="task_summary")
    if not report.key_findings:
        message = "a report says what was learned, and there is no finding: give key_findings (--finding, 3 to 5 times)"
        other = "log them in the session before it ends (`deed session finding`) and leave them out here"
        raise Refused("INVALID_FIELD", f"{message}, or {other}", field="key_findings")
    return report


def derived(
    session: Mapping[str, Any], given: ReportInputs = _NOTHING_GIVEN, accomplished: Sequence[str] = ()
) -> ReportGenerated:
    """Return the report as far as there are words for it: without a task or findings it is no event yet."""
    session = believed(session)
    outcome = derived_outcome(session) if given.task_summary is None else given.task_summary.strip()
    findings, unknowns = (
        _stripped(weighty(session[f"{name}s"], name) if texts is None else texts)
        for name, texts in (("finding", given.key_findings), ("unknown", given.remaining_unknowns))
    )
    artifacts = _stripped(given.artifacts_created or [])
    done = _stripped([*accomplished[:derived_items_max], *(f"Created {artifact}" for artifact in artifacts)])
    ends = assessment_pair(session["assessments"])
    before, after = (None if end is None else end["vectors"] for end in (ends.preflight, ends.postflight))
    assessed = [assessment["vectors"] for assessment in session["assessments"] if assessment["vectors"]]
    vectors = (assessed[-1] if assessed else {}) if after is None else after
    compared = ends.comparison._asdict()
    return ReportGenerated(
        report_type=ends.report_type,
        ai_id=session["ai_id"] or session["author"],
        task=session["task"].strip(),
        task_summary=outcome,
        key_findings=findings,
        recommended_next_steps=recommend(vectors, unknowns, compared["calibration_status"]),
        accomplished=done or _stripped([outcome]),
        knowledge_gaps_filled=identify_filled_gaps(before or {}, after or {}, findings),
        remaining_unknowns=unknowns,
        investigation_tools=sorted({event["tool"] for event in session["tools"]})[:derived_tools_max],
        next_session_context=(given.next_session_context or "").strip() or derived_context(session),
        artifacts_created=artifacts,
        epistemic_deltas=Deltas(**compared.pop("deltas")),
        preflight=None if before is None else Vectors(**before),
        postflight=None if after is None else Vectors(**after),
        duration_seconds=int(max(0, last_ms_of(session) - session["happened_ms"]) // 1000),
        **compared,
    )


def identify_filled_gaps(
    before: Mapping[str, float], after: Mapping[str, float], findings: Sequence[str]
) -> list[FilledGap]:
    """Return the gaps that a session filled."""
    gaps: list[FilledGap] = []
    for gap, name, low, high, least in (
        ("Domain knowledge", "know", before, after, know_gain_min),
        ("Task uncertainty", "uncertainty", after, before, uncertainty_fall_min),
    ):
        change = round(high[name] - low[name], decimals) if name in low and name in high else 0.0
        if change >= least:
            was, now = (f"{name.upper()}: {values[name]:.2f}" for values in (before, after))
            gaps.append(FilledGap(gap=gap, before=was, after=now, confidence_change=change))
    learned = [finding for finding in findings if any(word in finding.lower() for word in _LEARNED)]
    return gaps + [FilledGap(gap="Investigation finding", before="Unknown", after=finding) for finding in learned]


def recommend(vectors: Mapping[str, float], unknowns: Sequence[str], status: str) -> list[str]:
    """Return the next steps that follow from where a session stands."""
    steps: list[str] = []
    uncertainty, know = vectors.get("uncertainty"), vectors.get("know")
    if uncertainty is not None and uncertainty > uncertain_above:
        steps.append(_ADVICE["uncertain"])
    steps += [f"{FIND_OUT}{unknown}" for unknown in unknowns[:steps_max]]
    if status in _ADVICE:
        steps.append(_ADVICE[status])
    is_certain = uncertainty is not None and uncertainty < ready_uncertainty_below
    if is_certain and know is not None and know > ready_know_above:
        steps.append(_ADVICE["ready"])
    return steps


def own_steps(steps: Sequence[str], unknowns: Sequence[str]) -> tuple[list[str], bool]:
    """Return the steps that a reader of the unknowns needs, without fillers, and whether they say more than those."""
    told = [step for step in steps if not _FILLER.match(step)]
    asked = {f"{FIND_OUT}{unknown}" for unknown in unknowns}
    own = [step for step in told if step not in asked and step not in _ADVICE.values()]
    return own or told, bool(own)


def last_ms_of(session: Mapping[str, Any]) -> int:
    """Return when a session ended, else when something last happened in it (the ledger's clock)."""
    if session["ended_ms"] is not None:
        return int(session["ended_ms"])
    logged = (session[name] for name in ("assessments", "findings", "unknowns", "dead_ends", "tools"))
    return int(max((event["happened_ms"] for events in logged for event in events), default=session["happened_ms"]))


def warnings_of(session: Mapping[str, Any], given: ReportInputs, count: int) -> list[str]:
    """Return what its author should know about a report of ``count`` findings that is none the less made."""
    warnings: list[str] = []
    if count < findings_few:
        warnings.append(f"{count} of {findings_few} to {findings_many} findings: the next agent learns little from it")
    if count > findings_many:
        warnings.append(f"{count} findings where {findings_few} to {findings_many} are read: name the key ones")
    for name, was_given in (("findings", given.key_findings), ("unknowns", given.remaining_unknowns)):
        more = len(session[name]) - derived_items_max
        if was_given is None and more > 0:
            warnings.append(f"{more} more {name} stand in the session, not in the report: see `deed session show`")
    return warnings


def derived_outcome(session: Mapping[str, Any]) -> str:
    """Return what came of a session, from the latest word on it; empty when nobody said."""
    with_words = [assessment for assessment in session["assessments"] if assessment["reasoning"].strip()]
    last = [assessment for assessment in with_words if assessment["phase"] == "POSTFLIGHT"]
    # The words that opened POSTFLIGHT, without vectors, say what was done; those beside vectors say why they changed.
    closing = [assessment for assessment in last if not assessment["vectors"]] or last
    opening = [assessment for assessment in with_words if assessment["phase"] == "PREFLIGHT"]
    summary = "" if session["summary"] == SWEPT else session["summary"]
    words = [assessment["reasoning"] for assessment in closing[-1:]] + [summary, session["task"]]
    words += [assessment["reasoning"] for assessment in opening[:1]]
    return next((text.strip() for text in words if text.strip()), "")


def derived_context(session: Mapping[str, Any]) -> str:
    """Return what the next session should know, and that nobody wrote it; empty when there is nothing."""
    checks = [event["reasoning"] for event in session["assessments"] if event["phase"] == "CHECK"]
    checks = [text for text in checks if text.strip()]
    dead_ends = sorted(session["dead_ends"], key=_weight)[:_context_items_max]
    parts = [_sentence(f"Last CHECK: {checks[-1]}")] if checks else []
    parts += [_sentence(f"{DEAD_END}{event['approach']} ({event['why_failed']})") for event in dead_ends]
    parts += [_sentence(f"{OPEN}{text}") for text in weighty(session["unknowns"], "unknown")[:_context_items_max]]
    return " ".join([DERIVED, *parts]) if parts else ""


def believed(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session without what was taken back or resolved."""
    kinds = ("findings", "unknowns", "dead_ends")
    return {**session} | {kind: [one for one in session[kind] if one["correction"] is None] for kind in kinds}


def weighty(logged: Iterable[Mapping[str, Any]], field: str) -> list[str]:
    """Return what was logged, each once, the weightiest first, then the newest."""
    texts = dict.fromkeys(event[field].strip() for event in sorted(logged, key=_weight))
    return [text for text in texts if text][:derived_items_max]


def _weight(event: Mapping[str, Any]) -> tuple[float, int]:
    impact = event["impact"]
    return (1.0 if impact is None else -impact, -event["event_index"])


def _stripped(texts: Sequence[str]) -> list[str]:
    return [text.strip() for text in texts if text.strip()]


def _sentence(text: str) -> str:
    kept = text.strip()
    return kept if kept.endswith((".", "!", "?", "。", "！", "？", "…")) else f"{kept}."
