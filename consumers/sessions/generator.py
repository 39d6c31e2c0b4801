"""Generates a handoff report from a session's events and its author's inputs. Pure.

The author's inputs win; a missing one (None) is derived from the session's events. An empty task or an empty list of
findings is refused, not replaced. Vectors that were not assessed are not compared: a missing vector is neither 0 nor 1,
and causes no gap and no recommendation. Differences are rounded to 4 decimals before they are compared with a
threshold. Without a POSTFLIGHT the recommendations use the vectors that were assessed last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from deedbook.consumers.sessions.open_sessions import SWEPT
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import Deltas, FilledGap, LeftOut, ReportGenerated, Vectors
from deedbook.ledger.format.codec import converted
from deedbook.projections.reports.calibration import assessment_pair, decimals
from deedbook.projections.reports.report import DEAD_END, DERIVED, FIND_OUT, OPEN

know_gain_min: Final = 0.15
uncertainty_fall_min: Final = 0.20
uncertain_above: Final = 0.40
ready_uncertainty_below: Final = 0.30
ready_know_above: Final = 0.80

findings_few, findings_many = 3, 5  # as many as a reader can remember; fewer or more cause a warning
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
    """An author's inputs for a report. Fields that are None are derived from the session."""

    task_summary: str | None = None
    key_findings: list[str] | None = None
    remaining_unknowns: list[str] | None = None
    next_session_context: str | None = None
    artifacts_created: list[str] | None = None


_NO_INPUTS: Final = ReportInputs()


def inputs_of(*values: str | list[str] | None) -> ReportInputs:
    """Return checked inputs from values in the order of the fields."""
    return converted(dict(zip(ReportInputs.__struct_fields__, values, strict=True)), ReportInputs)


def generate(session: Mapping[str, Any], inputs: ReportInputs, accomplished: Sequence[str]) -> ReportGenerated:
    """Return the report of a session, an answer of ``sessions.show``.

    Raises Refused: ``INVALID_FIELD`` if the task or the findings are empty, or cannot be derived.
    """
    report = derived(session, inputs, accomplished)
    if not report.task_summary:
        message = "a report needs a summary: give one or two sentences as task_summary"
        raise Refused("INVALID_FIELD", f"{message}, or start the session with a task", field="task_summary")
    if not report.key_findings:
        message = "a report needs findings, and there is none: give three to five as key_findings"
        other = "record them in the session before it ends (`deed session finding`)"
        raise Refused("INVALID_FIELD", f"{message}, or {other}", field="key_findings")
    return report


def derived(
    session: Mapping[str, Any], inputs: ReportInputs = _NO_INPUTS, accomplished: Sequence[str] = ()
) -> ReportGenerated:
    """Return the report as far as it can be derived: without a task or findings it is not a valid event yet."""
    session = uncorrected_part(session)
    outcome = derived_outcome(session) if inputs.task_summary is None else inputs.task_summary.strip()
    given = {"finding": inputs.key_findings, "unknown": inputs.remaining_unknowns}
    recorded = {name: by_weight(session[f"{name}s"], name) for name in given}
    findings, unknowns = (
        _stripped(recorded[name][:derived_items_max] if texts is None else texts) for name, texts in given.items()
    )
    artifacts = _stripped(inputs.artifacts_created or [])
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
        next_session_context=(inputs.next_session_context or "").strip() or derived_context(session),
        artifacts_created=artifacts,
        epistemic_deltas=Deltas(**compared.pop("deltas")),
        preflight=None if before is None else Vectors(**before),
        postflight=None if after is None else Vectors(**after),
        left_out=LeftOut(
            key_findings=_excess(recorded["finding"]) if given["finding"] is None else 0,
            remaining_unknowns=_excess(recorded["unknown"]) if given["unknown"] is None else 0,
            accomplished=_excess(accomplished),
        ),
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
    """Return the next steps that follow from a session's last vectors, unknowns and calibration status."""
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
    """Return the author's own steps, or else the derived steps, without fillers; and whether they are the author's."""
    useful = [step for step in steps if not _FILLER.match(step)]
    derived_steps = {f"{FIND_OUT}{unknown}" for unknown in unknowns}.union(_ADVICE.values())
    own = [step for step in useful if step not in derived_steps]
    return own or useful, bool(own)


