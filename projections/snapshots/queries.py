"""Questions about snapshots: list them, and one whole, as its author signed it."""

from __future__ import annotations

from typing import Final

import msgspec

from projections.query import Answer, Arguments, Limit, Listing, Moment, Where, by_beginning, page_of

_COLUMNS: Final = (
    "event_index, id, event_id, author, session_id, domain, reasoning_ref, reasoning_fidelity, level, "
    "context_source, context_summary, conclusion, accepted_ms"
)

LISTING: Final = Listing(f"SELECT {_COLUMNS} FROM snapshots", "snapshots", "event_index")  # noqa: S608 - fixed names


class SnapshotList(Arguments, frozen=True):
    """Filters of a list; ``after`` is the ``next`` of the page before (newest first)."""

    author: str | None = None
    session_id: str | None = None
    reasoning_ref: str | None = None
    after: int | None = None
    limit: Limit = 50


class SnapshotName(Arguments, frozen=True):
    """A snapshot by its id or an unambiguous beginning of it."""

    id: str


class DomainsOf(Arguments, frozen=True):
    """A version of a graph by its whole ref."""

    reasoning_ref: str


def list_snapshots(moment: Moment, asked: SnapshotList) -> Answer:
    """Return ``{"snapshots", "total", "next"}``, newest first, without their ``data``."""
    where = Where()
    for column in ("author", "session_id", "reasoning_ref"):
        where.equal(column, getattr(asked, column))
    page, total, following = page_of(moment, LISTING, where, asked.after, asked.limit)
    return {"snapshots": page, "total": total, "next": following}


def show_snapshot(moment: Moment, asked: SnapshotName) -> Answer:
    """Return a snapshot with its whole ``data``."""
    whole = by_beginning(moment, "snapshots", asked.id.removeprefix("snapshot/"), asked.id, "snapshot")
    (row,) = moment.rows("SELECT * FROM snapshots WHERE id = ?", (whole,))
    return row | {"data": msgspec.json.decode(row["data"])}


def list_domains(moment: Moment, asked: DomainsOf) -> Answer:
    """Return ``{"domains"}``: those under which this graph was started, which no snapshot of it may talk away."""
    sql = (
        "SELECT DISTINCT domain FROM reasonings JOIN reasoning_versions ON reasoning_id = id "
        "WHERE reasoning_versions.ref = ? ORDER BY domain"
    )
    return {"domains": [row["domain"] for row in moment.rows(sql, (asked.reasoning_ref,))]}
