"""The needs-me queue: what waits for whom, and the command with which it goes on (issue "Handoffs", `baton next`).

``waits_for`` decides, purely, by the table ``WAITS``. The SQL that finds, orders and counts is made from the same
table, so ten thousand handoffs are never read to show ten, and what each row asks for is decided by ``waits_for``
again. An open review waits for every human. Only registered agents have a queue: an imported file may name anybody.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ledger.errors import Refused
from ledger.events.fields import Name
from projections.handoffs.next_text import command_for, why_for
from projections.handoffs.queries import UNLOCKED
from projections.query import Answer, Arguments, Limit, Moment
from projections.store import Value

Action = Literal["approve", "claim", "continue", "unblock", "verify", "review"]
Party = Literal["sender", "receiver", "reviewer"]
Case = Literal["pending", "claimable", "changes", "in_progress", "blocked", "completed"]


class HandoffStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What deciding needs to know of one handoff; ``is_lapsed`` by the ledger's clock, ``reviewer`` never absent."""

    id: str
    status: str
    sender: str
    receiver: str
    reviewer: str
    reason: str = ""
    is_unlocked: bool = True
    is_lapsed: bool = False


class Wait(NamedTuple):
    """Who must do what in a case; the smaller the ``rank``, the more urgent."""

    case: Case
    party: Party
    action: Action
    rank: int


REVIEW_RANK: Final = 1
# First what has stopped somebody's work, then what a gate holds up, then what was begun, then what could begin.
WAITS: Final = (
    Wait("blocked", "reviewer", "unblock", 0),
    Wait("changes", "receiver", "continue", 2),
    Wait("completed", "reviewer", "verify", 3),
    Wait("pending", "reviewer", "approve", 4),
    Wait("in_progress", "receiver", "continue", 5),
    Wait("claimable", "receiver", "claim", 6),
    Wait("blocked", "sender", "unblock", 7),  # for information: the reviewer or the receiver can
)

_LAPSED: Final = "(h.status = 'in_progress' AND coalesce(h.lease_until_ms <= ?1, 0))"
_CASES: Final[dict[Case, str]] = {
    "pending": "h.status = 'pending'",
    "claimable": f"h.status IN ('approved', 'in_progress') AND (h.status = 'approved' OR {_LAPSED}) AND {UNLOCKED}",
    "changes": f"h.status = 'in_progress' AND h.reason <> '' AND NOT {_LAPSED}",
    "in_progress": f"h.status = 'in_progress' AND h.reason = '' AND NOT {_LAPSED}",
    "blocked": "h.status = 'blocked'",
    "completed": "h.status = 'completed'",
}
_PARTIES: Final[dict[Party, str]] = {
    "sender": "h.sender",
    "receiver": "h.receiver",
    "reviewer": "coalesce(h.reviewer, h.sender)",
}
# What is allowed to stand: nobody reviews his own work, and a sender who reviews is told once.
_ROLES: Final[dict[Party, str]] = {
    "sender": "h.sender NOT IN (coalesce(h.reviewer, h.sender), h.receiver)",
    "receiver": "1",
    "reviewer": "coalesce(h.reviewer, h.sender) <> h.receiver",
}
_LAST: Final = "(SELECT max(l.event_index) FROM handoff_log l WHERE l.handoff_id = h.id AND l.kind IN ({}))"
_APPROVED: Final = "coalesce(h.approved_index, h.skeleton_index)"  # a human owner's own needs no approval
_GIVEN_UP: Final = _LAST.format("'handoff.claimed', 'handoff.released'")  # a claim counts here once its lease ran out
_FREED: Final = """(
    SELECT max(CASE h.unlock_at WHEN 'completed' THEN coalesce(o.completed_index, o.verified_index)
        ELSE o.verified_index END)
    FROM handoff_dependencies d JOIN handoffs o ON o.id = d.depends_on WHERE d.handoff_id = h.id)"""
