"""How well agents judge themselves over time, and what a session's author completed meanwhile.

Calibration counts the latest report of each session. The vectors of an imported one count as it claims them, and it is
marked: another tool measured them. A negative bias is overconfident (``projections.reports.calibration``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_args

from deedbook.ledger.events.session import Calibration, Deltas
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers.query import Arguments, ById, Limit, QueryContext, Since, Until, Where
from deedbook.projections.records.marks import AGENT, Imported, decoded
from deedbook.projections.reports.answers import (
    Accomplishments,
    AgentCalibration,
    CalibrationPoint,
    Calibrations,
    Grounds,
)
from deedbook.projections.reports.calibration import bias_above, bias_of, decimals, label_of_bias
from deedbook.projections.sessions.queries import find_session

accomplished_max: Final = 200

_DONE: Final = {
    "handoff.task_checked": "task done: ",
    "handoff.criterion_checked": "criterion met: ",
    "handoff.completed": "completed",
}

TICKED: Final = (_DONE["handoff.task_checked"], _DONE["handoff.criterion_checked"])
"""Lines of a report with these beginnings are about one task or criterion."""

_GROUNDS: Final = tuple(name for name in Grounds.__struct_fields__ if name != "text")
_GROUNDS_WORDS: Final = {
    "criteria": "{verified} of {criteria} met criteria verified by a reviewer",
    "findings": "{retracted} of {findings} findings and dead ends retracted",
    "tests": "tests used: {tests}",
    "reasonings": "{stand} of {reasonings} reasonings stand",
}
_TEST: Final = re.compile(r"(?i)\btest|test\b|unittest|pytest|jest\b|mocha|rspec|\btox\b|\bnox\b")
_STRETCHES: Final = (
    "SELECT id, author, started_index AS first, coalesce(ended_index, 9223372036854775807) AS last FROM sessions "
    "WHERE imported IS NULL AND id "
)
# Read once for all sessions. Otherwise each of 500 sessions that never ended would be read to the log's end separately.
_TICKED: Final = (
    "SELECT l.event_index, l.author, l.handoff_id, l.kind, l.position, l.text, h.status FROM handoff_log l "
    "JOIN handoffs h ON h.id = l.handoff_id WHERE l.event_index > ? AND l.event_index < ? "
    "AND l.kind = 'handoff.criterion_checked' ORDER BY l.event_index"
)
_STANDS: Final = (
    "(SELECT v.passed = 1 AND v.unlinked = 0 FROM validations v WHERE v.reasoning_ref = r.ref AND v.author <> r.author "
    "ORDER BY v.event_index DESC LIMIT 1)"
)
_COUNTED: Final = (
    "SELECT s.id AS session_id, s.findings + s.dead_ends AS findings, "  # noqa: S608 - fixed texts
    "(SELECT count(DISTINCT target) FROM corrections c WHERE c.session_id = s.id AND c.kind <> 'unknown.resolved') "
    "AS retracted, (SELECT count(*) FROM reasonings r WHERE r.session = s.id) AS reasonings, "
    f"(SELECT count(*) FROM reasonings r WHERE r.session = s.id AND {_STANDS}) AS stand FROM sessions s WHERE s.id "
)


class CalibrationFilter(Arguments, frozen=True):
    """``ai_id`` or ``author`` selects one agent (default: all); at most ``limit`` points of each are listed.

    ``agent`` is the author, or the label that an imported report claims.
    """

    ai_id: str | None = None
    author: str | None = None
    agent: str | None = None
    imported: bool | None = None
    since: Since | None = None
    until: Until | None = None
    limit: Limit = 50


def calibration(context: QueryContext, args: CalibrationFilter) -> Calibrations:
    """Return how well agents judge themselves."""
    where = Where(args, "ai_id", "author")
    where.equal(AGENT.format("handoff_reports"), args.agent)
    where.within("happened_ms", args.since, args.until)
    if args.imported:
        where.add("imported IS NOT NULL")
    if args.author is not None or args.imported is False:
        where.add("imported IS NULL")  # the author of an imported report is only its importer
    sql = (
        "SELECT ai_id, session_id, report_id, timestamp, calibration_status, epistemic_deltas, imported "  # noqa: S608
        f"FROM handoff_reports{where.sql} ORDER BY ai_id, happened_ms, event_index"
    )
    agents: dict[str, list[_Judgement]] = {}
    for row in context.rows(sql, where.values):
        agents.setdefault(row["ai_id"], []).append(_judgement(row))
    answers = []
    for ai_id, judgements in agents.items():
        shown = judgements[-args.limit :]
        grounds = grounds_of(context, *(judgement.session_id for judgement in shown))
        points = [CalibrationPoint(**judgement._asdict(), grounds=grounds[judgement.session_id]) for judgement in shown]
        answers.append(_agent(ai_id, judgements, points))
    return Calibrations(items=answers)


def grounds_of(context: QueryContext, *sessions: str) -> dict[str, Grounds]:
    """Return the grounds of sessions.

    A criterion counts as verified if the handoff in which the session's author ticked it was verified; a finding or
    dead end as retracted; a tool as a test if its name says so; a reasoning as valid if its newest validation by
    another agent passed.
    """
    counts = {name: dict.fromkeys(_GROUNDS, 0) for name in sessions}
    among = f"IN ({', '.join('?' * len(sessions))})"
    stretches = context.rows(_STRETCHES + among, sessions)
    bounds = [
        min((stretch["first"] for stretch in stretches), default=0),
        max((stretch["last"] for stretch in stretches), default=0),
    ]
    ticked: dict[str, list[dict[str, Any]]] = {stretch["author"]: [] for stretch in stretches}
    for row in context.rows(_TICKED, bounds):
        if row["author"] in ticked:
            ticked[row["author"]].append(row)
    for stretch in stretches:
        rows = ticked[stretch["author"]]
        begin, end = (bisect_left(rows, stretch[bound], key=itemgetter("event_index")) for bound in ("first", "last"))
        statuses = [row["status"] for row in _finished(rows[begin:end])]
        counts[stretch["id"]] |= {"criteria": len(statuses), "verified": statuses.count("verified")}
    for row in context.rows(_COUNTED + among, sessions):
        counts[row["session_id"]] |= {name: row[name] for name in ("findings", "retracted", "reasonings", "stand")}
    for row in context.rows(f"SELECT * FROM tools_used WHERE session_id {among}", sessions):  # noqa: S608 - marks alone
        counts[row["session_id"]]["tests"] += bool(_TEST.search(f"{row['tool']} {row['purpose']}"))
    return {name: _grounds(numbers) for name, numbers in counts.items()}


def _grounds(counts: Mapping[str, int]) -> Grounds:
    parts = [text.format(**counts) for name, text in _GROUNDS_WORDS.items() if counts[name]]
    return Grounds(**counts, text=f"evidence: {', '.join(parts) or 'nothing that was recorded'}")


def accomplished(context: QueryContext, args: ById) -> Accomplishments:
    """Return what the session's author completed in handoffs.

    That is every task done, criterion met and handoff completed by that author between the start and the end of the
    session (the end of the log while it is open), unless it was undone there too. Texts are whole.
    """
    session = find_session(context, args.id)
    sql = (
        "SELECT event_index, handoff_id, kind, position, text FROM handoff_log WHERE author = ? AND event_index > ? "
        "AND event_index < coalesce(?, 9223372036854775807) AND kind IN (?, ?, ?) ORDER BY event_index"
    )
    values = (session["author"], session["started_index"], session["ended_index"], *_DONE)
    rows = (
        [] if session["imported"] else context.rows(sql, values)
    )  # the author of an imported session is only its importer
    done = [f"{row['text']} (handoff {row['handoff_id']})" for row in _finished(rows)]
    return Accomplishments(items=done[:accomplished_max])


def bias_text(bias: float | None) -> str:
    """Return one sentence about an agent's mean bias dk - du."""
    if bias is None:
        return "No report of this agent assesses KNOW and UNCERTAINTY on both sides, so nothing can be said."
    status = label_of_bias(bias)
    if bias == 0:
        return "Knowledge grew as much as uncertainty fell: no bias."
    more, less = ("Uncertainty fell", "knowledge grew") if bias < 0 else ("Knowledge grew", "uncertainty fell")
    meaning = {
        "overconfident": "the agent tends to be overconfident.",
        "underconfident": "the agent tends to be underconfident.",
        "well_calibrated": f"within the {bias_above:.2f} that count as well calibrated.",
    }
    return f"{more} by {abs(bias):.2f} more than {less} on average: {meaning[status]}"


