"""What can be told of a session before it is packed: out of its report, else out of its events (seed 004).

Long texts that the report itself holds shortened stand whole in blobs. They are read where a resume may show more of
them than the report has; a blob that is not here leaves its text as it is, marked as shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sessions.reports.generator import last_ms_of, unreported
from consumers.sessions.reports.inputs import DERIVED
from consumers.sessions.reports.packing import Source
from ledger.errors import Refused
from projections.briefs.tokens import count_tokens
from projections.records.marks import Imported
from projections.reports.compressed import compressed_of, short_ref
from projections.reports.markdown import duration_text, head, markdown_of, sections
from projections.reports.report import plain, read_report, report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from projections.reports.report import Report

    Blobs = Callable[[str], bytes]

restored_below_tokens: Final = 160
"""A text that its report holds with fewer tokens than this is read whole from its blob, before it is packed."""


def source_of(
    shown: Mapping[str, Any], fields: Mapping[str, Any] | None, get_blob: Blobs, *, level: str, short_id: str
) -> Source:
    """Return all that can be told of a session (an answer of ``sessions.show``); ``fields`` are those of its report."""
    if fields is None:
        report = report_of(
            shown["id"],
            "",
            0,
            shown["author"],
            last_ms_of(shown),
            unreported(shown),
            imported=None if shown["imported"] is None else msgspec.convert(shown["imported"], Imported),
        )
    else:
        report = read_report(restored(fields, get_blob))
    is_full = level == "full"
    return Source(
        head=_head(report, level) | ({"no_report": True} if fields is None else {}),
        fields=_fields(report) | {"assessments": _assessments(shown)},
        short_id=short_id,
        markdown=markdown_of(report) if is_full else "",
        sections=_sections(report) if is_full else [],
        shortened=frozenset(_shown_as(long.path.split("/")[1]) for long in report.long_texts),
        last=frozenset({"next_session_context"} if report.next_session_context.startswith(DERIVED) else ()),
    )


def restored(fields: Mapping[str, Any], get_blob: Blobs, below: int | None = restored_below_tokens) -> dict[str, Any]:
    """Return a report's fields with its long texts whole: all, or those that it holds with fewer tokens than ``below``.

    What has been restored is no longer among ``long_texts``. A blob that is not here leaves its text as it is.
    """
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fields))
    left = []
    for long in made["long_texts"]:
        holder, key = _place(made, long["path"])
        whole = None if below is not None and count_tokens(holder[key]) >= below else _blob_text(get_blob, long["ref"])
        if whole is None:
            left.append(long)
        else:
            holder[key] = whole
    return made | {"long_texts": left}


def whole(fields: Mapping[str, Any], get_blob: Blobs) -> dict[str, Any]:
    """Return a report of ``reports.show`` with its long texts whole, in its fields, Markdown and compressed JSON."""
    report = read_report(restored(fields, get_blob, below=None))
    return plain(report) | {"markdown": markdown_of(report), "compressed_json": compressed_of(report)}


def _head(report: Report, level: str) -> dict[str, Any]:
    """Return what every level begins with; a summary does without the report's id, which would cost a finding."""
    found: dict[str, Any] = {
        "session_id": report.session_id,
        "ai_id": report.ai_id,
        "timestamp": report.timestamp,
        "duration": duration_text(report.duration_seconds),
        "calibration_status": report.calibration_status,
        "report_type": report.report_type,
    }
    if report.imported is not None:
        found["imported"] = {"by": report.imported.importer, "format": report.imported.format}
    if level != "summary":
        found["report_id"] = (report.report_id if level == "full" else short_ref(report.report_id)) or None
    return found


def _fields(report: Report) -> dict[str, Any]:
    # What was accomplished is not told twice: neither as the task nor as an artifact.
    said = {report.task_summary, *(f"Created {one}" for one in report.artifacts_created)}
    gaps = plain(report)["knowledge_gaps_filled"]
    return {
        "task": _texts(report.task_summary),
        "key_findings": report.key_findings,
        "remaining_unknowns": report.remaining_unknowns,
        "next_steps": report.recommended_next_steps,
        "next_session_context": _texts(report.next_session_context),
        "epistemic_deltas": sorted(report.epistemic_deltas.items(), key=_delta_weight),
        "knowledge_gaps_filled": [{name: part for name, part in gap.items() if part is not None} for gap in gaps],
        "investigation_tools": report.investigation_tools,
        "artifacts_created": report.artifacts_created,
        "accomplished": [text for text in report.accomplished if text not in said],
    }


def _sections(report: Report) -> list[tuple[str, str]]:
    return [("Head", head(report)), *((one.title, str(one)) for one in sections(report))]


def _assessments(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all assessments, those before and after the work first, then the newest."""
    ranked = sorted(
        shown["assessments"], key=lambda one: (one["phase"] not in {"PREFLIGHT", "POSTFLIGHT"}, -one["event_index"])
    )
    kept = ("phase", "round", "vectors", "reasoning", "overall_confidence")
    return [{name: one[name] for name in kept if one[name] not in (None, "", {})} for one in ranked]


def _shown_as(field: str) -> str:
    """Return the name under which a field of the report is resumed."""
    return {"task_summary": "task", "recommended_next_steps": "next_steps"}.get(field, field)


def _delta_weight(delta: tuple[str, float]) -> tuple[bool, float]:
    return delta[0] not in {"overall_confidence", "know", "uncertainty"}, -abs(delta[1])


def _texts(text: str) -> list[str]:
    return [text] if text.strip() else []


def _place(fields: dict[str, Any], path: str) -> tuple[Any, Any]:
    """Return what holds the text at a JSON pointer, and its key there."""
    *parents, last = path.split("/")[1:]
    holder: Any = fields
    for part in parents:
        holder = holder[int(part) if isinstance(holder, list) else part]
    return holder, int(last) if isinstance(holder, list) else last


def _blob_text(get_blob: Blobs, ref: str) -> str | None:
    try:
        return get_blob(ref).decode("utf-8", "replace")
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
