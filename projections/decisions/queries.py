"""Queries about decisions: those about some paths, and one with what it replaces."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    ById,
    Entries,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Since,
    Until,
    Where,
    json_list,
    page_of,
    page_rows_max,
    with_json,
)
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.decisions.answers import Decision, DecisionStatus, ShownDecision
from deedbook.projections.decisions.fold import DecisionRow
from deedbook.projections.decisions.paths import folders_of, keys_of

paths_max: Final = 100
Paths: TypeAlias = Annotated[
    list[str], msgspec.Meta(max_length=paths_max, description="Files and folders of the project.")
]
LISTING: Final = Listing("SELECT d.* FROM decisions d", "decisions d", "d.made_index")
_REPLACED: Final = (
    "SELECT superseded_by AS by, id FROM decisions WHERE superseded_by IN (SELECT value FROM json_each(?)) ORDER BY id"
)
# A decision about a folder is about each file in it. A query for a folder finds the decisions about files in it.
_ABOUT: Final = (
    "d.id IN (SELECT p.decision_id FROM decision_paths p WHERE p.path IN (SELECT value FROM json_each(?))"
    " OR EXISTS (SELECT 1 FROM json_each(?) AS wanted WHERE substr(p.path, 1, length(wanted.value)) = wanted.value))"
)


class DecisionList(ListArguments, frozen=True):
    """The filters of a list, newest first; ``paths`` selects decisions about these files or folders, or parts of them.

    ``since`` and ``until`` limit the time of the decision.
    """

    paths: Paths | None = None
    status: DecisionStatus | None = None
    author: str | None = None
    contract: bool | None = None
    superseded_by: str | None = None
    since: Since | None = None
    until: Until | None = None
    entries: Entries | None = None


def list_decisions(context: QueryContext, args: DecisionList) -> Page[Decision]:
    """Return decisions, newest first."""
    where = Where()
    for column in ("status", "author", "contract", "superseded_by"):
        where.equal(f"d.{column}", getattr(args, column))
    where.within("d.made_ms", args.since, args.until)
    where.of_entries("d.id", args.entries, "decision")
    if args.paths is not None:
        keys = keys_of(args.paths)
        around = list(dict.fromkeys(folder for key in keys for folder in folders_of(key)))
        where.add(_ABOUT, json_list(around), json_list(f"{key}/" if key else "" for key in keys))
    page, total, following = page_of(context, LISTING, where, args.after, args.limit)
    replaced: dict[str, list[str]] = {row["id"]: [] for row in page}
    for row in context.rows(_REPLACED, (json_list(replaced),)) if page else ():
        replaced[row["by"]].append(row["id"])
    return Page(items=[Decision(**_fields(row, replaced[row["id"]])) for row in page], total=total, next=following)


def confirm_decisions(source: RowSource, page: Page[Decision], args: DecisionList) -> Page[Decision]:
    """Return a page with the content from signed entries, without decisions that the entries do not confirm."""
    names = {name for item in page.items for name in (item.id, *item.supersedes)}
    states = source.states("decisions", DecisionRow, names)
    rows = {name: msgspec.structs.asdict(state) for name, state in states.items()}
    items = []
    for name in (item.id for item in page.items):
        if (row := rows.get(name)) is not None:
            replaced = sorted(other for other, old in rows.items() if old["superseded_by"] == name)
            items.append(Decision(**_fields(row, replaced)))
    items = [item for item in items if _passes(item, args)]
    return Page(items=items, total=page.total - len(page.items) + len(items), next=page.next)


def _passes(decision: Decision, args: DecisionList) -> bool:
    if any(
        getattr(args, field) not in (None, getattr(decision, field))
        for field in ("status", "author", "contract", "superseded_by")
    ):
        return False
    if args.since is not None and decision.made_ms < args.since:
        return False
    if args.until is not None and decision.made_ms >= args.until:
        return False
    if args.paths is None:
        return True
    own = keys_of(decision.paths)
    return any(key in folders_of(other) or other in folders_of(key) for key in keys_of(args.paths) for other in own)


def show_decision(source: RowSource, args: ById) -> ShownDecision:
    """Return a decision, with what replaced it, or why it was withdrawn."""
    name = source.id_of("decision", args.id)
    row = msgspec.structs.asdict(source.states("decisions", DecisionRow, [name])[name])
    replaced = source.view("decisions.list", {"superseded_by": name, "limit": page_rows_max}, Page[Decision])
    return ShownDecision(**_fields(row, [decision.id for decision in replaced.items]))


def _fields(row: dict[str, Any], supersedes: list[str]) -> Plain:
    return with_json(row, "paths") | {"contract": bool(row["contract"]), "supersedes": supersedes}
