"""The queue of each agent: what waits for them, why, and the operation that moves it on (`deed next`).

``waits_for`` decides, as a pure function, by the table ``WAITS``. The SQL that finds, orders and counts is made from
the same table, so showing ten handoffs never reads ten thousand. An open review waits for every human. Only registered
agents have a queue: an imported file may name anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, assert_never

import msgspec

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.fields import Name
from deedbook.projections.answers.query import Answer, Arguments, Limit, QueryContext, json_list, names_in
from deedbook.projections.handoffs.facts import (
    COMPROMISED_APPROVAL,
    RECEIVER_REMOVED,
    STUCK_ON,
    UNLOCKED,
    WAIVER_ASKED,
    HandoffFacts,
    facts_of,
)
from deedbook.projections.handoffs.why import compromised_approval_text, receiver_removed_text, stuck_text
from deedbook.projections.reviews.queries import SUPERSEDED_BY
from deedbook.projections.stores.store import Value

Action = Literal["approve", "claim", "continue", "amend", "unblock", "verify", "waive"]
Party = Literal["sender", "receiver", "reviewer"]
# The operation that moves an item on: one of a handoff (``show`` if they can only look), or the answer to a review.
Act = Literal["approve", "verify", "claim", "check", "complete", "unblock", "show", "answer", "waive"]
Case = Literal[
    "orphaned", "stuck", "pending", "claimable", "changes", "asked", "in_progress", "blocked", "completed", "imported"
]


class Wait(msgspec.Struct, frozen=True):
    """The party that must act in a case, and the action; a smaller ``rank`` is more urgent."""

    case: Case
    party: Party
    action: Action
    rank: int


criteria_named_max: Final = 5
DONE_WORDS: Final = ("completed", "verified", "done")
REVIEW_RANK: Final = 1
# First items that stopped somebody's work, then items that wait at a gate, then work in progress, then work that can
# start. Imported history is last: a hundred claims of old files must not come before what agents wait for.
WAITS: Final = (
    Wait("blocked", "reviewer", "unblock", 0),
    Wait("orphaned", "sender", "amend", 0),  # its receiver was removed
    Wait("stuck", "sender", "amend", 0),  # a dependency does not exist, or will never be done
    Wait("asked", "reviewer", "waive", 1),
    Wait("changes", "receiver", "continue", 2),
    Wait("completed", "reviewer", "verify", 3),
    Wait("pending", "reviewer", "approve", 4),
    Wait("in_progress", "receiver", "continue", 5),
    Wait("asked", "receiver", "continue", 5),
    Wait("claimable", "receiver", "claim", 6),
    Wait("blocked", "sender", "unblock", 7),  # a notice: the reviewer or the receiver can act
    Wait("imported", "reviewer", "approve", 8),
)

_LAPSED: Final = (
    "(h.status = 'in_progress' AND coalesce(?1 NOT BETWEEN h.lease_from_ms AND h.lease_until_ms - 1, FALSE))"
)
_FREE: Final = f"h.status IN ('approved', 'in_progress') AND (h.status = 'approved' OR {_LAPSED})"
# One subquery for all: per handoff it would cost a look-up.
_ORPHANED: Final = "h.receiver IN (SELECT name FROM agents WHERE removed_index IS NOT NULL)"
_HAS_RECEIVER: Final = f"NOT ({_ORPHANED})"
_WORKING: Final = f"h.status = 'in_progress' AND NOT {_LAPSED} AND {_HAS_RECEIVER}"
_CASES: Final[dict[Case, str]] = {
    "orphaned": f"h.status IN ('pending', 'approved', 'in_progress', 'blocked') AND {_ORPHANED}",
    "stuck": f"h.status IN ('pending', 'approved') AND (h.status = 'approved' OR h.sender <> h.reviewer) "
    f"AND {STUCK_ON} IS NOT NULL AND {COMPROMISED_APPROVAL} IS NULL AND {_HAS_RECEIVER}",
    # CASE, so that handoffs of other agents are skipped before the costly conditions.
    "pending": "h.status IN ('pending', 'approved', 'in_progress') AND CASE h.status WHEN 'pending' "
    f"THEN h.claimed_status IS NULL ELSE {_FREE} AND {COMPROMISED_APPROVAL} IS NOT NULL END AND {_HAS_RECEIVER}",
    "imported": f"h.status = 'pending' AND h.claimed_status IS NOT NULL AND {_HAS_RECEIVER}",
    "claimable": f"{_FREE} AND {COMPROMISED_APPROVAL} IS NULL AND {UNLOCKED} AND {_HAS_RECEIVER}",
    "asked": f"{_WORKING} AND {WAIVER_ASKED}",
    "changes": f"{_WORKING} AND h.reason <> '' AND NOT {WAIVER_ASKED}",
    "in_progress": f"{_WORKING} AND h.reason = '' AND NOT {WAIVER_ASKED}",
    "blocked": f"h.status = 'blocked' AND {_HAS_RECEIVER}",
    "completed": "h.status = 'completed'",
}
_PARTIES: Final[dict[Party, str]] = {
    "sender": "h.sender",
    "receiver": "h.receiver",
    "reviewer": "coalesce(h.reviewer, h.sender)",
}
# Nobody reviews their own work, and a sender who is also the reviewer is listed once.
_ROLES: Final[dict[Party, str]] = {
    "sender": "h.sender NOT IN (coalesce(h.reviewer, h.sender), h.receiver)",
    "receiver": "TRUE",
    "reviewer": "coalesce(h.reviewer, h.sender) <> h.receiver",
}
_ROLE_OF_AMENDER: Final = "TRUE"  # the sender may also be the reviewer: nobody else is listed
_LAST: Final = "(SELECT max(l.event_index) FROM handoff_log l WHERE l.handoff_id = h.id AND l.kind IN ({}))"
_APPROVED: Final = "coalesce(h.approved_index, h.template_index)"  # a handoff of a human owner needs no approval
_CLAIM_ENDED: Final = _LAST.format(
    "'handoff.claimed', 'handoff.released'"
)  # a claim counts here once its lease expired
_UNLOCKED_SINCE: Final = """(
    SELECT max(CASE h.unlock_at WHEN 'completed' THEN coalesce(o.completed_index, o.verified_index)
        ELSE o.verified_index END)
    FROM handoff_dependencies d JOIN handoffs o ON o.id = d.depends_on WHERE d.handoff_id = h.id)"""
# The event since which it waits. To be claimed: the last of its approval, the end of a claim, and its unlocking.
_SINCE: Final[dict[Case, str]] = {
    "orphaned": RECEIVER_REMOVED,
    "stuck": _APPROVED,
    "pending": "h.template_index",
    "imported": "h.template_index",
    "claimable": f"max({_APPROVED}, coalesce({_CLAIM_ENDED}, -1), coalesce({_UNLOCKED_SINCE}, -1))",
    "changes": _LAST.format("'handoff.changes_requested'"),
    "asked": _LAST.format("'handoff.waiver_asked'"),
    "in_progress": _LAST.format("'handoff.claimed', 'handoff.unblocked'"),
    "blocked": _LAST.format("'handoff.blocked'"),
    "completed": "h.completed_index",
}
_REVIEWS: Final = (
    f"SELECT a.name AS agent, {REVIEW_RANK} AS rank, r.requested_index AS since_index, r.id AS id, 'review' AS kind "  # noqa: S608 - fixed texts
    "FROM reviews r JOIN agents a ON a.roles LIKE '%\"human\"%' "
    f"WHERE r.status = 'open' AND {SUPERSEDED_BY} IS NULL AND a.name = coalesce(?2, a.name)"
)
_TITLES: Final = (
    "SELECT id, title, summary, reasoning_refs, result_refs, coalesce(importer, sender) AS author FROM handoffs "
    "WHERE id IN (SELECT value FROM json_each(?))"
)
_OPEN_CRITERIA: Final = (
    "SELECT handoff_id, position, text, mark, waiver_reason FROM handoff_criteria "
    "WHERE mark NOT IN ('checked', 'waived') AND handoff_id IN (SELECT value FROM json_each(?)) "
    "ORDER BY handoff_id, position"
)


_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
_cursor: Final = msgspec.json.Decoder(tuple[str, _Index, _Index, str])


class QueueFilter(Arguments, frozen=True):
    """The agent of the queue (None: all queues, one by one); ``after`` is the ``next`` of the previous page."""

    agent: Name | None = None
    after: str | None = None
    limit: Limit = 50


def is_stuck(facts: HandoffFacts) -> bool:
    """Return whether its sender must amend it, because it will never be ready."""
    is_open = facts.status == "approved" or (facts.status == "pending" and facts.sender != facts.reviewer)
    return is_open and facts.stuck_on is not None and facts.compromised_approval is None and not facts.is_orphaned


def case_of(facts: HandoffFacts) -> Case | None:
    """Return the case in which a handoff waits for somebody, other than being stuck; None: it waits for nobody."""
    if facts.is_orphaned:
        return "orphaned"
    if facts.waits_for_approval:
        return "imported" if facts.status == "pending" and facts.claimed_status is not None else "pending"
    match facts.status:
        case "in_progress" if not facts.is_lapsed:
            return "asked" if facts.is_waiver_asked else "changes" if facts.reason else "in_progress"
        case "approved" | "in_progress":
            return "claimable" if facts.is_unlocked else None
        case "blocked" | "completed":
            return facts.status
        case "pending" | "rejected" | "verified" | "cancelled" | "superseded":  # "pending" is among the above
            return None
        case _:
            assert_never(facts.status)


def waits_for(facts: HandoffFacts) -> list[tuple[str, Action]]:
    """Return the agents that a handoff waits for, each with the action; the sender of a blocked one comes last."""
    cases = {case_of(facts)} | ({"stuck"} if is_stuck(facts) else set())
    waiting = []
    for wait in WAITS:
        name: str = getattr(facts, wait.party)
        is_judge_of_own_work = wait.party == "reviewer" and name == facts.receiver
        is_told_already = wait.party == "sender" and wait.action != "amend" and name in (facts.reviewer, facts.receiver)
        if wait.case in cases and name and not is_judge_of_own_work and not is_told_already:
            waiting.append((name, wait.action))
    return waiting


def next_items(context: QueryContext, args: QueueFilter) -> Answer:
    """Return ``{"items", "total", "next"}``, most urgent first; without an agent, one agent's queue after another's.

    An item is ``{"kind": "handoff"|"review", "id", "title", "action", "agent", "status", "is_imported", "from",
    "author", "to", "reviewer", "version", "since_index", "since_ms", "why", "act", "arguments", "reasoning_refs"}``.
    ``author`` signed it; ``from`` may be only a claim of an imported file (``is_imported``: nobody here has confirmed
    it). ``since_*`` is the event since which it waits, ``act`` the act that moves it on.

    Raises Refused: ``AGENT_UNKNOWN``, and ``INVALID_FIELD`` for an ``after`` that no page returned.
    """
    if args.agent is not None and not context.rows("SELECT name FROM agents WHERE name = ?", (args.agent,)):
        alike = near(args.agent, names_in(context, "agents", "name"))
        message = f"{args.agent} is not registered in this ledger{did_you_mean(alike)}"
        raise Refused("AGENT_UNKNOWN", message, name=args.agent, near=alike)
    bound: tuple[Value, ...] = (context.now_ms, args.agent)
    condition = ""
    cursor: tuple[Value, ...] = ()
    if args.after is not None:
        condition = " WHERE (agent, rank, since_index, id) > (?4, ?5, ?6, ?7)"
        cursor = _read_cursor(args.after)
    order = " ORDER BY agent, rank, since_index, id LIMIT ?3"
    counted = f"SELECT *, count(*) OVER () AS total FROM ({_candidates()}) AS candidates"  # noqa: S608 - fixed texts
    sql = f"SELECT * FROM ({counted}) AS counted{condition}{order}"  # noqa: S608 - as above
    rows = context.rows(sql, (*bound, args.limit + 1, *cursor))
    # A cursor at the end has no rows after it, so no row has the total.
    total = rows[0]["total"] if rows else context.count(f"SELECT count(*) FROM ({_candidates()})", bound)  # noqa: S608
    page = rows[: args.limit]
    following = None
    if len(rows) > args.limit:
        last = [page[-1][name] for name in ("agent", "rank", "since_index", "id")]
        following = msgspec.json.encode(last).decode()
    return {"items": _items(context, page), "total": total, "next": following}


def _candidates() -> str:
    """Return the SELECT of all waiting items; ?1 is now, ?2 the agent or NULL."""
    branches = []
    for wait in WAITS:
        party, role = _PARTIES[wait.party], _ROLE_OF_AMENDER if wait.action == "amend" else _ROLES[wait.party]
        branches.append(
            f"SELECT a.name AS agent, {wait.rank} AS rank, {_SINCE[wait.case]} AS since_index, h.id AS id, "  # noqa: S608 - fixed texts
            f"'handoff' AS kind FROM handoffs h JOIN agents a ON a.name = {party} "
            f"WHERE {_CASES[wait.case]} AND {role} AND {party} = coalesce(?2, {party})"
        )
    return " UNION ALL ".join((*branches, _REVIEWS))


def _read_cursor(text: str) -> tuple[Value, ...]:
    try:
        return _cursor.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Refused(
            "INVALID_FIELD", "this is no cursor: pass the `next` of a previous page", path="$.after"
        ) from error


def _items(context: QueryContext, page: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = json_list(row["id"] for row in page)
    facts = facts_of(context, [row["id"] for row in page])
    texts = {row["id"]: row | {"criteria": []} for row in context.rows(_TITLES, (names,))}
    for criterion in context.rows(_OPEN_CRITERIA, (names,)):
        texts[criterion["handoff_id"]]["criteria"].append(criterion)
    sql = "SELECT id, author, question, rule, reasoning_ref FROM reviews WHERE id IN (SELECT value FROM json_each(?))"
    reviews = {row["id"]: row for row in context.rows(sql, (names,))}
    sql = (
        "SELECT event_index, accepted_ms FROM events "
        "WHERE event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
    )
    indexes = json_list(row["since_index"] for row in page)
    times = {row["event_index"]: row["accepted_ms"] for row in context.rows(sql, (indexes,))}
    items = []
    for row in page:
        id_, agent, since = row["id"], row["agent"], row["since_index"]
        is_review = row["kind"] == "review"
        item = _review(reviews[id_], agent) if is_review else _handoff(facts[id_], texts[id_], agent)
        items.append(item | {"since_index": since, "since_ms": times[since]})
    return items


def _review(review: dict[str, Any], agent: str) -> dict[str, Any]:
    return {
        "kind": "review",
        "id": review["id"],
        "title": review["question"],
        "action": "review",
        "agent": agent,
        "status": "open",
        "is_imported": False,
        "from": review["author"],
        "author": review["author"],
        "to": agent,
        "reviewer": agent,
        "version": None,
        "why": f"{review['author']} asks a human, by the rule {review['rule']}",
        "act": "answer",
        "arguments": {"approve": True},
        "reasoning_refs": [review["reasoning_ref"]] if review["reasoning_ref"] else [],
    }


def _handoff(facts: HandoffFacts, texts: dict[str, Any], agent: str) -> dict[str, Any]:
    ((_, action),) = [wait for wait in waits_for(facts) if wait[0] == agent]
    operation, arguments = _operation_of(action, agent, facts, texts["criteria"])
    own, results = (msgspec.json.decode(texts[name]) for name in ("reasoning_refs", "result_refs"))
    return {
        "kind": "handoff",
        "id": facts.id,
        "title": texts["title"],
        "action": action,
        "agent": agent,
        "status": facts.status,
        "is_imported": case_of(facts) == "imported",
        "from": facts.sender,
        "author": texts["author"],
        "to": facts.receiver,
        "reviewer": facts.reviewer,
        "version": facts.version,
        "why": _why(action, agent, facts, texts),
        "act": operation,
        "arguments": arguments,
        # To verify, the reasoning of the result comes first.
        "reasoning_refs": list(dict.fromkeys([*(results if action == "verify" else []), *own])),
    }


def awaited_operations(context: QueryContext, facts: HandoffFacts) -> list[dict[str, Any]]:
    """Return ``{"kind", "id", "agent", "act", "arguments"}`` for each agent that a handoff waits for."""
    criteria = context.rows(_OPEN_CRITERIA, (json_list([facts.id]),)) if facts.criteria_left else []
    awaited = []
    for agent, action in waits_for(facts):
        operation, arguments = _operation_of(action, agent, facts, criteria)
        awaited.append({"kind": "handoff", "id": facts.id, "agent": agent, "act": operation, "arguments": arguments})
    return awaited


def _operation_of(
    action: Action, agent: str, facts: HandoffFacts, criteria: Sequence[Mapping[str, Any]]
) -> tuple[Act, dict[str, Any]]:
    """Return the operation by which an agent moves a handoff on, and its arguments; criteria count from 1."""
    waiver_numbers = [criterion["position"] + 1 for criterion in criteria if criterion["mark"] == "asked"]
    match action:
        case "approve":
            # An imported file may claim to be done: then it is verified and not approved.
            claim = (facts.claimed_status or "").lower().split(maxsplit=1)  # text may follow the first word
            return ("verify" if claim and claim[0] in DONE_WORDS else "approve"), {}
        case "continue":
            left = [number for number in facts.criteria_left if number not in waiver_numbers]
            if not left and waiver_numbers:  # the reviewer must act
                return "show", {}
            return ("check", {"criterion_numbers": left[:1]}) if left else ("complete", {})
        case "waive":
            return "waive", {"criterion_numbers": waiver_numbers[:1]}
        case "unblock":
            return ("unblock" if agent == facts.reviewer else "show"), {}
        case "amend":
            return "show", {}
        case "claim" | "verify":
            return action, {}
        case _:
            assert_never(action)


def _why(action: Action, agent: str, facts: HandoffFacts, texts: dict[str, Any]) -> str:
    match action:
        case "amend" if facts.is_orphaned:
            return receiver_removed_text(facts)
        case "amend":
            return f"{stuck_text(facts)}: amend it with --depends-on"
        case "approve":
            return _why_to_approve(facts)
        case "claim" if facts.is_lapsed:
            return f"the lease of {facts.receiver} expired"
        case "claim":
            return "it is approved and nothing blocks it"
        case "continue":
            return _why_to_continue(facts.reason, texts["criteria"])
        case "unblock":
            also = "" if agent == facts.reviewer else f" (for information: {facts.reviewer} can unblock it)"
            return f"{facts.receiver} is blocked: {facts.reason}{also}"
        case "waive":
            criterion = next(criterion for criterion in texts["criteria"] if criterion["mark"] == "asked")
            asks = f"{facts.receiver} asks to waive criterion {criterion['position'] + 1}. {criterion['text']}"
            return f"{asks}: {criterion['waiver_reason']}"
        case "verify":
            return f"{facts.receiver} has completed it" + (f": {texts['summary']}" if texts["summary"] else "")
        case _:
            assert_never(action)


def _why_to_approve(facts: HandoffFacts) -> str:
    if facts.compromised_approval is not None:
        return compromised_approval_text(facts)
    if facts.claimed_status is not None:
        claim = f" as {facts.claimed_status!r}" if facts.claimed_status else ""
        return f"it was imported{claim}, and nobody here has approved or verified it: confirm it"
    stuck = "" if facts.stuck_on is None else f"; {stuck_text(facts)}"
    return f"{facts.sender} hands it to {facts.receiver}, and it is not approved{stuck}"


def _why_to_continue(reason: str, criteria: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"changes requested: {reason}"] if reason else []
    if criteria:
        waits = {"asked": " (a waiver is requested)"}
        named = [
            f"{criterion['position'] + 1}. {criterion['text']}{waits.get(criterion['mark'], '')}"
            for criterion in criteria[:criteria_named_max]
        ]
        left = len(criteria) - len(named)
        parts.append("open criteria: " + ", ".join([*named, *([f"and {left} more"] if left else [])]))
    return "; ".join(parts) or "every criterion is met: complete it"
