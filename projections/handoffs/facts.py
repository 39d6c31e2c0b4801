"""The facts of a handoff that decisions need, read once and shared by why, next, the board and the graph.

``ledger.lifecycle.handoff`` decides whether a handoff is unlocked or lapsed; only this module has the same rules
in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, assert_never

import msgspec

from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.handoff_status import Status, is_lapsed, is_unlocked
from deedbook.projections.agents.compromised import compromised_by
from deedbook.projections.answers.query import QueryContext, json_list

if TYPE_CHECKING:
    from deedbook.ledger.events.handoff import UnlockAt

# Its dependencies are done; a dependency that does not exist is never done.
UNLOCKED: Final = (
    "NOT EXISTS (SELECT 1 FROM handoff_dependencies d LEFT JOIN handoffs o ON o.id = d.depends_on "
    "WHERE d.handoff_id = h.id AND (o.id IS NULL OR (o.status <> 'verified' AND o.status <> h.unlock_at)))"
)
# The entry that reports the key of its approval as compromised: nobody can claim it until it is approved again.
COMPROMISED_APPROVAL: Final = compromised_by("h.approval_key", "h.approval_index")
# The first dependency that will never be done: it does not exist, or was rejected, cancelled or superseded.
STUCK_ON: Final = (
    "(SELECT d.depends_on FROM handoff_dependencies d LEFT JOIN handoffs o ON o.id = d.depends_on "
    "WHERE d.handoff_id = h.id AND (o.id IS NULL OR o.status IN ('rejected', 'cancelled', 'superseded')) "
    "ORDER BY d.position LIMIT 1)"
)
# The entry that removed its receiver.
RECEIVER_REMOVED: Final = "(SELECT a.removed_index FROM agents a WHERE a.name = h.receiver)"
# An imported file may have an empty To: then nobody can claim it, approved or not.
CLAIMABLE: Final = (
    "(h.receiver <> '' AND (h.status = 'approved' OR "
    "(h.status = 'in_progress' AND ? NOT BETWEEN h.lease_from_ms AND h.lease_until_ms - 1)) "
    f"AND {COMPROMISED_APPROVAL} IS NULL AND {RECEIVER_REMOVED} IS NULL)"
)
# When that changes without an event: a lease ends, or one that was granted under a wrong clock begins.
NEXT_LEASE: Final = (
    "SELECT min(CASE WHEN lease_from_ms > ?1 THEN lease_from_ms ELSE lease_until_ms END) FROM handoffs "
    "WHERE status = 'in_progress' AND lease_until_ms > ?1"
)
# Its receiver asked for a waiver of a criterion, and nobody has answered.
WAIVER_ASKED: Final = "EXISTS (SELECT 1 FROM handoff_criteria c WHERE c.handoff_id = h.id AND c.mark = 'asked')"
_OPEN: Final = (
    "(SELECT json_group_array(position + 1) FROM (SELECT position FROM {} WHERE handoff_id = h.id AND {} "
    "ORDER BY position))"
)
# Its dependencies, in order, as JSON.
DEPENDS_ON: Final = """(
    SELECT json_group_array(depends_on) FROM (
        SELECT d.depends_on FROM handoff_dependencies d WHERE d.handoff_id = h.id ORDER BY d.position
    )
)"""
# The event that set its status, if the kind is named like the status: completed, verified, rejected and so on.
_STATUS_SET: Final = (
    "(SELECT {} FROM handoff_log l JOIN events e USING (event_index) "
    "WHERE l.handoff_id = h.id AND l.kind = 'handoff.' || h.status ORDER BY l.event_index DESC LIMIT 1)"
)
# The fields that describe a link in a chain of waiting handoffs.
_LINK: Final = f"""
    SELECT h.id, h.status, h.sender, h.receiver, coalesce(h.reviewer, h.sender) AS reviewer, h.unlock_at, h.reason,
        h.lease_from_ms, h.lease_until_ms, {DEPENDS_ON} AS depends_on"""
_OF_IDS: Final = " FROM handoffs h WHERE h.id IN (SELECT value FROM json_each(?))"
_FACTS: Final = f"""{_LINK},
        h.version, {STUCK_ON} AS stuck_on, h.claimed_status, {UNLOCKED} AS is_unlocked,
        h.approval_index, {WAIVER_ASKED} AS is_waiver_asked,
        {_OPEN.format("handoff_tasks", "is_done = 0")} AS tasks_left,
        {_OPEN.format("handoff_criteria", "mark NOT IN ('checked', 'waived')")} AS criteria_left,
        (SELECT accepted_ms FROM events WHERE event_index = h.claimed_index) AS claimed_ms,
        {_STATUS_SET.format("l.author")} AS status_by, {_STATUS_SET.format("e.accepted_ms")} AS status_ms,
        {COMPROMISED_APPROVAL} AS compromised_approval, {RECEIVER_REMOVED} AS receiver_removed{_OF_IDS}"""  # noqa: S608 - fixed texts

_decode: Final = msgspec.json.Decoder(tuple[Any, ...]).decode
Stage: TypeAlias = Literal["waiting", "working", "completed", "over"]


class HandoffFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff as of one snapshot: its status and parties, and whether its dependencies let it start."""

    id: str
    status: Status
    version: str = ""
    sender: str
    receiver: str
    reviewer: str  # the sender if no other is named
    unlock_at: UnlockAt = "completed"
    reason: str = ""
    claimed_status: str | None = None
    is_unlocked: bool = True
    is_lapsed: bool = False  # by the ledger's clock
    depends_on: tuple[str, ...] = ()
    stuck_on: str | None = None  # the first dependency that will never be done
    is_waiver_asked: bool = False
    tasks_left: tuple[int, ...] = ()  # counted from 1
    criteria_left: tuple[int, ...] = ()
    claimed_ms: int | None = None
    status_by: str | None = None  # the signer of the event that set its status, and its time
    status_ms: int | None = None
    approval_index: int | None = None
    compromised_approval: int | None = None  # the entry that reports the key of its approval
    receiver_removed: int | None = None  # the entry that removed its receiver

    @property
    def is_orphaned(self) -> bool:
        """Whether its receiver was removed while work is left."""
        return self.receiver_removed is not None and stage_of(self.status) in ("waiting", "working")

    @property
    def waits_for_approval(self) -> bool:
        """Whether it needs an approval, perhaps again because its present approval does not count."""
        is_claimable = self.status == "approved" or self.is_lapsed
        return self.status == "pending" or (is_claimable and self.compromised_approval is not None)

    def is_unlocked_by(self, other: HandoffFacts | None) -> bool:
        """Whether ``other`` allows this handoff to start; None: it does not exist."""
        return is_unlocked(None if other is None else other.status, self.unlock_at)


