"""Lists of handoffs, from rows that the fold wrote. This module imports no fold, because a list must start fast."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.lifecycle.handoff_status import FINAL, Status
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import Page
from deedbook.projections.handoffs.lines import (
    HandoffLine,
    HandoffPage,
    LinkedHandoff,
    NewLine,
    References,
    UnannouncedHandoff,
    UnannouncedHandoffs,
)
from deedbook.projections.reasoning.route import Route, Tag

VALID: Final = (
    "(w.leased IS NULL OR w.leased = CASE WHEN ? BETWEEN w.lease_from_ms AND w.lease_until_ms - 1 THEN 1 ELSE 0 END)"
)
"""An SQL condition: the row ``w`` of ``handoff_waits`` is valid at a time (Unix ms)."""
IS_READY: Final = f"EXISTS (SELECT 1 FROM handoff_waits w WHERE w.handoff_id = h.id AND w.action = 'claim' AND {VALID})"  # noqa: S608 - fixed texts
"""Whether the receiver of the handoff ``h`` can claim it at a time (Unix ms)."""
READY: Final = f"SELECT w.handoff_id FROM handoff_waits w WHERE w.action = 'claim' AND {VALID}"  # noqa: S608 - fixed texts
"""The handoffs that their receivers can claim at a time (Unix ms)."""
# Rows of an `active.md` table: they have no file of their own.
TABLE_FORMAT: Final = "handoff/active-table"

SUMMARY: Final = f"""
    SELECT h.id, h.status, h.title, h.sender, h.receiver, h.reviewer, h.created, h.tasks_done, h.tasks_total,
        h.criteria_done, h.criteria_total, h.claimed_author, h.claimed_at, h.claimed_status, h.reason, h.is_history,
        h.created_index, h.happened_ms, h.updated_index, h.updated_ms, h.changed_ms, h.importer,
        {IS_READY} AS is_ready
    FROM handoffs h"""  # noqa: S608 - fixed texts, never a caller's value
LISTING: Final = query.Listing(SUMMARY, "handoffs h", "h.created_index", time="h.happened_ms", cursors="handoffs")
_BY_CHANGE: Final = msgspec.structs.replace(LISTING, time="h.changed_ms")
_REFERENCES: Final = (
    """SELECT DISTINCT o.id, o.status FROM handoff_dependencies d JOIN handoffs o ON o.id = d.handoff_id
        WHERE d.depends_on = ? ORDER BY o.id""",
    "SELECT id, status FROM handoffs WHERE answers = ? ORDER BY id",
)
_FILES: Final = query.Listing("SELECT id, created_index FROM handoffs", "handoffs", "created_index", newest_first=False)

# The lines that others signed after the entry ?2 and that concern the agent ?1, family by family.
_LINES: Final = (
    """SELECT l.event_index, 'handoff/' || l.handoff_id AS stream, l.handoff_id AS id, h.title, l.author, l.kind,
        l.accepted_ms, l.text
    FROM handoff_log l JOIN handoffs h ON h.id = l.handoff_id
    WHERE l.event_index > ?2 AND l.author <> ?1 AND NOT (l.kind = 'record.imported' AND h.is_history = 1)
        AND (h.sender = ?1 OR h.importer = ?1 OR h.receiver = ?1 OR h.reviewer = ?1
            OR h.id IN (SELECT w.handoff_id FROM handoff_waits w WHERE w.agent = ?1)
            OR h.id IN (SELECT o.handoff_id FROM handoff_log o WHERE o.author = ?1))""",
    """SELECT made_index AS event_index, 'decision/' || id AS stream, id, text AS title, author,
        'decision.made' AS kind, made_ms AS accepted_ms, 'decided: ' || text AS text
    FROM decisions WHERE made_index > ?2 AND author <> ?1""",
    """SELECT ended_index AS event_index, 'decision/' || id AS stream, id, text AS title, ended_by AS author,
        'decision.withdrawn' AS kind, ended_ms AS accepted_ms,
        CASE WHEN superseded_by IS NULL THEN 'withdrew: ' ELSE 'replaced it by ' || superseded_by || ': ' END || text
            AS text
    FROM decisions WHERE ended_index > ?2 AND ended_by <> ?1""",
    """SELECT asked_index AS event_index, 'question/' || id AS stream, id, question AS title, author,
        'question.asked' AS kind, asked_ms AS accepted_ms,
        'asks ' || receiver || CASE WHEN place IS NULL THEN '' ELSE ' about ' || place END || ': ' || question AS text
    FROM questions WHERE asked_index > ?2 AND receiver = ?1""",
    """SELECT answered_index AS event_index, 'question/' || id AS stream, id, question AS title, receiver AS author,
        'question.answered' AS kind, answered_ms AS accepted_ms, 'answers: ' || answer AS text
    FROM questions WHERE answered_index > ?2 AND author = ?1""",
    """SELECT settled_index AS event_index, 'question/' || id AS stream, id, question AS title, settled_by AS author,
        'question.settled' AS kind, settled_ms AS accepted_ms,
        'settled this question' || CASE WHEN comment = '' THEN '' ELSE ': ' || comment END AS text
    FROM questions WHERE settled_index > ?2 AND settled_by <> ?1 AND (receiver = ?1 OR author = ?1)""",
)
_COUNT: Final = f"SELECT count(*) AS total FROM ({' UNION ALL '.join(_LINES)}) AS lines"  # noqa: S608 - fixed texts
# Each family gives its first lines from an index. Ordering them all together would read all their texts.
_FIRST_LINES: Final = (f"SELECT * FROM ({lines} ORDER BY 1 LIMIT ?3) AS lines{at}" for at, lines in enumerate(_LINES))  # noqa: S608 - as above
_UNREAD: Final = f"{' UNION ALL '.join(_FIRST_LINES)} ORDER BY event_index LIMIT ?3"


History: TypeAlias = Annotated[
    Literal["hidden", "only", "shown"],
    msgspec.Meta(description="Imported handoffs that claim to be over, and that nobody here has confirmed."),
]

Progress: TypeAlias = Literal["waiting", "done", "given_up"]
_DONE: Final = "(h.is_history = 1 OR h.status IN ('completed', 'verified'))"
_GIVEN_UP: Final = "h.status IN ('rejected', 'cancelled', 'superseded')"
_PROGRESS: Final[dict[Progress, str]] = {
    "waiting": f"NOT ({_DONE} OR {_GIVEN_UP})",
    "done": _DONE,
    "given_up": _GIVEN_UP,
}


class HandoffList(query.ListArguments, frozen=True, rename={"sender": "from", "receiver": "to"}):
    """The filters of a list, newest first; without ``history`` it has no imported handoff that claims to be over.

    ``agent`` is a party: the sender, the receiver, the reviewer, or the author that an imported file claims.
    ``progress`` selects handoffs by their result: reported (``done``, also by the claim of an imported file), still to
    be reported, or given up. ``tag`` is a tag of a reasoning that the handoff or its result cites. ``since`` and
    ``until`` limit the time of the last change; ``by_change`` sorts by this time, so a page may repeat handoffs that
    changed after the previous page.
    """

    status: Status | None = None
    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    agent: str | None = None
    ready: bool | None = None
    progress: Progress | None = None
    tag: Tag | None = None
    since: query.Since | None = None
    until: query.Until | None = None
    entries: query.Entries | None = None
    by_change: bool = False
    history: History = "hidden"


class Board(query.Arguments, frozen=True, rename={"sender": "from", "receiver": "to", "is_all": "all"}):
    """The filters are those of ``handoffs.list``; ``limit`` is the number of cards in a column.

    ``all`` also shows the cards of finished handoffs. Without ``history`` the board counts no imported handoff that
    claims to be over.
    """

    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    is_all: bool = False
    history: History = "hidden"
    limit: query.Limit = 20


class FileFilter(query.Arguments, frozen=True, rename={"is_all": "all"}):
    """``all`` includes handoffs that are over, also by the claim of an imported file.

    ``after`` is the ``next`` of the previous page.
    """

    is_all: bool = False
    after: int | None = None
    limit: query.Limit = query.page_rows_max


class UnreadFilter(query.Arguments, frozen=True):
    """``after`` is the last entry that was read: pass the ``next`` of a page to get the next page."""

    agent: str
    after: int = -1
    limit: query.Limit = query.page_rows_max


class UnannouncedFilter(query.Arguments, frozen=True):
    """``id`` selects one handoff, by its whole id, and those that wait for it (default: all)."""

    id: str | None = None
    limit: query.Limit = 50


def list_handoffs(context: query.QueryContext, args: HandoffList) -> HandoffPage:
    """Return handoffs, newest first, and the number of those that are left out as history."""
    where = filtered(args, args.status)
    if args.ready is not None:
        where.add(f"h.id {'' if args.ready else 'NOT '}IN ({READY})", context.now_ms)
    listing = _BY_CHANGE if args.by_change else LISTING
    page, total, following = query.page_of(context, listing, where, args.after, args.limit, context.now_ms)
    left_out = history_left_out(context, args, args.status)
    return HandoffPage(items=summaries(context, page), total=total, next=following, history=left_out)


def history_left_out(context: query.QueryContext, args: HandoffList | Board, status: Status | None) -> int:
    """Return how many of the handoffs that ``filtered`` would match are left out as history."""
    if args.history != "hidden":
        return 0
    where = filtered(msgspec.structs.replace(args, history="only"), status)
    return context.count(f"SELECT count(*) FROM handoffs h{where.sql}", tuple(where.values))  # noqa: S608 - fixed texts


def filtered(args: HandoffList | Board, status: Status | None) -> query.Where:
    """Return the conditions that select the handoffs of a list, or those of one column of the board."""
    where = query.Where()
    for column, value in (("status", status), ("receiver", args.receiver), ("sender", args.sender)):
        where.equal(f"h.{column}", value)
    where.equal("coalesce(h.reviewer, h.sender)", args.reviewer)
    if isinstance(args, HandoffList):
        if args.agent is not None:
            where.add("? IN (h.sender, h.receiver, h.reviewer, h.claimed_author)", args.agent)
        if args.progress is not None:
            where.add(_PROGRESS[args.progress])
        if args.tag is not None:
            where.add(f"h.id IN ({Route(args.tag, None).handoffs()})", args.tag, args.tag)
        where.within("h.changed_ms", args.since, args.until)
        where.of_entries("h.id", args.entries, "handoff")
    if args.history != "shown":
        where.add(f"h.is_history = {1 if args.history == 'only' else 0}")
    return where


def references_to_handoff(context: query.QueryContext, args: query.ById) -> References:
    """Return the handoffs that depend on one, and those that answer it. The id is whole."""
    found = context.together(*((sql, (args.id,)) for sql in _REFERENCES))
    dependents, answered_by = ([LinkedHandoff(**row) for row in rows] for rows in found)
    return References(dependents=dependents, answered_by=answered_by)


def files_of_handoffs(context: query.QueryContext, args: FileFilter) -> Page[str]:
    """Return the ids of the handoffs that have a file, the oldest first."""
    where = query.Where()
    where.add("(format IS NULL OR format <> ?)", TABLE_FORMAT)
    if not args.is_all:
        where.add(f"is_history = 0 AND status NOT IN ({', '.join('?' for _ in FINAL)})", *sorted(FINAL))
    page, total, following = query.page_of(context, _FILES, where, args.after, args.limit)
    return Page(items=[row["id"] for row in page], total=total, next=following)


def lines_for_agent(context: query.QueryContext, args: UnreadFilter) -> Page[NewLine]:
    """Return what others signed that concerns an agent, in the order of the log.

    A handoff concerns its parties, the agents that signed events on it, and those it waits for, for example for an
    answer. A question concerns the agents that asked it or were asked. A decision concerns every agent. The import of a
    handoff that claims to be over is left out.
    """
    concerned = (args.agent, args.after)
    (counted,), rows = context.together((_COUNT, concerned), (_UNREAD, (*concerned, args.limit + 1)))
    page = rows[: args.limit]
    following = page[-1]["event_index"] if len(rows) > args.limit else None
    return Page(items=[NewLine(**row) for row in page], total=counted["total"], next=following)


def unannounced_handoffs(context: query.QueryContext, args: UnannouncedFilter) -> UnannouncedHandoffs:
    """Return claimable handoffs that were not announced as ready."""
    where = query.Where()
    where.add(f"h.is_announced = 0 AND h.id IN ({READY})", context.now_ms)
    if args.id is not None:
        where.add(
            "(h.id = ? OR h.id IN (SELECT d.handoff_id FROM handoff_dependencies d WHERE d.depends_on = ?))",
            args.id,
            args.id,
        )
    # The SQL is fixed; arguments are bound.
    sql = f"SELECT h.id, h.receiver, h.version FROM handoffs h{where.sql} ORDER BY h.created_index LIMIT ?"  # noqa: S608
    rows = context.rows(sql, (*where.values, args.limit))
    return UnannouncedHandoffs(handoffs=[UnannouncedHandoff(**row) for row in rows])


def summaries(context: query.QueryContext, rows: list[dict[str, Any]]) -> list[HandoffLine]:
    """Return rows of ``SUMMARY`` as answers, with what they depend on."""
    sql = (
        "SELECT d.handoff_id, d.depends_on AS id, o.status FROM handoff_dependencies d "
        "LEFT JOIN handoffs o ON o.id = d.depends_on WHERE d.handoff_id IN (SELECT value FROM json_each(?)) "
        "ORDER BY d.handoff_id, d.position"
    )
    dependencies: dict[str, list[LinkedHandoff]] = {row["id"]: [] for row in rows}
    for dependency in context.rows(sql, (query.json_list(dependencies),)) if rows else ():
        dependencies[dependency.pop("handoff_id")].append(LinkedHandoff(**dependency))
    return [HandoffLine(**with_ready(row), depends_on=dependencies[row["id"]]) for row in rows]


def with_ready(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``SUMMARY`` with its truth values."""
    return row | {name: bool(row[name]) for name in ("is_ready", "is_history")}