# The event since which it waits: for a claim, the last of its approval, what gave it up and what unlocked it.
_SINCE: Final[dict[Case, str]] = {
    "pending": "h.skeleton_index",
    "claimable": f"max({_APPROVED}, coalesce({_GIVEN_UP}, -1), coalesce({_FREED}, -1))",
    "changes": _LAST.format("'handoff.changes_requested'"),
    "in_progress": _LAST.format("'handoff.claimed', 'handoff.unblocked'"),
    "blocked": _LAST.format("'handoff.blocked'"),
    "completed": "h.completed_index",
}
_REVIEWS: Final = (
    f"SELECT a.name AS agent, {REVIEW_RANK} AS rank, r.requested_index AS since_index, r.id AS id, 'review' AS kind "  # noqa: S608 - fixed texts
    "FROM reviews r JOIN agents a ON a.roles LIKE '%\"human\"%' "
    "WHERE r.status = 'open' AND (?2 IS NULL OR a.name = ?2)"
)
_HANDOFFS: Final = f"""
    SELECT h.id, h.title, h.status, h.sender, h.receiver, coalesce(h.reviewer, h.sender) AS reviewer, h.reason,
        h.summary, h.claimed_status, {UNLOCKED} AS is_unlocked, {_LAPSED} AS is_lapsed
    FROM handoffs h WHERE h.id IN (SELECT value FROM json_each(?2))"""  # noqa: S608 - fixed texts
_OPEN_CRITERIA: Final = (
    "SELECT handoff_id, position, text FROM handoff_criteria WHERE mark IN ('open', 'claimed') "
    "AND handoff_id IN (SELECT value FROM json_each(?)) ORDER BY handoff_id, position"
)


_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
_cursor: Final = msgspec.json.Decoder(tuple[str, _Index, _Index, str])


class NextFor(Arguments, frozen=True):
    """Whose queue (None: everybody's, one after the other); ``after`` is the ``next`` of the page before."""

    agent: Name | None = None
    after: str | None = None
    limit: Limit = 50


def case_of(standing: HandoffStanding) -> Case | None:
    """Return in which of the cases that wait for somebody a handoff stands, if in any."""
    match standing.status:
        case "in_progress" if not standing.is_lapsed:
            return "changes" if standing.reason else "in_progress"
        case "approved" | "in_progress":
            return "claimable" if standing.is_unlocked else None
        case "pending" | "blocked" | "completed":
            return standing.status
        case _:
            return None


def waits_for(standing: HandoffStanding) -> list[tuple[str, Action]]:
    """Return whom a handoff waits for, and for what; the sender of a blocked one stands last, for information."""
    case = case_of(standing)
    found = []
    for wait in WAITS:
        name: str = getattr(standing, wait.party)
        is_judge_of_own_work = wait.party == "reviewer" and name == standing.receiver
        is_told_already = wait.party == "sender" and name in (standing.reviewer, standing.receiver)
        if wait.case == case and name and not is_judge_of_own_work and not is_told_already:
            found.append((name, wait.action))
    return found


def next_items(moment: Moment, asked: NextFor) -> Answer:
    """Return ``{"items", "total", "next"}``, most urgent first; without an agent, one agent's after another's.

    An item is ``{"kind": "handoff"|"review", "id", "title", "action", "agent", "status", "from", "to", "since_index",
    "since_ms", "why", "command"}``; ``since_*`` is the event since which it waits.

    Raises:
        Refused: ``AGENT_UNKNOWN``, and ``INVALID_FIELD`` for an ``after`` that no page gave.
    """
    if asked.agent is not None and not moment.rows("SELECT name FROM agents WHERE name = ?", (asked.agent,)):
        raise Refused("AGENT_UNKNOWN", f"{asked.agent} is not registered in this ledger", name=asked.agent)
    bound: tuple[Value, ...] = (moment.now_ms, asked.agent)
    total = moment.count(f"SELECT count(*) FROM ({_candidates(with_since=False)})", bound)  # noqa: S608 - fixed texts
    condition = ""
    cursor: tuple[Value, ...] = ()
    if asked.after is not None:
        condition = " WHERE (agent, rank, since_index, id) > (?4, ?5, ?6, ?7)"
        cursor = _read_cursor(asked.after)
    order = " ORDER BY agent, rank, since_index, id LIMIT ?3"
    sql = f"SELECT * FROM ({_candidates(with_since=True)}){condition}{order}"  # noqa: S608 - fixed texts
    rows = moment.rows(sql, (*bound, asked.limit + 1, *cursor))
    page = rows[: asked.limit]
    following = None
    if len(rows) > asked.limit:
        last = [page[-1][name] for name in ("agent", "rank", "since_index", "id")]
        following = msgspec.json.encode(last).decode()
    return {"items": _items(moment, page), "total": total, "next": following}


