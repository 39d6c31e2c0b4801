"""The fold of reports: the latest of each session is a state, every version a row of its event (seed 004, "Option B").

Which version is the latest is decided by the ledger's order and by nothing a report says about itself; only of what was
imported the claimed time decides, because there is no other. Vectors of the task and of the findings stand apart,
packed like those of published briefs, with the embedder that made them: a short question is compared with both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events.body import read_as
from ledger.events.imported import RecordImported
from projections.briefs.embedding import embed_text, pack
from projections.projection import Projection
from projections.records.marks import encoded, happened_ms, imported_of
from projections.reports.compressed import compressed_of
from projections.reports.markdown import markdown_of
from projections.reports.report import Report, plain, report_of
from projections.reports.tables import REPORTS, VERSIONS
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows


class ReportRecord(msgspec.Struct, frozen=True, array_like=True):
    """A session's latest report, when it was accepted (Unix ms), and how many versions there are."""

    id: str
    report: Report | None = None
    accepted_ms: int = 0
    versions: int = 0
    happened_ms: int = 0


def fold(state: ReportRecord, event: Event) -> ReportRecord:
    """Return the record after one more version; an older one never takes the place of a newer.

    Of imported versions the one that claims the later time is the newer: notes are found in any order.
    """
    at_ms, versions = happened_ms(event), state.versions + 1
    if state.report is not None and (at_ms, event.index) <= (state.happened_ms, state.report.event_index):
        return msgspec.structs.replace(state, versions=versions)
    return ReportRecord(state.id, _report(event), event.accepted_ms, versions, at_ms)


def rows(state: ReportRecord) -> Rows:
    """Return the row of the session's latest report."""
    return {} if state.report is None else {"handoff_reports": [_row(state, state.report)]}


def added(_state: ReportRecord | None, logged: Logged) -> Rows:
    """Return the version's row."""
    event = logged.event
    if not keys(event):
        return {}
    report = _report(event)
    row = (
        event.index,
        report.session_id,
        report.report_id,
        report.ai_id,
        report.author,
        report.timestamp,
        event.accepted_ms,
        report.report_type,
        report.calibration_status,
        _json(plain(report)),
        happened_ms(event),
    )
    return {"handoff_report_versions": [row]}


def _report(event: Event) -> Report:
    data = read_as(event).data
    at_ms, mark = happened_ms(event), imported_of(event)
    return report_of(event.name, event.id, event.index, event.author, at_ms, data, imported=mark)


def _row(state: ReportRecord, report: Report) -> Row:
    return (
        report.session_id,
        report.ai_id,
        report.timestamp,
        report.task_summary,
        _json(report.epistemic_deltas),
        _json(report.key_findings),
        _json(report.remaining_unknowns),
        report.next_session_context,
        _json(report.recommended_next_steps),
        report.calibration_status,
        compressed_of(report),
        markdown_of(report),
        state.accepted_ms / 1000,
        report.report_id,
        report.event_index,
        report.author,
        state.accepted_ms,
        report.report_type,
        state.versions,
        _json(pack(embed_text(report.task_summary))),
        _json(pack(embed_text("\n".join(report.key_findings)))),
        state.happened_ms,
        encoded(report.imported),
    )


def _json(value: object) -> str:
    return encode_sorted(value).decode()


def keys(event: Event) -> tuple[str, ...]:
    """Return the id of the session that an event reports on; none for a record that stands for something else."""
    is_other = isinstance(event.data, RecordImported) and event.data.mapped_kind != "report.generated"
    return () if is_other else (event.name,)


REPORT_VIEW: Final = Projection(
    name="reports",
    version=VIEW_VERSIONS["reports"],
    handles=frozenset({"report.generated", "record.imported"}),
    tables=(REPORTS, VERSIONS),
    state=ReportRecord,
    initial=ReportRecord,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
