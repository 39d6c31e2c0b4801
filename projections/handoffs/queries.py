"""Questions about handoffs: lists and the board, one with all about it, why, and what programs go by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from deedbook.ledger.lifecycle.handoff_status import FINAL, Status
from deedbook.projections.answers import query
from deedbook.projections.handoffs.facts import (
    CLAIMABLE,
    NEXT_LEASE,
    UNLOCKED,
    HandoffFacts,
    asked_facts,
    facts_in,
    facts_of,
    links_of,
    stage_of,
)
from deedbook.projections.handoffs.next import acts_awaited
from deedbook.projections.handoffs.why import chain_links_max, explain

# Rows of an `active.md` table: they stand in that table and have no file of their own.
TABLE_FORMAT: Final = "handoff/active-table"

SUMMARY: Final = f"""
    SELECT h.id, h.status, h.title, h.sender, h.receiver, h.reviewer, h.created, h.tasks_done, h.tasks_total,
        h.criteria_done, h.criteria_total, h.claimed_status, h.reason, h.created_index,
        h.updated_index, h.updated_ms, h.importer,
        ({CLAIMABLE} AND {UNLOCKED}) AS is_ready
    FROM handoffs h"""  # noqa: S608 - fixed texts, never a caller's value
LISTING: Final = query.Listing(SUMMARY, "handoffs h", "h.created_index")
# What a whole one is read from; what else is known of it stands in its facts.
_PARTS: Final = (
    "SELECT * FROM handoffs WHERE id = ?",
    "SELECT * FROM handoff_tasks WHERE handoff_id = ? ORDER BY position",
    "SELECT position, text, mark, evidence, waiver_reason FROM handoff_criteria WHERE handoff_id = ? ORDER BY position",
    """SELECT d.depends_on AS id, o.status FROM handoff_dependencies d LEFT JOIN handoffs o ON o.id = d.depends_on
        WHERE d.handoff_id = ? ORDER BY d.position""",
    """SELECT DISTINCT o.id, o.status FROM handoff_dependencies d JOIN handoffs o ON o.id = d.handoff_id
        WHERE d.depends_on = ? ORDER BY o.id""",
    "SELECT id, status FROM handoffs WHERE answers = ? ORDER BY id",
    """SELECT event_index, day, at, author, kind, text, position FROM handoff_log WHERE handoff_id = ?
        ORDER BY event_index""",
)
_FILES: Final = query.Listing("SELECT id, created_index FROM handoffs", "handoffs", "created_index", newest_first=False)
# What a program needs that acts on a handoff, or imports over it: two words of a whole one.
_BRIEFLY: Final = (
    'SELECT id, sender AS "from", importer, receiver AS "to", reviewer, status, version, completion, claimed_status, '
    "claimed_done, updated_ms, source, original, format, template_index FROM handoffs"
)
# What is over stands last on the board, without cards unless they are asked for.
COLUMNS: Final[tuple[Status, ...]] = tuple(sorted(get_args(Status), key=lambda status: stage_of(status) == "over"))


class HandoffList(query.Page, frozen=True, rename={"sender": "from", "receiver": "to"}):
    """Filters of a list, newest first."""

    status: Status | None = None
    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    ready: bool | None = None


class Board(query.Arguments, frozen=True, rename={"sender": "from", "receiver": "to", "is_all": "all"}):
    """Filters as of a list, and how many cards a column shows; ``all`` shows the cards of what is over, too."""

    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    is_all: bool = False
    limit: query.Limit = 20


class FilesWanted(query.Arguments, frozen=True):
    """Which handoffs have a file; ``finished`` ones only when args for. ``after`` is the ``next`` of a page."""

    finished: bool = False
    after: int | None = None
    limit: query.Limit = query.page_rows_max


class Unannounced(query.Arguments, frozen=True):
    """What could be announced as ready: all of it, or one handoff (by its whole id) and those that wait for it."""

    about: str | None = None
    limit: query.Limit = 50


def find_handoff(context: query.QueryContext, args: str) -> str:
    """Return the whole id of a handoff, by its id, its file's name (``ID.md``) or an unambiguous beginning of it."""
    whole: str = _row(context, args, "SELECT id FROM handoffs")["id"]
    return whole


