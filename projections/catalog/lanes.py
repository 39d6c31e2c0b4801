"""The timeline: the operations in a part of the log, by agent, and who passed work to whom."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.answers import query
from deedbook.projections.catalog.answers import Lane, Lanes, SessionSpan, TimelineEvent

sessions_shown_max: Final = 200

_ACTS: Final = (
    *dict.fromkeys(
        row.kind for row in rules_of("handoff").rows if row.to is not None and row.kind != "record.imported"
    ),
    *("reasoning.assumption_settled", "reasoning.step_retracted", "reasoning.concluded", "reasoning.validated"),
    *("report.generated", "review.requested", "review.answered"),
    *("decision.made", "decision.withdrawn", "question.asked", "question.answered", "question.settled"),
    *("tot.started", "tot.search_complete", "key.compromised"),
)
# The agent that has to act next.
_TO: Final = """CASE WHEN e.kind = 'handoff.created' THEN nullif(h.receiver, '')
    WHEN e.kind = 'handoff.completed' THEN coalesce(h.reviewer, h.sender)
    WHEN e.kind IN ('handoff.changes_requested', 'handoff.rejected') THEN nullif(h.receiver, '') END"""
LISTING: Final = query.Listing(
    f"SELECT e.event_index, e.accepted_ms, e.kind, e.stream, e.author, e.key, h.title, {_TO} AS passed_to "  # noqa: S608 - fixed texts
    "FROM events e LEFT JOIN handoffs h ON h.id = substr(e.stream, 9) AND substr(e.stream, 1, 8) = 'handoff/'",
    "events e",
    "e.event_index",
)
_FIRST: Final = "SELECT coalesce(min(event_index), 9007199254740992) FROM events WHERE accepted_ms >= ?"


class LaneFilter(query.ListArguments, frozen=True):
    """The operations since a time, newest first; with ``agent``, only those of that agent."""

    since: query.Since | None = None
    agent: str | None = None


def lanes_of_agents(context: query.QueryContext, args: LaneFilter) -> Lanes:
    """Return operations, newest first, with the lanes and sessions of that part of the log."""
    where = query.Where()
    where.add(f"e.kind IN ({', '.join('?' * len(_ACTS))})", *_ACTS)
    where.add_optional("e.accepted_ms >= ?", args.since)
    where.add_optional("e.author = ?", args.agent)
    page = query.list_of(context, LISTING, where, args, lambda row: TimelineEvent(**row))
    last = page.items[0].event_index if args.after is not None and page.items else 2**53
    first = page.items[-1].event_index if page.next is not None else context.count(_FIRST, (args.since or 0,))
    span = query.Where()
    span.add("event_index BETWEEN ? AND ?", first, last)
    span.equal("author", args.agent)
    kinds: dict[str, dict[str, int]] = {}
    for row in context.rows(
        f"SELECT author, kind, count(*) AS number FROM events{span.sql} GROUP BY 1, 2",  # noqa: S608 - fixed texts
        span.values,
    ):
        kinds.setdefault(row["author"], {})[row["kind"]] = row["number"]
    lanes = [Lane(agent=agent, events=sum(numbers.values()), kinds=numbers) for agent, numbers in kinds.items()]
    sessions = context.rows(
        "SELECT id, author, task, status, started_index AS from_index, ended_index AS to_index FROM sessions "
        "WHERE started_index <= ? AND coalesce(ended_index, updated_index) >= ? AND author = coalesce(?, author) "
        "ORDER BY started_index DESC LIMIT ?",
        (last, first, args.agent, sessions_shown_max),
    )
    return Lanes(
        items=page.items,
        total=page.total,
        next=page.next,
        first_index=first,
        last_index=last,
        lanes=sorted(lanes, key=lambda lane: (-lane.events, lane.agent)),
        sessions=[SessionSpan(**row) for row in sessions],
    )
