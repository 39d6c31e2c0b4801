"""What a report's session took back or found out since: laid over the report whenever it is read.

A report is signed and never changes, and every version is kept; but whoever reads it must not go on from what its
author no longer believes. What was corrected is struck in Markdown, with who did it, when and why, and left out of what
others go on from (``standing``). A text is known by its words, also where the report holds it shortened: one that was
told in other words for the report stands, and what was corrected stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from projections.query import Moment
from projections.reports.report import Correction, Report, timestamp_of
from projections.sessions.queries import corrections_of

DERIVED: Final = "(Derived from the session's events.)"
OPEN: Final = "Open: "
DEAD_END: Final = "Dead end: "
FIND_OUT: Final = "Find out: "
"""What begins a sentence of a derived context, or a next step, about an unknown or a dead end."""

_VERBS: Final = {"finding.retracted": "finding", "dead_end.retracted": "dead end", "unknown.resolved": "unknown"}


def with_corrections(moment: Moment, reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return plain reports with the ``corrections`` that came after them, or are about their very words."""
    by_session: dict[str, list[Correction]] = {report["session_id"]: [] for report in reports}
    for row in corrections_of(moment, *by_session) if by_session else ():
        made = {name: row[name] for name in ("kind", "text", "author", "words", "event_index")}
        by_session[row["session_id"]].append(Correction(timestamp=timestamp_of(row["happened_ms"]), **made))

    def is_about(report: dict[str, Any], one: Correction) -> bool:
        texts = (*report["key_findings"], *report["remaining_unknowns"])
        return one.event_index > report["event_index"] or any(is_same(one.text, text) for text in texts)

    return [
        report
        | {
            "corrections": [
                msgspec.to_builtins(one) for one in by_session[report["session_id"]] if is_about(report, one)
            ]
        }
        for report in reports
    ]


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


def correction_of(report: Report, text: str) -> Correction | None:
    """Return what took a text of the report back, or resolved it."""
    return next((one for one in report.corrections if is_same(one.text, text)), None)


def standing(report: Report) -> Report:
    """Return the report without what was corrected."""
    if not report.corrections:
        return report

    def kept(texts: list[str], read: Callable[[str], str] = str) -> list[str]:
        return [text for text in texts if correction_of(report, read(text)) is None]

    context = report.next_session_context
    for one in report.corrections:
        for beginning in (f"{OPEN}{one.text.strip()}", f"{DEAD_END}{one.text.strip()}"):
            before, there, after = context.partition(beginning)
            context = f"{before.rstrip()} {after.lstrip('.').lstrip()}".strip() if there else context
    return msgspec.structs.replace(
        report,
        key_findings=kept(report.key_findings),
        remaining_unknowns=kept(report.remaining_unknowns),
        recommended_next_steps=kept(report.recommended_next_steps, lambda step: step.removeprefix(FIND_OUT)),
        knowledge_gaps_filled=[gap for gap in report.knowledge_gaps_filled if correction_of(report, gap.after) is None],
        next_session_context="" if context == DERIVED else context,
    )


def counted(report: Report) -> str:
    """Return how much was corrected, in words; empty for nothing."""
    kinds = [one.kind for one in report.corrections]
    words = []
    for kind, what in _VERBS.items():
        if count := kinds.count(kind):
            words.append(f"{count} {what}{'' if count == 1 else 's'} {kind.partition('.')[2]}")
    return ", ".join(words)
