"""The board: handoffs in one column a status, all from one moment, with true totals (`list --board`)."""

from __future__ import annotations

from typing import Final, get_args

from ledger.lifecycle.handoff import Status
from projections.handoffs.queries import LISTING, with_dependencies
from projections.query import Answer, Arguments, Limit, Moment, Where, page_of

COLUMNS: Final[tuple[str, ...]] = ("pending", "approved", "in_progress", "blocked", "completed")
OVER: Final[tuple[str, ...]] = tuple(status for status in get_args(Status) if status not in COLUMNS)


class Board(Arguments, frozen=True, rename={"sender": "from", "receiver": "to", "is_all": "all"}):
    """Filters as of a list, and how many cards a column shows; ``all`` shows the cards of what is over, too."""

    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    is_all: bool = False
    limit: Limit = 20


def board(moment: Moment, asked: Board) -> Answer:
    """Return ``{"columns": [{"status", "total", "handoffs"}]}``, the newest first in each column.

    The columns of what is over stand last, without cards unless they are asked for.
    """
    columns = []
    for status in (*COLUMNS, *OVER):
        where = Where()
        where.equal("h.status", status)
        for column, value in (("sender", asked.sender), ("receiver", asked.receiver)):
            where.equal(f"h.{column}", value)
        where.equal("coalesce(h.reviewer, h.sender)", asked.reviewer)
        if status in COLUMNS or asked.is_all:
            rows, total, _ = page_of(moment, LISTING, where, None, asked.limit, moment.now_ms)
        else:
            rows, total = [], moment.count(f"SELECT count(*) FROM handoffs h{where.sql}", where.values)  # noqa: S608 - fixed texts
        columns.append({"status": status, "total": total, "handoffs": with_dependencies(moment, rows)})
    return {"columns": columns}
