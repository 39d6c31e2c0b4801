"""The timeline: the operations in a part of the past, by agent, and who passed work to whom.

Imported records are on the lanes of their claimed authors, at their claimed times.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.families import installed
from deedbook.ledger.format.forms import OWN
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.catalog.answers import Lane, Lanes, SessionSpan, TimelineEvent
from deedbook.projections.catalog.facets import FacetListArguments, narrow, of_types
from deedbook.projections.catalog.words import did, words_of
from deedbook.projections.records.marks import AGENT

sessions_shown_max: Final = 200

OPERATIONS: Final = (
    *dict.fromkeys(
        row.kind for row in rules_of("handoff").rows if row.to is not None and row.kind != "record.imported"
    ),
    *("reasoning.assumption_settled", "reasoning.step_retracted", "reasoning.concluded", "reasoning.validated"),
    *("session.started", "report.generated", "review.requested", "review.answered"),
    *("decision.made", "decision.withdrawn", "question.asked", "question.answered", "question.settled"),
    *("key.compromised", OWN),
)
"""The core's types of events on the timeline, with all declared kinds.

A family brings its own. A filter by type shows others, too.
"""
# The agent that has to act next.
_TO: Final = """CASE WHEN e.type = 'handoff.created' THEN nullif(h.receiver, '')
    WHEN e.type = 'handoff.completed' THEN coalesce(h.reviewer, h.sender)
    WHEN e.type IN ('handoff.changes_requested', 'handoff.rejected') THEN nullif(h.receiver, '') END"""
LISTING: Final = query.Listing(
    f"SELECT e.event_index, e.accepted_ms, e.happened_ms, e.kind, e.type, e.stream, e.author, e.agent, e.key, e.text, "  # noqa: S608 - fixed texts
    f"{_TO} AS passed_to "
    "FROM events e LEFT JOIN handoffs h ON h.id = substr(e.stream, 9) AND substr(e.stream, 1, 8) = 'handoff/'",
    "events e",
    "e.event_index",
    time="e.happened_ms",
    cursors="events",
)
_AGENT: Final = AGENT.format("s")
# A session of imported records ends with the last of them, but is listed where it begins.
_SESSIONS: Final = f"""
    SELECT s.id, {_AGENT} AS agent, s.task, s.status, s.happened_ms AS from_ms,
        CASE WHEN s.imported IS NULL THEN s.ended_ms
            ELSE (SELECT max(e.happened_ms) FROM events e WHERE e.stream = 'session/' || s.id) END AS to_ms
    FROM sessions s
    WHERE s.happened_ms <= ? AND {_AGENT} = coalesce(?, {_AGENT})
        AND CASE WHEN s.imported IS NULL THEN coalesce(s.ended_ms, 9007199254740992) ELSE s.happened_ms END >= ?
    ORDER BY s.happened_ms DESC, s.id LIMIT ?"""  # noqa: S608 - fixed texts


class LaneFilter(FacetListArguments, frozen=True):
    """The filters of the timeline, which lists the newest events first."""


def lanes_of_agents(context: query.QueryContext, args: LaneFilter) -> Lanes:
    """Return operations, newest first, with the lanes and sessions of that part of the past."""
    shown = (*OPERATIONS, *(kind for family in installed() for kind in family.timeline))
    where = of_types(query.Where(), None if args.type else shown)
    rows, total, following = query.page_of(context, LISTING, narrow(where, args), args.after, args.limit)
    words = words_of(context, (row["event_index"] for row in rows))
    items = [
        TimelineEvent(**row, did=did(row | {"text": text}, words[index].line), title=words[index].title)
        for row in rows
        for index, text in ((row["event_index"], row.pop("text")),)
    ]
    is_first_page, is_last_page = args.after is None, following is None
    last_ms = 2**53 if is_first_page or not items else items[0].happened_ms
    first_ms = (args.since or UNDATED_MS) if is_last_page or not items else items[-1].happened_ms
    span = narrow(query.Where(), args)
    span.add("e.happened_ms BETWEEN ? AND ?", first_ms, last_ms)
    kinds: dict[str, dict[str, int]] = {}
    for row in context.rows(
        f"SELECT e.agent, e.type, count(*) AS number FROM events e{span.sql} GROUP BY 1, 2",  # noqa: S608 - fixed texts
        span.values,
    ):
        kinds.setdefault(row["agent"], {})[row["type"]] = row["number"]
    lanes = [Lane(agent=agent, events=sum(numbers.values()), kinds=numbers) for agent, numbers in kinds.items()]
    sessions = context.rows(_SESSIONS, (last_ms, args.agent, first_ms, sessions_shown_max))
    return Lanes(
        items=items,
        total=total,
        next=following,
        first_ms=first_ms,
        last_ms=last_ms,
        lanes=sorted(lanes, key=lambda lane: (-lane.events, lane.agent)),
        sessions=[SessionSpan(**row) for row in sessions],
    )