def _row(context: query.QueryContext, args: str, select: str = "SELECT * FROM handoffs") -> dict[str, Any]:
    name, sql = args.removeprefix("handoff/"), f"{select} WHERE id = ?"
    if rows := context.rows(sql, (name,)):
        return rows[0]
    (row,) = context.rows(sql, (query.by_beginning(context, "handoffs", name.removesuffix(".md"), args, "handoff"),))
    return row


def list_handoffs(context: query.QueryContext, args: HandoffList) -> query.Answer:
    """Return ``{"handoffs", "total", "next"}``, newest first."""
    where, now_ms = _where(args, args.status), context.now_until(NEXT_LEASE)
    if args.ready is not None:
        where.add(f"({CLAIMABLE} AND {UNLOCKED}) IS {'' if args.ready else 'NOT '}TRUE", now_ms)
    page, total, following = query.page_of(context, LISTING, where, args.after, args.limit, now_ms)
    found = context.rows(*_dependencies(page)) if page else []
    return {"handoffs": _summaries(page, found), "total": total, "next": following}


def board(context: query.QueryContext, args: Board) -> query.Answer:
    """Return ``{"columns": [{"status", "total", "handoffs"}]}``, the newest first in each column, all of one context.

    A handoff is one of ``handoffs.list`` with ``why``: in words what it waits for, empty for one that can be claimed.
    """
    every = _where(args, None)
    counting = f"SELECT h.status, count(*) AS total FROM handoffs h{every.sql} GROUP BY h.status"  # noqa: S608 - fixed texts
    totals: dict[Status, int] = {row["status"]: row["total"] for row in context.rows(counting, every.values)}
    filled = [status for status in totals if args.is_all or stage_of(status) != "over"]
    wheres = [_where(args, status) for status in filled]
    found = context.together(
        *[
            (
                f"{LISTING.select}{where.sql} ORDER BY {LISTING.order()} LIMIT ?",
                (context.now_ms, *where.values, args.limit),
            )
            for where in wheres
        ]
    )
    shown = [row for rows in found for row in rows]
    depended, facts = (
        context.together(_dependencies(shown), asked_facts(row["id"] for row in shown)) if shown else ([], [])
    )
    known = _known(context, facts_in(context, facts))

    cards: dict[str, list[query.Answer]] = {}
    for card in _summaries(shown, depended):
        card["why"] = "; ".join(reason["text"] for reason in explain(known[card["id"]], known)["reasons"])
        cards.setdefault(card["status"], []).append(card)
    return {
        "columns": [
            {"status": status, "total": totals.get(status, 0), "handoffs": cards.get(status, [])} for status in COLUMNS
        ]
    }


def _where(args: HandoffList | Board, status: Status | None) -> query.Where:
    where = query.Where()
    for column, value in (("status", status), ("receiver", args.receiver), ("sender", args.sender)):
        where.equal(f"h.{column}", value)
    where.equal("coalesce(h.reviewer, h.sender)", args.reviewer)
    return where


def show_handoff(context: query.QueryContext, args: query.ById) -> query.Answer:
    """Return everything about one handoff: content, checks, log, dependencies with their status, and ``why``."""
    found = context.together(*_parts(args.id.removeprefix("handoff/")))
    if not found[0]:
        found = context.together(*_parts(find_handoff(context, args.id)))
    (row,), tasks, criteria, depends_on, dependents, answered_by, log, facts = found
    shown = _renamed(row)
    shown |= {of: msgspec.json.decode(row[of]) for of in ("notes", "artifacts", "reasoning_refs", "result_refs")}
    shown["tasks"] = [{"position": one["position"], "text": one["text"], "done": bool(one["is_done"])} for one in tasks]
    shown |= {"criteria": criteria, "depends_on": depends_on, "dependents": dependents, "answered_by": answered_by}
    shown["log"] = [line | {"line": f"- {line['day']} [{line['author']}] {line['text']}"} for line in log]
    shown["why"] = _why(context, facts_in(context, facts)[row["id"]])
    shown["is_ready"] = shown["why"]["is_ready"]
    return shown


def _parts(name: str) -> list[tuple[str, tuple[str]]]:
    return [*((sql, (name,)) for sql in _PARTS), asked_facts([name])]


def why_handoff(context: query.QueryContext, args: query.ById) -> query.Answer:
    """Return why a handoff is ready or not, as ``explain`` does, and whom it waits for (``waits``) with which act."""
    facts = facts_of(context, [args.id.removeprefix("handoff/")])
    (handoff,) = (facts or facts_of(context, [find_handoff(context, args.id)])).values()
    return _why(context, handoff)


