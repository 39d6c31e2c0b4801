"""The report as Markdown, by one template: the same report gives the same bytes everywhere.

Every section is present, and an empty section says that it is empty, so that a reader can distinguish "nothing" from
"left out".

Texts of agents stay text: a finding must not be able to open a section, close a table, hide text in HTML or swallow the
following lines in a code fence. Every line is escaped where Markdown would read it as a block. Inside a line only HTML
is escaped, because no other markup affects text outside its own list item or paragraph. Texts that share a line with
others (the head) are escaped completely, and the table has only Deedbook's own text. Words are never changed; lines are
kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

from deedbook.projections.briefs.text import one_line
from deedbook.projections.reports.answers import ShownReport
from deedbook.projections.reports.calibration import INVERTED, OVERALL, VECTOR_NAMES
from deedbook.projections.reports.compressed import compressed_of
from deedbook.projections.reports.report import Report, ReportCorrection, ReportedGap, fields_of, uncorrected

TITLE: Final = "# Epistemic Handoff Report"
NOT_THERE: Final = "–"
BLANK: Final = "(blank)"
_EMPTY: Final = "*No {} were recorded.*"

_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_BLOCK: Final = re.compile(r"[#>|\[]|```|~~~|[-+*](?:\s|$)|[-=_*+|:\s]+$")
_NUMBER: Final = re.compile(r"([0-9]{1,9})([.)])(?=\s|$)")
_INLINE: Final = re.compile(r"[\\`*\[\]~]|(?<![^\W_])_|_(?![^\W_])")
_LABELS: Final = {
    "well_calibrated": "✅ Calibrated",
    "overconfident": "⚠️ Overconfident",
    "underconfident": "⚠️ Underconfident",
    "not_assessable": "➖ Not assessable",
}
_WHY_NOT: Final = {
    "complete": "KNOW and UNCERTAINTY were not both assessed before and after",
    "investigation": "the session has a CHECK, but no POSTFLIGHT",
    "preflight_only": "the session has no POSTFLIGHT",
    "planning": "the session has no PREFLIGHT to compare with",
}
_LISTED: Final = {"finding.retracted": "key_findings", "unknown.resolved": "remaining_unknowns"}
_CORRECTED: Final = ("finding.retracted", "dead_end.retracted", "unknown.resolved")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def markdown_of(report: Report) -> str:
    """Return the whole report, ending in one newline."""
    parts = (f"## {title}\n\n{text}" for title, text in sections(report).items())
    return "\n\n".join((head(report), *parts)) + "\n"


def with_texts(report: Report) -> ShownReport:
    """Return a report with its Markdown and its compressed JSON."""
    return ShownReport(**fields_of(report), markdown=markdown_of(report), compressed_json=compressed_of(report))


def head(report: Report) -> str:
    """Return the title and its five lines, with further lines for an outcome, an import, or corrections."""
    refs = _refs(report)
    task_at = "/task" if report.task else "/task_summary"
    mark, imported = report.imported, ""
    if mark is not None:
        imported = f"\n**Imported:** by {inline(mark.importer)} from {inline(mark.source)}; it says this of itself"
    outcome = f"**Outcome:** {inline(report.outcome)}{_whole(refs, '/task_summary')}\n" if report.outcome else ""
    return (
        f"{TITLE}\n\n"
        f"**Session:** {inline(report.session_id)}\n"
        f"**AI Agent:** {inline(report.ai_id)}\n"
        f"**Date:** {report.timestamp}\n"
        f"**Task:** {inline(report.title)}{_whole(refs, task_at)}\n"
        f"{outcome}"
        f"**Duration:** {duration_text(report.duration_seconds) or 'not recorded'}"
        f"{imported}" + (f"\n**Corrected:** {counts}" if (counts := counted(report)) else "")
    )


def sections(report: Report) -> dict[str, str]:
    """Return all sections in order, by title, including the empty ones."""
    refs = _refs(report)
    current = uncorrected(report)
    text = current.next_session_context
    context = "*No context was recorded.*"
    if text.strip():
        context = "\n".join(lines(text)) + _whole(refs, "/next_session_context")
    if dead_ends := [
        _struck(correction) for correction in report.corrections if correction.kind == "dead_end.retracted"
    ]:
        context += "\n\n" + "\n".join(dead_ends)
    task = _items([(report.task_summary, "/task_summary")], refs, "")

    def listed(field: str, what: str) -> str:
        texts = [(text, f"/{field}/{position}") for position, text in enumerate(getattr(report, field))]
        struck = [correction for correction in report.corrections if _LISTED.get(correction.kind) == field]
        current_texts = [pair for pair in texts if pair[0] in getattr(current, field)]
        listed_texts = [_items(current_texts, refs, what)] * bool(current_texts or not struck)
        left_out = getattr(report.left_out, field, 0)
        more = [f"\n*{left_out} more in the session, not in this report.*"] if left_out else []
        return "\n".join([*listed_texts, *map(_struck, struck), *more])

    return {
        "Epistemic Trajectory": _trajectory(report),
        "What I Accomplished": listed("accomplished", "") if report.accomplished else task,
        "What I Learned": listed("key_findings", "findings"),
        "Knowledge Gaps Filled": _gaps(report.knowledge_gaps_filled, refs),
        "Remaining Unknowns": listed("remaining_unknowns", "unknowns"),
        "Investigation Tools Used": listed("investigation_tools", "tools"),
        "Context for Next Session": context,
        "Recommended Next Steps": listed("recommended_next_steps", "next steps"),
        "Artifacts Created": listed("artifacts_created", "artifacts"),
    }


def _struck(correction: ReportCorrection) -> str:
    verb, day = correction.kind.partition(".")[2], correction.timestamp[:10]
    how = f"{verb} {day} by {inline(correction.author)}: {span(correction.words)}"
    return f"- ~~{inline(correction.text)}~~ ({how})"


def counted(report: Report) -> str:
    """Return a text with the number of corrections; empty for none."""
    counts = Counter(correction.kind for correction in report.corrections)
    parts = ((counts[kind], *kind.replace("_", " ").split(".")) for kind in _CORRECTED if counts[kind])
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'} {verb}" for count, what, verb in parts)


def duration_text(seconds: int | None) -> str:
    """Return a length of time in its two largest units (``1 h 5 min``); empty when it is not known."""
    if seconds is None:
        return ""
    parts: list[str] = []
    left = seconds
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break  # 1 h 0 min 5 s is about 1 h
    return " ".join(parts[:2]) or "0 s"


def number_text(value: float | None, *, digits: int = 2, signed: bool = False) -> str:
    """Return a value with ``digits`` decimals, or more (up to 4) if it has them; a dash for None."""
    if value is None:
        return NOT_THERE
    whole, _, part = f"{value + 0.0:{'+' if signed else ''}.4f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(digits, '0')}"


def _trajectory(report: Report) -> str:
    rows = ["| Vector | Before | After | Delta | Status |", "|--------|--------|-------|-------|--------|"]
    before, after = report.preflight or {}, report.postflight or {}
    for name in VECTOR_NAMES:
        delta = report.epistemic_deltas.get(name)
        if name in before or name in after or delta is not None:
            status = _status(name, delta, has_before=name in before)
            rows.append(_row(name.upper(), before.get(name), after.get(name), delta, status))
    overall = (report.overall_confidence_before, report.overall_confidence_after, report.epistemic_deltas.get(OVERALL))
    rows.append(_row("Overall Confidence", *overall, _LABELS[report.calibration_status], digits=3))
    table = "\n".join(rows)
    why_not = f" ({_WHY_NOT[report.report_type]})" if report.calibration_status == "not_assessable" else ""
    status = f"**Calibration Status:** {report.calibration_status}{why_not}"
    if report.is_overall_given:
        how = "the author's own values"
    elif report.overall_confidence_before is None or report.overall_confidence_after is None:
        how = "no vector was assessed both before and after"
    else:
        how = "the mean of the vectors assessed both before and after, uncertainty as 1 - u"
    return f"**PREFLIGHT → POSTFLIGHT Deltas:**\n\n{table}\n\n{status}\n\n*Overall Confidence: {how}.*"


def _row(
    name: str, before: float | None, after: float | None, delta: float | None, status: str, *, digits: int = 2
) -> str:
    cells = (number_text(before, digits=digits), number_text(after, digits=digits))
    return f"| {name} | {' | '.join(cells)} | {number_text(delta, digits=digits, signed=True)} | {status} |"


def _status(name: str, delta: float | None, *, has_before: bool) -> str:
    if delta is None:
        return "Not assessed after" if has_before else "Not assessed before"
    if delta == 0:
        return "➖ Unchanged"
    if name in INVERTED:
        return "✅ Reduced" if delta < 0 else "⚠️ Increased"
    return "✅ Improved" if delta > 0 else "⚠️ Declined"


def _items(texts: Sequence[tuple[str, str]], refs: dict[str, str], what: str) -> str:
    return "\n".join(item(text) + _whole(refs, path) for text, path in texts) or _EMPTY.format(what)


def _gaps(gaps: Sequence[ReportedGap], refs: dict[str, str]) -> str:
    items = []
    for position, gap in enumerate(gaps):
        change = "" if gap.confidence_change is None else f" ({number_text(gap.confidence_change, signed=True)})"
        before, after = (
            span(text) + _whole(refs, f"/knowledge_gaps_filled/{position}/{side}")
            for side, text in (("before", gap.before), ("after", gap.after))
        )
        items.append(f"- **{inline(gap.gap)}:** {before} → {after}{change}")
    return "\n".join(items) or _EMPTY.format("filled gaps")


def _refs(report: Report) -> dict[str, str]:
    return {long.path: long.ref for long in report.long_texts}


def _whole(refs: dict[str, str], path: str) -> str:
    """Return a note with the blob of a shortened text."""
    return f" (shortened; whole text: {refs[path]})" if path in refs else ""


def inline(text: str) -> str:
    """Return a text as one line without markup, for lines that share a paragraph with others."""
    return _TAG.sub("&lt;", _INLINE.sub(r"\\\g<0>", one_line(text))) or BLANK


def span(text: str) -> str:
    """Return a text as one line without HTML, for use after other words in a list item."""
    return _TAG.sub("&lt;", one_line(text)) or BLANK


def lines(text: str) -> list[str]:
    """Return the lines of a text. None of them begins a block; of several blank lines between others, one stays."""
    kept_lines: list[str] = []
    for line in text.splitlines():
        escaped = _disarmed(line)
        if escaped or (kept_lines and kept_lines[-1]):
            kept_lines.append(escaped)
    while kept_lines and not kept_lines[-1]:
        kept_lines.pop()
    return kept_lines or [BLANK]


def item(text: str) -> str:
    """Return a text as one list item; its further lines are indented."""
    first, *others = lines(text)
    return "\n".join((f"- {first}", *(f"  {line}" if line else "" for line in others)))


def _disarmed(line: str) -> str:
    if not line.isprintable():
        line = "".join(" " if unicodedata.category(sign) in {"Cc", "Cs"} else sign for sign in line)
    escaped = _TAG.sub("&lt;", line.strip())
    if _BLOCK.match(escaped):
        return "\\" + escaped
    return _NUMBER.sub(r"\1\\\2", escaped, count=1) if _NUMBER.match(escaped) else escaped
