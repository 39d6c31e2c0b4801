"""Questions of whoever keeps files in step with handoffs: which ones have a file, and where many of them stand."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from ledger.lifecycle.handoff import FINAL
from projections.query import Answer, Arguments, Limit, Moment, Where, page_rows_max

# Rows of an `active.md` table: they stand in that table and have no file of their own.
TABLE_FORMAT: Final = "handoff/active-table"


class FilesWanted(Arguments, frozen=True):
    """Which handoffs have a file; ``finished`` ones only when asked for. ``after`` is the ``next`` of a page."""

    finished: bool = False
    after: int | None = None
    limit: Limit = page_rows_max


class Standings(Arguments, frozen=True):
    """Handoffs by their whole ids."""

    ids: Annotated[list[str], msgspec.Meta(max_length=page_rows_max)]


def files_of_handoffs(moment: Moment, asked: FilesWanted) -> Answer:
    """Return ``{"ids", "next"}``, the oldest first."""
    where = Where()
    where.add("(format IS NULL OR format <> ?)", TABLE_FORMAT)
    if not asked.finished:
        where.add(f"status NOT IN ({', '.join('?' for _ in FINAL)})", *sorted(FINAL))
    if asked.after is not None:
        where.add("created_index > ?", asked.after)
    # Fixed texts; what is asked for is bound.
    sql = f"SELECT id, created_index FROM handoffs{where.sql} ORDER BY created_index LIMIT ?"  # noqa: S608
    rows = moment.rows(sql, (*where.values, asked.limit + 1))
    page = rows[: asked.limit]
    following = page[-1]["created_index"] if len(rows) > asked.limit else None
    return {"ids": [row["id"] for row in page], "next": following}


def standings_of_handoffs(moment: Moment, asked: Standings) -> Answer:
    """Return ``{"handoffs": {id: {…}}}``: parties, status, claims, origin; unknown ids are left out."""
    places = ", ".join("?" for _ in asked.ids)
    columns = (
        "id, sender AS 'from', importer, receiver AS 'to', reviewer, status, claimed_status, claimed_done, updated_ms, "
        "source, original, format, skeleton_index"
    )
    sql = f"SELECT {columns} FROM handoffs WHERE id IN ({places})"  # noqa: S608 - places for what is bound
    rows: list[dict[str, Any]] = moment.rows(sql, asked.ids) if asked.ids else []
    return {"handoffs": {row["id"]: row for row in rows}}
