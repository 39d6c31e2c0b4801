"""The success metrics of a ledger: how much its transfers cost, keep and save, counted from its own events.

- **Tokens**: those of the published briefs and snapshots at each level beside the whole graph, and of the compressed
  reports.
- **Fidelity** and **coverage** are the measured figures of published briefs: coverage is the share of a graph's key
  facts that its brief holds, so that they can be checked without the graph.
- **Time**: from the end of a session to the start of the one that resumes it (``pause``), from that start to its first
  record (``until_ready``), and from a handoff's approval to its claim (``until_claimed``). The ledger's clock decides.
- **Questions**: what a session did not know. Those of sessions that resume another are beside those of all others; of a
  handoff, the unknowns and reviews of its receiver between the claim and the completion.

A figure without any event is null: nothing is estimated. Imported records do not count, because another tool measured
them by its own rules and its times are claims.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, Final, get_args

from deedbook.ledger.events.brief import Level
from deedbook.ledger.events.reasoning import ReasoningBriefed
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers.query import Arguments, QueryContext, Since
from deedbook.projections.briefs.tokens import count_tokens, tokenizer
from deedbook.projections.reports.answers import (
    FidelityMetrics,
    Figure,
    Metrics,
    QuestionMetrics,
    TimeMetrics,
    TokenMetrics,
    TransferMetrics,
)

transfers_measured_max: Final = 100  # the newest of each kind
digits: Final = 4
# As the metric defines them: a standard transfer under 700 tokens, a report about 800, fidelity over .90 and .75.
TOKEN_TARGETS: Final = {"minimal": 200, "standard": 700, "report": 800}
FIDELITY_TARGETS: Final = {"minimal": 0.90, "standard": 0.75}
coverage_target: Final = 0.80
_SESSIONS: Final = (
    "SELECT s.id, s.resumes, s.unknowns, s.started_ms, p.id AS previous, "
    "coalesce(p.ended_ms, u.accepted_ms) AS left_ms FROM sessions s "
    "LEFT JOIN sessions p ON p.id = s.resumes AND p.imported IS NULL "
    "LEFT JOIN events u ON u.event_index = p.updated_index WHERE s.imported IS NULL AND s.started_ms >= ?"
)
_FIRST_RECORDS: Final = (
    "SELECT e.stream, min(e.accepted_ms) AS at_ms FROM events e "
    "WHERE e.stream >= 'session/' AND e.stream < 'session0' AND e.kind <> 'session.started' AND e.accepted_ms >= ? "
    "GROUP BY e.stream"
)
_HANDOFF_EVENTS: Final = (
    "SELECT e.stream, e.kind, e.author, e.accepted_ms, e.event_index FROM events e "
    "WHERE e.kind IN ('handoff.approved', 'handoff.claimed', 'handoff.completed') AND e.accepted_ms >= ? "
    "ORDER BY e.event_index"
)
_QUESTIONS: Final = (
    "SELECT e.author, e.event_index FROM events e "
    "WHERE e.kind IN ('unknown.logged', 'review.requested') AND e.accepted_ms >= ? ORDER BY e.event_index"
)


class MetricsFilter(Arguments, frozen=True):
    """Only events that the ledger accepted at ``since`` (Unix ms) or later count."""

    since: Since | None = None


def metrics(context: QueryContext, args: MetricsFilter) -> Metrics:
    """Return the success metrics of this ledger."""
    since = args.since or 0
    return Metrics(
        tokens=_tokens(context, since),
        fidelity=_fidelity(context, since),
        time=_times(context, since),
        questions=_questions(context, since),
        tokenizer=tokenizer().name,
        exact=tokenizer().exact,
    )


def _figure(values: Sequence[float]) -> Figure | None:
    """Return count, mean, median and maximum of values; None if there is none."""
    if not values:
        return None
    return Figure(
        count=len(values),
        mean=round(fmean(values), digits),
        median=round(float(median(values)), digits),
        max=round(float(max(values)), digits),
    )


def _newest(context: QueryContext, sql: str, since: int, *values: str) -> list[dict[str, Any]]:
    return context.rows(f"{sql} ORDER BY event_index DESC LIMIT ?", (since, *values, transfers_measured_max))


def _tokens(context: QueryContext, since: int) -> TokenMetrics:
    briefs: dict[Level, TransferMetrics] = {}
    for level in get_args(Level):
        rows = _newest(context, "SELECT tokens, data FROM briefs WHERE accepted_ms >= ? AND level = ?", since, level)
        full = [read_json(row["data"], ReasoningBriefed).brief.sizes.full for row in rows]
        briefs[level] = TransferMetrics(
            transferred=_figure([row["tokens"] for row in rows]),
            full=_figure(full),
            saved=_saved([row["tokens"] for row in rows], full),
            target=TOKEN_TARGETS.get(level),
        )
    taken = _newest(context, "SELECT data FROM snapshots WHERE accepted_ms >= ? AND reasoning_ref IS NOT NULL", since)
    sizes = [size for row in taken if (size := read_json(row["data"], SnapshotTaken).reasoning_size) is not None]
    compressed, full = [size.compressed for size in sizes], [size.full for size in sizes]
    reports = "SELECT compressed_json FROM handoff_reports WHERE imported IS NULL AND happened_ms >= ?"
    counts = [count_tokens(row["compressed_json"]) for row in _newest(context, reports, since)]
    return TokenMetrics(
        briefs=briefs,
        snapshots=TransferMetrics(
            transferred=_figure(compressed),
            full=_figure(full),
            saved=_saved(compressed, full),
            target=TOKEN_TARGETS["standard"],
        ),
        reports=TransferMetrics(transferred=_figure(counts), full=None, saved=None, target=TOKEN_TARGETS["report"]),
    )


def _saved(transferred: Sequence[int], full: Sequence[int]) -> float | None:
    """Return the share of the tokens that did not have to be transferred."""
    return round(1 - sum(transferred) / sum(full), digits) if sum(full) else None


def _fidelity(context: QueryContext, since: int) -> dict[Level, FidelityMetrics]:
    levels: dict[Level, FidelityMetrics] = {}
    for level in get_args(Level):
        rows = _newest(context, "SELECT data FROM briefs WHERE accepted_ms >= ? AND level = ?", since, level)
        measured = [read_json(row["data"], ReasoningBriefed).brief.fidelity for row in rows]
        covered = [fidelity.R for fidelity in measured if fidelity.R is not None]
        levels[level] = FidelityMetrics(
            fidelity=_figure([fidelity.value for fidelity in measured]),
            target=FIDELITY_TARGETS.get(level),
            coverage=_figure(covered),
            coverage_target=coverage_target,
        )
    return levels


def _times(context: QueryContext, since: int) -> TimeMetrics:
    pauses, ready = [], []
    first_records = {row["stream"]: row["at_ms"] for row in context.rows(_FIRST_RECORDS, (since,))}
    for row in context.rows(_SESSIONS, (since,)):
        if row["previous"] is None:
            continue
        pauses.append((row["started_ms"] - row["left_ms"]) / 1000)
        if (first := first_records.get(f"session/{row['id']}")) is not None:
            ready.append((first - row["started_ms"]) / 1000)
    approved: dict[str, int] = {}
    claims = []
    for row in context.rows(_HANDOFF_EVENTS, (since,)):
        if row["kind"] == "handoff.approved":
            approved[row["stream"]] = row["accepted_ms"]
        elif row["kind"] == "handoff.claimed" and row["stream"] in approved:
            claims.append((row["accepted_ms"] - approved.pop(row["stream"])) / 1000)
    return TimeMetrics(pause_s=_figure(pauses), until_ready_s=_figure(ready), until_claimed_s=_figure(claims))


def _questions(context: QueryContext, since: int) -> QuestionMetrics:
    sessions = context.rows(_SESSIONS, (since,))
    resumed = [row["unknowns"] for row in sessions if row["resumes"]]
    others = [row["unknowns"] for row in sessions if not row["resumes"]]
    asked: dict[str, list[int]] = {}
    for row in context.rows(_QUESTIONS, (since,)):
        asked.setdefault(row["author"], []).append(row["event_index"])
    claimed: dict[str, tuple[str, int]] = {}
    counts = []
    for row in context.rows(_HANDOFF_EVENTS, (since,)):
        if row["kind"] == "handoff.claimed":
            claimed[row["stream"]] = (row["author"], row["event_index"])
        elif row["kind"] == "handoff.completed" and row["stream"] in claimed:
            agent, first = claimed.pop(row["stream"])
            indexes = asked.get(agent, [])
            counts.append(bisect_left(indexes, row["event_index"]) - bisect_left(indexes, first))
    return QuestionMetrics(
        resumed_sessions=_figure(resumed), other_sessions=_figure(others), completed_handoffs=_figure(counts)
    )