def _why(context: query.QueryContext, handoff: HandoffFacts) -> query.Answer:
    return explain(handoff, _known(context, {handoff.id: handoff})) | {"waits": acts_awaited(context, handoff)}


def _known(context: query.QueryContext, known: dict[str, HandoffFacts]) -> dict[str, HandoffFacts]:
    """Return the facts of handoffs and of all that ``explain`` asks for them, read a level at a time."""
    frontier = list(known.values())
    for depth in range(chain_links_max + 1):
        # What is asked about may also be work whose lease ran out: it waits anew.
        held = [here for here in frontier if not depth or stage_of(here.status) == "waiting"]
        if new := {on for here in held for on in here.depends_on} - known.keys():
            known |= links_of(context, new)
        unmet = ([on for on in here.depends_on if not here.is_unlocked_by(known.get(on))] for here in held)
        following = {on for names in unmet for on in (names[:1] if depth else names)}
        frontier = [known[on] for on in following & known.keys()]
    return known


def facts_of_handoff(context: query.QueryContext, args: query.ById) -> query.Answer:
    """Return in brief who a handoff's parties are, its status and version, what it claims and where it came from."""
    return _row(context, args.id, _BRIEFLY)


def existing_handoffs(context: query.QueryContext, args: query.ByIds) -> query.Answer:
    """Return ``{"handoffs": {id: …}}``, each as ``handoffs.facts`` answers it; unknown ids are left out."""
    sql = _BRIEFLY + " WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed texts
    rows = context.rows(sql, (query.json_list(args.ids),))
    return {"handoffs": {row["id"]: row for row in rows}}


def files_of_handoffs(context: query.QueryContext, args: FilesWanted) -> query.Answer:
    """Return ``{"ids", "next"}``: those that have a file, the oldest first."""
    where = query.Where()
    where.add("(format IS NULL OR format <> ?)", TABLE_FORMAT)
    if not args.finished:
        where.add(f"status NOT IN ({', '.join('?' for _ in FINAL)})", *sorted(FINAL))
    page, _, following = query.page_of(context, _FILES, where, args.after, args.limit)
    return {"ids": [row["id"] for row in page], "next": following}


def unannounced_handoffs(context: query.QueryContext, args: Unannounced) -> query.Answer:
    """Return ``{"handoffs": [{"id", "to", "version"}]}``: what can be claimed and was not announced as ready."""
    where = query.Where()
    where.add(f"h.status IN ('approved', 'in_progress') AND h.is_announced = 0 AND {CLAIMABLE}", context.now_ms)
    where.add(UNLOCKED)
    if args.about is not None:
        where.add(
            "(h.id = ? OR h.id IN (SELECT d.handoff_id FROM handoff_dependencies d WHERE d.depends_on = ?))",
            args.about,
            args.about,
        )
    # Fixed texts; what is asked for is bound.
    sql = f'SELECT h.id, h.receiver AS "to", h.version FROM handoffs h{where.sql} ORDER BY h.created_index LIMIT ?'  # noqa: S608
    return {"handoffs": context.rows(sql, (*where.values, args.limit))}


def _dependencies(rows: Iterable[dict[str, Any]]) -> tuple[str, tuple[str]]:
    sql = (
        "SELECT d.handoff_id, d.depends_on AS id, o.status FROM handoff_dependencies d "
        "LEFT JOIN handoffs o ON o.id = d.depends_on WHERE d.handoff_id IN (SELECT value FROM json_each(?)) "
        "ORDER BY d.handoff_id, d.position"
    )
    return sql, (query.json_list(row["id"] for row in rows),)


def _summaries(rows: list[dict[str, Any]], depended: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of ``SUMMARY`` as they are answered, each with ``depends_on``: ids and their status."""
    found: dict[str, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
    for wanted in depended:
        found[wanted.pop("handoff_id")].append(wanted)
    return [summary(row) | {"depends_on": found[row["id"]]} for row in rows]


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    names = {"sender": "from", "receiver": "to"}
    return {names.get(name, name): value for name, value in row.items()}


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``SUMMARY`` as it is answered."""
    return _renamed(row) | {"is_ready": bool(row["is_ready"])}
