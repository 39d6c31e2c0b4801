"""The statuses of a handoff, and the two facts about them that depend on other handoffs or on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from deedbook.ledger.lifecycle.rules import rules_of

if TYPE_CHECKING:
    from deedbook.ledger.events.handoff import UnlockAt
    from deedbook.ledger.lifecycle.clock import Span

Status: TypeAlias = Literal[
    "pending", "approved", "rejected", "in_progress", "blocked", "completed", "verified", "cancelled", "superseded"
]
FINAL: Final = frozenset(name for name, state in rules_of("handoff").states.items() if state.is_final)


def is_unlocked(dependency: Status | None, unlock_at: UnlockAt) -> bool:
    """Return whether a dependency with this status (None: it does not exist) unlocks the handoffs that wait for it."""
    return dependency in ("verified", unlock_at)


def is_lapsed(status: Status, lease: Span | None, now_ms: int) -> bool:
    """Return whether the receiver's lease is not valid (any more), so that the work can be claimed again."""
    return status == "in_progress" and lease is not None and not lease.holds(now_ms)
