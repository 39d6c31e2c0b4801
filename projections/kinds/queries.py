"""Queries about declared kinds: those that fit a stream or a role, and one with its schema."""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    ById,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Where,
    list_of,
    with_json,
)
from deedbook.projections.kinds.answers import DeclaredKind, ShownKind

LISTING: Final = Listing("SELECT k.* FROM kinds k", "kinds k", "k.declared_index")
_NUMBERS: Final = "SELECT count(*) AS events, max(event_index) AS last_index FROM events WHERE kind = ?"


class KindList(ListArguments, frozen=True):
    """The filters of a list, newest first; ``stream_type`` is for example ``x.deploy``."""

    stream_type: str | None = None
    role: str | None = None


def list_kinds(context: QueryContext, args: KindList) -> Page[DeclaredKind]:
    """Return the declared kinds, newest first."""
    where = Where()
    where.equal("k.stream_type", args.stream_type)
    if args.role is not None:
        where.add("EXISTS (SELECT 1 FROM json_each(k.roles) AS of WHERE of.value = ?)", args.role)
    return list_of(context, LISTING, where, args, lambda row: DeclaredKind(**_fields(context, row)))


def show_kind(context: QueryContext, args: ById) -> ShownKind:
    """Return a declared kind with its schema, by its name."""
    rows = context.rows("SELECT * FROM kinds WHERE name = ?", (args.id,))
    if not rows:
        alike = near(args.id, (row["name"] for row in context.rows("SELECT name FROM kinds", ())))
        hint = did_you_mean(alike) or ": `deed kind list` shows those that there are"
        raise Refused("NOT_FOUND", f"no kind {args.id} is declared here{hint}", id=args.id, near=alike)
    fields = _fields(context, rows[0]) | with_json(rows[0], "schema")
    return ShownKind(**fields | {"roles": with_json(rows[0], "roles")["roles"]})


def _fields(context: QueryContext, row: dict[str, Any]) -> Plain:
    (numbers,) = context.rows(_NUMBERS, (row["name"],))
    bare = {name: value for name, value in row.items() if name != "schema"}
    return with_json(bare, "roles") | numbers