def _candidates(*, with_since: bool) -> str:
    """Return the SELECT of all that wait; ?1 is now, ?2 the agent or NULL."""
    branches = []
    for wait in WAITS:
        since = _SINCE[wait.case] if with_since else "0"
        party = _PARTIES[wait.party]
        branches.append(
            f"SELECT a.name AS agent, {wait.rank} AS rank, {since} AS since_index, h.id AS id, 'handoff' AS kind "  # noqa: S608 - fixed texts
            f"FROM handoffs h JOIN agents a ON a.name = {party} "
            f"WHERE {_CASES[wait.case]} AND {_ROLES[wait.party]} AND (?2 IS NULL OR a.name = ?2)"
        )
    return " UNION ALL ".join((*branches, _REVIEWS))


def _read_cursor(text: str) -> tuple[Value, ...]:
    try:
        return _cursor.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Refused("INVALID_FIELD", "this cursor is not one that a page of `next` gave", path="$.after") from error


def _items(moment: Moment, page: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = msgspec.json.encode([row["id"] for row in page]).decode()
    handoffs = {row["id"]: row for row in moment.rows(_HANDOFFS, (moment.now_ms, names))}
    for one in handoffs.values():
        one["criteria"] = []
    for criterion in moment.rows(_OPEN_CRITERIA, (names,)):
        handoffs[criterion["handoff_id"]]["criteria"].append((criterion["position"] + 1, criterion["text"]))
    sql = "SELECT id, author, question, rule FROM reviews WHERE id IN (SELECT value FROM json_each(?))"
    reviews = {row["id"]: row for row in moment.rows(sql, (names,))}
    sql = "SELECT event_index, accepted_ms FROM events WHERE event_index IN (SELECT value FROM json_each(?))"
    indexes = msgspec.json.encode([row["since_index"] for row in page]).decode()
    times = {row["event_index"]: row["accepted_ms"] for row in moment.rows(sql, (indexes,))}
    items = []
    for row in page:
        item = _handoff(handoffs[row["id"]], row["agent"]) if row["kind"] == "handoff" else _review(reviews, row)
        items.append(item | {"since_index": row["since_index"], "since_ms": times[row["since_index"]]})
    return items


def _handoff(row: dict[str, Any], agent: str) -> dict[str, Any]:
    standing = msgspec.convert(row, HandoffStanding, strict=False)
    ((_, action),) = [one for one in waits_for(standing) if one[0] == agent]
    is_informed_only = action == "unblock" and agent != standing.reviewer
    return {
        "kind": "handoff",
        "id": row["id"],
        "title": row["title"],
        "action": action,
        "agent": agent,
        "status": row["status"],
        "from": row["sender"],
        "to": row["receiver"],
        "why": why_for(action, row, is_informed_only=is_informed_only),
        "command": command_for(action, agent, row, is_informed_only=is_informed_only),
    }


def _review(reviews: dict[str, dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    review, agent = reviews[row["id"]], row["agent"]
    return {
        "kind": "review",
        "id": row["id"],
        "title": review["question"],
        "action": "review",
        "agent": agent,
        "status": "open",
        "from": review["author"],
        "to": agent,
        "why": why_for("review", review),
        "command": command_for("review", agent, review),
    }
