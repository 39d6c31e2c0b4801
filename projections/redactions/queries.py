"""Queries about redactions, and about the refs that a redaction of an entry must name."""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.events.authority import redacted_versions_max
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import Index, Page
from deedbook.projections.redactions.answers import FormerVersions, ListedRedaction

_LISTING: Final = query.Listing(
    'SELECT r.event_index, r.entry, r.event, e.kind, e.stream, e.author, r.author AS "by", r.accepted_ms AS at_ms, '
    "r.reason, CASE WHEN e.body_ref = r.remnant THEN 1 ELSE 0 END AS is_erased "
    "FROM redactions r JOIN events e ON e.event_index = r.entry",
    "redactions r JOIN events e ON e.event_index = r.entry",
    "r.event_index",
)


class RedactionList(query.ListArguments, frozen=True):
    """The filters of a list, newest first: ``entry`` is the erased entry, ``by`` the author of the redaction."""

    entry: Index | None = None
    stream: str | None = None
    by: str | None = None


class EntryArguments(query.Arguments, frozen=True):
    """``entry`` is the index of an entry."""

    entry: Index


def list_redactions(context: query.QueryContext, args: RedactionList) -> Page[ListedRedaction]:
    """Return redactions, newest first."""
    where = query.Where()
    for column, value in (("r.entry", args.entry), ("e.stream", args.stream), ("r.author", args.by)):
        where.equal(column, value)
    return query.list_of(context, _LISTING, where, args, _listed)


def former_versions(context: query.QueryContext, args: EntryArguments) -> FormerVersions:
    """Return the refs that ``entry.redacted`` names as ``versions``: those that change if this entry is erased.

    If a reasoning has very many versions, those that an event cites come first, and then the newest.
    """
    rows = context.rows(
        "SELECT v.version, v.ref FROM reasoning_versions v JOIN reasoning_versions erased "
        "ON erased.reasoning_id = v.reasoning_id AND erased.version <= v.version WHERE erased.event_index = ?1 "
        "ORDER BY CASE WHEN EXISTS (SELECT 1 FROM event_refs cited WHERE cited.ref = v.ref) THEN 0 ELSE 1 END, "
        "v.version DESC LIMIT ?2",
        (args.entry, redacted_versions_max),
    )
    return FormerVersions(versions={row["version"]: row["ref"] for row in sorted(rows, key=lambda row: row["version"])})


def _listed(row: dict[str, Any]) -> ListedRedaction:
    return ListedRedaction(**row | {"is_erased": bool(row["is_erased"])})
