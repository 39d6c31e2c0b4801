"""Queries about snapshots: list them, and one whole, as its author signed it."""

from __future__ import annotations

from typing import Final

from deedbook.projections.answers.query import (
    Arguments,
    ById,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Where,
    plain_list_of,
    with_json,
)
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.reasoning.queries import with_version
from deedbook.projections.snapshots.fold import SNAPSHOTS

_COLUMNS: Final = (
    "event_index, id, event_id, author, session_id, domain, reasoning_ref, reasoning_fidelity, level, "
    "context_source, context_summary, conclusion, accepted_ms"
)

LISTING: Final = Listing(f"SELECT {_COLUMNS} FROM snapshots", "snapshots", "event_index")  # noqa: S608 - fixed names


class SnapshotList(ListArguments, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    session_id: str | None = None
    reasoning_ref: str | None = None


class DomainFilter(Arguments, frozen=True):
    """A graph version by its whole ref."""

    reasoning_ref: str


def list_snapshots(context: QueryContext, args: SnapshotList) -> Plain:
    """Return ``{"snapshots", "total", "next"}``, newest first, without their ``data``."""
    where = Where(args, "author", "session_id", "reasoning_ref")
    return plain_list_of(context, LISTING, where, args, of="snapshots")


def show_snapshot(source: RowSource, args: ById) -> Plain:
    """Return a snapshot with its whole ``data``."""
    row, *_ = source.select(SNAPSHOTS, "event_index", id=source.id_of("snapshot", args.id))
    return with_json(row, "data")


def list_domains(source: RowSource, args: DomainFilter) -> Plain:
    """Return ``{"domains"}``: the domains of this graph's reasonings, which no snapshot of it may hide."""
    return {"domains": sorted({row["domain"] for row in with_version(source, args.reasoning_ref)})}
