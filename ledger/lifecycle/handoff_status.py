"""The statuses of a handoff, their stages, and the facts that depend on other handoffs or on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.rules import rules_of

if TYPE_CHECKING:
    from deedbook.ledger.lifecycle.clock import Span

Status: TypeAlias = Literal[
    "pending", "approved", "rejected", "in_progress", "blocked", "completed", "verified", "cancelled", "superseded"
]
CriterionMark: TypeAlias = Literal["open", "claimed", "reopened", "asked", "checked", "waived"]
QuestionMark: TypeAlias = Literal["open", "answered", "settled"]
Stage: TypeAlias = Literal["waiting", "working", "completed", "over"]
FINAL: Final = frozenset(name for name, state in rules_of("handoff").states.items() if state.is_final)


def is_unlocked(dependency: Status | None, unlock_at: UnlockAt) -> bool:
    """Return whether a dependency with this status (None: it does not exist) unlocks the handoffs that wait for it."""
    return dependency in ("verified", unlock_at)


def never_unlocks(status: Status | None) -> bool:
    """Return whether a dependency (None: it does not exist) can never be done."""
    return status is None or (stage_of(status) == "over" and status != "verified")


def is_lapsed(status: Status, lease: Span | None, now_ms: int) -> bool:
    """Return whether the receiver's lease is not valid (any more), so that the work can be claimed again."""
    return status == "in_progress" and lease is not None and not lease.holds(now_ms)


def stage_of(status: Status) -> Stage:
    """Return the stage of a status, which decides the column on the board and the paths of the graph."""
    return rules_of("handoff").states[status].stage or "over"
