"""Questions about snapshots: list them, and one whole, as its author signed it."""

from __future__ import annotations

from typing import Final

from deedbook.projections.answers.query import (
    Answer,
    Arguments,
    ById,
    Listing,
    Page,
    QueryContext,
    Where,
    list_of,
    row_of_id,
    with_json,
)

_COLUMNS: Final = (
    "event_index, id, event_id, author, session_id, domain, reasoning_ref, reasoning_fidelity, level, "
    "context_source, context_summary, conclusion, accepted_ms"
)

LISTING: Final = Listing(f"SELECT {_COLUMNS} FROM snapshots", "snapshots", "event_index")  # noqa: S608 - fixed names


class SnapshotList(Page, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    session_id: str | None = None
    reasoning_ref: str | None = None


class DomainsOf(Arguments, frozen=True):
    """A version of a graph by its whole ref."""

    reasoning_ref: str


def list_snapshots(context: QueryContext, args: SnapshotList) -> Answer:
    """Return ``{"snapshots", "total", "next"}``, newest first, without their ``data``."""
    where = Where(args, "author", "session_id", "reasoning_ref")
    return list_of(context, LISTING, where, args, of="snapshots")


def show_snapshot(context: QueryContext, args: ById) -> Answer:
    """Return a snapshot with its whole ``data``."""
    return with_json(row_of_id(context, "snapshots", args.id, "snapshot"), "data")


def list_domains(context: QueryContext, args: DomainsOf) -> Answer:
    """Return ``{"domains"}``: those under which this graph was started, which no snapshot of it may talk away."""
    sql = (
        "SELECT DISTINCT domain FROM reasonings JOIN reasoning_versions ON reasoning_id = id "
        "WHERE reasoning_versions.ref = ? ORDER BY domain"
    )
    return {"domains": [row["domain"] for row in context.rows(sql, (args.reasoning_ref,))]}
