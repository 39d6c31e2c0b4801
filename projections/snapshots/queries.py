"""Queries about snapshots: a list, and one in full as its author signed it."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    Arguments,
    ById,
    ListArguments,
    Listing,
    QueryContext,
    Where,
    list_of,
)
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.reasoning.queries import with_version
from deedbook.projections.snapshots.answers import GraphDomains, ShownSnapshot, SnapshotLine
from deedbook.projections.snapshots.fold import SNAPSHOTS

_COLUMNS: Final = (
    "event_index, id, event_id, author, session_id, domain, reasoning_ref, reasoning_fidelity, level, "
    "context_source, context_summary, conclusion, accepted_ms"
)

LISTING: Final = Listing(f"SELECT {_COLUMNS} FROM snapshots", "snapshots", "event_index")  # noqa: S608 - fixed names


class SnapshotList(ListArguments, frozen=True):
    """The filters of a list, newest first."""

    author: str | None = None
    session: str | None = None
    reasoning_ref: str | None = None


class DomainFilter(Arguments, frozen=True):
    """``reasoning_ref`` is the whole ref of a graph version."""

    reasoning_ref: str


def list_snapshots(context: QueryContext, args: SnapshotList) -> Page[SnapshotLine]:
    """Return snapshots, newest first."""
    where = Where(args, "author", "reasoning_ref")
    where.equal("session_id", args.session)
    return list_of(context, LISTING, where, args, lambda row: SnapshotLine(**row))


def show_snapshot(source: RowSource, args: ById) -> ShownSnapshot:
    """Return a snapshot, whole."""
    row, *_ = source.select(SNAPSHOTS, "event_index", id=source.id_of("snapshot", args.id))
    return ShownSnapshot(**row | {"data": read_json(row["data"], SnapshotTaken)})


def list_domains(source: RowSource, args: DomainFilter) -> GraphDomains:
    """Return the domains of this graph's reasonings."""
    return GraphDomains(domains=sorted({row["domain"] for row in with_version(source, args.reasoning_ref)}))