class _Judgement(NamedTuple):
    """A report's row in figures; the fields are those of ``CalibrationPoint``."""

    timestamp: str
    session_id: str
    report_id: str
    dk: float | None
    du: float | None
    bias: float | None
    status: Calibration
    imported: Imported | None


def _judgement(row: dict[str, Any]) -> _Judgement:
    deltas = read_json(row["epistemic_deltas"], Deltas)
    return _Judgement(
        timestamp=row["timestamp"],
        session_id=row["session_id"],
        report_id=row["report_id"],
        dk=deltas.know,
        du=None if deltas.uncertainty is None else 0.0 - deltas.uncertainty,
        bias=bias_of(deltas.know, deltas.uncertainty),
        status=row["calibration_status"],
        imported=decoded(row["imported"]),
    )


def _agent(ai_id: str, judgements: list[_Judgement], points: list[CalibrationPoint]) -> AgentCalibration:
    biases = [judgement.bias for judgement in judgements if judgement.bias is not None]
    bias = round(sum(biases) / len(biases), decimals) + 0.0 if biases else None
    statuses = [judgement.status for judgement in judgements]
    return AgentCalibration(
        ai_id=ai_id,
        points=points,
        counts={status: statuses.count(status) for status in get_args(Calibration)},
        total=len(judgements),
        claimed=sum(judgement.imported is not None for judgement in judgements),
        assessed=len(biases),
        bias=bias,
        meaning=bias_text(bias),
        grounds=_grounds({name: sum(getattr(point.grounds, name) for point in points) for name in _GROUNDS}),
    )


def _finished(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was done and not undone later, each once, in the order of the log."""
    finished: dict[tuple[str, str, int | None], dict[str, Any]] = {}
    for row in rows:
        finished.pop(key := (row["handoff_id"], row["kind"], row["position"]), None)
        if row["text"].startswith(_DONE[row["kind"]]):
            finished[key] = row
    return list(finished.values())