def last_ms_of(session: Mapping[str, Any]) -> int:
    """Return the time at which a session ended, or if it is open, the time of its last event (the ledger's clock)."""
    if session["ended_ms"] is not None:
        return int(session["ended_ms"])
    logged = (session[name] for name in ("assessments", "findings", "unknowns", "dead_ends", "tools"))
    return int(max((event["happened_ms"] for events in logged for event in events), default=session["happened_ms"]))


def warnings_of(session: Mapping[str, Any], inputs: ReportInputs, count: int) -> list[str]:
    """Return the warnings for the author of a report with ``count`` findings."""
    warnings: list[str] = []
    if count < findings_few:
        warnings.append(
            f"only {count} of the recommended {findings_few} to {findings_many} findings: the next agent learns little"
        )
    topics = len({finding["topic"] for finding in session["findings"]})
    if count > findings_many * max(topics, 1):
        of_topic = " of a topic" if topics > 1 else ""
        warnings.append(
            f"{count} findings, but readers remember {findings_few} to {findings_many}{of_topic}: choose the key ones"
        )
    recorded = uncorrected_part(session)
    for name, value in (("finding", inputs.key_findings), ("unknown", inputs.remaining_unknowns)):
        more = _excess(by_weight(recorded[f"{name}s"], name))
        if value is None and more:
            warnings.append(f"{more} more {name}s are in the session, but not in the report: see `deed session show`")
    return warnings


def derived_outcome(session: Mapping[str, Any]) -> str:
    """Return the outcome of a session, from its latest text; empty if there is none."""
    with_text = [assessment for assessment in session["assessments"] if assessment["reasoning"].strip()]
    last = [assessment for assessment in with_text if assessment["phase"] == "POSTFLIGHT"]
    # The text that opened POSTFLIGHT, without vectors, describes the result. A text beside vectors explains their
    # change.
    closing = [assessment for assessment in last if not assessment["vectors"]] or last
    opening = [assessment for assessment in with_text if assessment["phase"] == "PREFLIGHT"]
    summary = "" if session["summary"] == SWEPT else session["summary"]
    texts = [assessment["reasoning"] for assessment in closing[-1:]] + [summary, session["task"]]
    texts += [assessment["reasoning"] for assessment in opening[:1]]
    return next((text.strip() for text in texts if text.strip()), "")


def derived_context(session: Mapping[str, Any]) -> str:
    """Return a text for the next session, made from the last CHECK, the dead ends and the unknowns of this one.

    The text begins with the mark ``DERIVED``. It is empty if the session has none of these.
    """
    checks = [event["reasoning"] for event in session["assessments"] if event["phase"] == "CHECK"]
    checks = [text for text in checks if text.strip()]
    dead_ends = sorted(session["dead_ends"], key=_weight)[:_context_items_max]
    parts = [_sentence(f"Last CHECK: {checks[-1]}")] if checks else []
    parts += [_sentence(f"{DEAD_END}{event['approach']} ({event['why_failed']})") for event in dead_ends]
    parts += [_sentence(f"{OPEN}{text}") for text in by_weight(session["unknowns"], "unknown")[:_context_items_max]]
    return " ".join([DERIVED, *parts]) if parts else ""


def uncorrected_part(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session without retracted and resolved entries."""
    kinds = ("findings", "unknowns", "dead_ends")
    return {**session} | {kind: [row for row in session[kind] if row["correction"] is None] for kind in kinds}


def by_weight(logged: Iterable[Mapping[str, Any]], field: str) -> list[str]:
    """Return the texts of entries, each once, by impact, then the newest first."""
    texts = dict.fromkeys(event[field].strip() for event in sorted(logged, key=_weight))
    return [text for text in texts if text]


def _excess(texts: Sequence[str]) -> int:
    return max(0, len(texts) - derived_items_max)


def _weight(event: Mapping[str, Any]) -> tuple[float, int]:
    impact = event["impact"]
    return (1.0 if impact is None else -impact, -event["event_index"])


def _stripped(texts: Sequence[str]) -> list[str]:
    return [text.strip() for text in texts if text.strip()]


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", "。", "！", "？", "…")) else f"{text}."