def facts_of(context: QueryContext, ids: Iterable[str]) -> dict[str, HandoffFacts]:
    """Return the facts of handoffs by id, without those that do not exist."""
    names = list(ids)
    return facts_in(context, context.rows(*facts_query(names))) if names else {}


def links_of(context: QueryContext, ids: Iterable[str]) -> dict[str, HandoffFacts]:
    """Return as ``facts_of``, but only the fields that describe a handoff that others wait for."""
    return facts_in(context, context.rows(_LINK + _OF_IDS, (json_list(ids),)))


def facts_query(ids: Iterable[str]) -> tuple[str, tuple[str]]:
    """Return the query whose rows ``facts_in`` reads, and its bound values."""
    return _FACTS, (json_list(ids),)


def facts_in(context: QueryContext, rows: Iterable[dict[str, Any]]) -> dict[str, HandoffFacts]:
    """Return the facts in rows, by id."""
    return {row["id"]: _facts(row, context.now_ms) for row in rows}


def _facts(row: dict[str, Any], now_ms: int) -> HandoffFacts:
    from_ms, until_ms = row.pop("lease_from_ms"), row.pop("lease_until_ms")
    row["is_lapsed"] = is_lapsed(row["status"], None if until_ms is None else Span(from_ms, until_ms), now_ms)
    row |= {name: bool(row[name]) for name in ("is_unlocked", "is_waiver_asked") if name in row}
    row |= {name: _decode(row[name]) for name in ("depends_on", "tasks_left", "criteria_left") if name in row}
    return HandoffFacts(**row)


def stage_of(status: Status) -> Stage:
    """Return the stage of a status, which decides the column on the board and the paths of the graph."""
    match status:
        case "pending" | "approved":
            return "waiting"
        case "in_progress" | "blocked":
            return "working"
        case "completed":
            return "completed"
        case "rejected" | "verified" | "cancelled" | "superseded":
            return "over"
        case _:
            assert_never(status)
