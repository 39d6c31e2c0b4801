"""The board of handoffs: a column for each status, its cards newest first, each with what it waits for."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from deedbook.ledger.lifecycle.handoff_status import Status, stage_of
from deedbook.projections.answers.query import QueryContext
from deedbook.projections.answers.rows import ViewRows
from deedbook.projections.handoffs.answers import BoardColumn, BoardColumns, HandoffCard
from deedbook.projections.handoffs.dependencies import known_facts
from deedbook.projections.handoffs.queries import LISTING, Board, filtered, history_left_out, summaries
from deedbook.projections.handoffs.record import records_of
from deedbook.projections.handoffs.why import explain

# Finished statuses come last on the board, by default without cards.
COLUMNS: Final[tuple[Status, ...]] = tuple(sorted(get_args(Status), key=lambda status: stage_of(status) == "over"))
card_links_max: Final = 2
"""The most links of a chain of handoffs that a card names; `handoffs.why` follows the whole chain."""


def board(context: QueryContext, args: Board) -> BoardColumns:
    """Return the handoffs of each status, the newest first, all of one snapshot."""
    every = filtered(args, None)
    counting = f"SELECT h.status, count(*) AS total FROM handoffs h{every.sql} GROUP BY h.status"  # noqa: S608 - fixed texts
    totals: dict[Status, int] = {row["status"]: row["total"] for row in context.rows(counting, every.values)}
    with_cards = [status for status in totals if args.is_all or stage_of(status) != "over"]
    filters = [filtered(args, status) for status in with_cards]
    queries = [
        (
            f"{LISTING.select}{where.sql} ORDER BY {LISTING.order()} LIMIT ?",
            (context.now_ms, *where.values, args.limit),
        )
        for where in filters
    ]
    rows = [row for column in context.together(*queries) for row in column]
    source = ViewRows(context)
    known = known_facts(source, records_of(source, [row["id"] for row in rows]), card_links_max)
    cards: dict[Status, list[HandoffCard]] = {}
    for line in summaries(context, rows):
        reasons = explain(known[line.id], known, card_links_max).reasons
        card = HandoffCard(
            **msgspec.structs.asdict(line),
            why=reasons[0].text if reasons else "",
            reasons_more=max(0, len(reasons) - 1),
        )
        cards.setdefault(line.status, []).append(card)
    columns = [
        BoardColumn(status=status, total=totals.get(status, 0), handoffs=cards.get(status, [])) for status in COLUMNS
    ]
    return BoardColumns(columns=columns, history=history_left_out(context, args, None))
