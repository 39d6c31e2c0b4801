"""What a report is made from: what its author gives, and what the session's events say about the rest (seed 004).

The seed prompts an agent for findings, unknowns, context and artifacts; here only what nobody recorded has to be given.
What was given wins; what was left out (None) is derived:

- the task from the words at POSTFLIGHT, else the session's summary or task, else the words at PREFLIGHT;
- findings and unknowns from what was logged, the weightiest first, then the newest;
- tools from what was used; the context from the last CHECK, dead ends and open unknowns, and it says so;
- accomplishments from completed tasks and met criteria, then artifacts, else the task summary (SEEDS, 004).

A task or findings that were given empty are refused, not replaced: whoever says "nothing" is asked again.
Which assessments are compared is ``projections.reports.calibration.ends_of``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from consumers.sessions.deciding import SWEPT
from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

findings_few, findings_many = 3, 5
"""The seed asks for 3 to 5 findings; fewer or more are a warning."""

derived_items_max: Final = 32
derived_tools_max: Final = 64
_context_items_max: Final = 3
DERIVED: Final = "(Derived from the session's events.)"


class ReportInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the author of a report gives, by the seed's names; None is derived from the session."""

    task_summary: str | None = None
    key_findings: list[str] | None = None
    remaining_unknowns: list[str] | None = None
    next_session_context: str | None = None
    artifacts_created: list[str] | None = None


class Told(NamedTuple):
    """The words of a report, given or derived."""

    task_summary: str
    key_findings: list[str]
    remaining_unknowns: list[str]
    next_session_context: str
    artifacts_created: list[str]
    accomplished: list[str]
    tools: list[str]


def told_by(shown: Mapping[str, Any], given: ReportInputs, accomplished: Sequence[str]) -> Told:
    """Return what the report says, from what was given and, where nothing was, from the session.

    The task or the findings are empty when neither says any (see ``check_told``).
    """
    task = derived_task(shown) if given.task_summary is None else given.task_summary.strip()
    findings = weighty(shown["findings"], "finding") if given.key_findings is None else given.key_findings
    unknowns = weighty(shown["unknowns"], "unknown") if given.remaining_unknowns is None else given.remaining_unknowns
    context = (given.next_session_context or "").strip()
    artifacts = _filled(given.artifacts_created or [])
    done = _filled([*accomplished[:derived_items_max], *(f"Created {one}" for one in artifacts)])
    return Told(
        task_summary=task,
        key_findings=_filled(findings),
        remaining_unknowns=_filled(unknowns),
        next_session_context=context or derived_context(shown),
        artifacts_created=artifacts,
        accomplished=done or _filled([task]),
        tools=tools_of(shown),
    )


def check_told(told: Told) -> Told:
    """Return what a report says if it says what was done and what was learned.

    Raises:
        Refused: ``INVALID_FIELD`` for a task or findings given empty, or where there is nothing to derive them from.
    """
    if not told.task_summary:
        raise Refused(
            "INVALID_FIELD",
            "a report says what was done: give task_summary (--task-summary) in one or two sentences, or start the"
            " session with a task",
            field="task_summary",
        )
    if not told.key_findings:
        raise Refused(
            "INVALID_FIELD",
            "a report says what was learned, and there is no finding: give key_findings (--finding, 3 to 5 times), or"
            " log them in the session before it ends (`baton session finding`) and leave them out here",
            field="key_findings",
        )
    return told


def warnings_of(shown: Mapping[str, Any], given: ReportInputs, count: int) -> list[str]:
    """Return what its author should know about a report of ``count`` findings that is none the less made."""
    said: list[str] = []
    if count < findings_few:
        said.append(f"{count} of {findings_few} to {findings_many} findings: the next agent learns little from it")
    if count > findings_many:
        said.append(f"{count} findings where {findings_few} to {findings_many} are read: name the key ones")
    for name, was_given in (("findings", given.key_findings), ("unknowns", given.remaining_unknowns)):
        more = len(shown[name]) - derived_items_max
        if was_given is None and more > 0:
            said.append(f"{more} more {name} stand in the session, not in the report: see `baton session show`")
    return said


def derived_task(shown: Mapping[str, Any]) -> str:
    """Return what a session was about, from the latest word on it; empty when nobody said."""
    words = [one for one in shown["assessments"] if one["reasoning"].strip()]
    closing = [one["reasoning"] for one in words if one["phase"] == "POSTFLIGHT" and not one["vectors"]]
    closing = closing or [one["reasoning"] for one in words if one["phase"] == "POSTFLIGHT"]
    opening = [one["reasoning"] for one in words if one["phase"] == "PREFLIGHT"]
    summary = "" if shown["summary"] == SWEPT else shown["summary"]
    candidates = [*closing[-1:], summary, shown["task"], *opening[:1]]
    return next((text.strip() for text in candidates if text.strip()), "")


def derived_context(shown: Mapping[str, Any]) -> str:
    """Return what the next session should know, and that nobody wrote it; empty when there is nothing."""
    checks = [one["reasoning"] for one in shown["assessments"] if one["phase"] == "CHECK" and one["reasoning"].strip()]
    dead_ends = sorted(shown["dead_ends"], key=_weight)[:_context_items_max]
    parts = [_sentence(f"Last CHECK: {checks[-1]}")] if checks else []
    parts += [_sentence(f"Dead end: {one['approach']} ({one['why_failed']})") for one in dead_ends]
    parts += [_sentence(f"Open: {text}") for text in weighty(shown["unknowns"], "unknown")[:_context_items_max]]
    return " ".join([DERIVED, *parts]) if parts else ""


def tools_of(shown: Mapping[str, Any]) -> list[str]:
    """Return the tools that were used, each once, sorted (seed: ``_extract_investigation_tools``)."""
    return sorted({one["tool"] for one in shown["tools"]})[:derived_tools_max]


def weighty(logged: Iterable[Mapping[str, Any]], field: str) -> list[str]:
    """Return what was logged, each once, the weightiest first, then the newest."""
    found = dict.fromkeys(one[field].strip() for one in sorted(logged, key=_weight))
    return [text for text in found if text][:derived_items_max]


def _weight(one: Mapping[str, Any]) -> tuple[float, int]:
    impact = one["impact"]
    return (1.0 if impact is None else -impact, -one["event_index"])


def _filled(texts: Sequence[str]) -> list[str]:
    return [text.strip() for text in texts if text.strip()]


def _sentence(text: str) -> str:
    kept = text.strip()
    return kept if kept.endswith((".", "!", "?", "。", "！", "？", "…")) else f"{kept}."
