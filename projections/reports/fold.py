"""The fold of reports: the latest of each session is a state, every version a row of its event.

The ledger's order alone decides which version is the latest. Among imported versions the claimed time decides, because
they have no other. Vectors of the task and of the findings are separate, packed like those of published briefs, with
the embedder that made them: a short question is compared with both.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.records.marks import encoded, happened_ms, imported_of
from deedbook.projections.reports.compressed import compressed_of
from deedbook.projections.reports.markdown import markdown_of
from deedbook.projections.reports.report import Report, plain, report_of
from deedbook.projections.views.projection import Logged, Projection, Row, Rows, Table, json_text, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class ReportRow(Row, frozen=True):
    """The latest report of a session: up to ``created_at``, the columns of a table that other tools read.

    Lists, deltas and ``imported`` are JSON; the later columns are for the queries.
    """

    session_id: str
    ai_id: str
    timestamp: str
    task_summary: str
    epistemic_deltas: str
    key_findings: str
    remaining_unknowns: str
    next_session_context: str
    recommended_next_steps: str
    calibration_status: str
    compressed_json: str
    markdown_report: str
    created_at: float
    report_id: str
    event_index: int
    author: str
    task: str
    happened_ms: int
    imported: str | None


class ReportVersionRow(Row, frozen=True):
    """A version of a session's report; ``report`` is all of it as JSON."""

    event_index: int
    session_id: str
    report_id: str
    timestamp: str
    report: str
    happened_ms: int


REPORTS: Final = Table(
    "handoff_reports",
    ReportRow,
    primary_key=("session_id",),
    owner="session_id",
    indexes=(("ai_id",), ("timestamp",), ("event_index",), ("author", "event_index"), ("happened_ms", "event_index")),
    long=("ai_id",),
)
VERSIONS: Final = Table(
    "handoff_report_versions",
    ReportVersionRow,
    primary_key=("event_index",),
    indexes=(("session_id", "event_index"), ("report_id",)),
)


class ReportRecord(msgspec.Struct, frozen=True, array_like=True):
    """A session's latest report, with the times of acceptance and of the event (Unix ms)."""

    id: str
    report: Report | None = None
    accepted_ms: int = 0
    happened_ms: int = 0


def fold(state: ReportRecord, event: Event) -> ReportRecord:
    """Return the record after one more version; an older version never replaces a newer one.

    Of imported versions, the one that claims the later time is newer: notes are found in any order.
    """
    at_ms = happened_ms(event)
    if state.report is not None and (at_ms, event.index) <= (state.happened_ms, state.report.event_index):
        return state
    return ReportRecord(state.id, _report(event), event.accepted_ms, at_ms)


def rows(state: ReportRecord) -> Rows:
    """Return the row of the session's latest report."""
    report = state.report
    if report is None:
        return ()
    lists = ("epistemic_deltas", "key_findings", "remaining_unknowns", "recommended_next_steps")
    texts = {name: json_text(getattr(report, name)) for name in lists}
    texts |= {"compressed_json": compressed_of(report), "markdown_report": markdown_of(report)}
    created_at, imported = state.accepted_ms / 1000, encoded(report.imported)
    return (row_of(ReportRow, state, report, **texts, created_at=created_at, imported=imported),)


def added(_state: ReportRecord | None, logged: Logged) -> Rows:
    """Return the version's row."""
    event = logged.event
    if not keys(event):
        return ()
    report = _report(event)
    whole = json_text(plain(report))
    return (row_of(ReportVersionRow, report, report=whole, happened_ms=happened_ms(event)),)


def _report(event: Event) -> Report:
    data = read_as(event).data
    at_ms, mark = happened_ms(event), imported_of(event)
    at_ms = event.accepted_ms if at_ms == UNDATED_MS else at_ms  # only to show: ``happened_ms`` orders the versions
    return report_of(event.name, event.id, event.index, event.author, at_ms, data, imported=mark)


def keys(event: Event) -> tuple[str, ...]:
    """Return the id of the session that an event reports on; nothing for a record that maps to another kind."""
    is_other = isinstance(event.data, RecordImported) and event.data.mapped_kind != "report.generated"
    return () if is_other else (event.name,)


VIEW: Final = Projection(
    name="reports",
    version=VIEW_VERSIONS["reports"],
    handles=frozenset({"report.generated", "record.imported"}),
    tables=(REPORTS, VERSIONS),
    state=ReportRecord,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
