"""Who may append which kind, in which state: one table, denied by default.

A rule sees the event and the state before it, raises ``Refused``, or returns the new life of the event's stream.
Rules depend on the log alone: no clock but ``accepted_ms``, no disk, no network. Changing what a rule decides for a
published kind would make old entries invalid: it needs a new kind, or a new entry version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ledger.admission import authority_rules
from ledger.admission.conditions import require_registered_role, require_role, typed
from ledger.admission.handoff_rules import decide_handoff
from ledger.errors import Refused
from ledger.events.imported import RecordImported
from ledger.lifecycle import reasoning as reasoning_life
from ledger.lifecycle import review as review_life
from ledger.lifecycle import session as session_life
from ledger.lifecycle import snapshot as snapshot_life
from ledger.lifecycle import tot as tot_life
from ledger.lifecycle.reasoning import ReasoningState
from ledger.lifecycle.review import ReviewState
from ledger.lifecycle.session import SessionState
from ledger.lifecycle.snapshot import SnapshotState
from ledger.lifecycle.tot import TotState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.admission.state import Layer
    from ledger.events.body import Event
    from ledger.lifecycle.handoff import HandoffState

S = TypeVar("S")
Life: TypeAlias = "HandoffState | ReasoningState | ReviewState | SessionState | SnapshotState | TotState | None"
Rule: TypeAlias = "Callable[[Event, Layer, Life], Life]"


def _life(life: Life, wanted: type[S]) -> S | None:
    assert life is None or isinstance(life, wanted)  # noqa: S101 - a stream's sort fixes its life
    return life


def _session(event: Event, state: Layer, life: Life) -> Life:
    require_registered_role(event, state)
    return session_life.transition(_life(life, SessionState), event)


def _reasoning(event: Event, state: Layer, life: Life) -> Life:
    if event.kind == "reasoning.briefed":
        require_role(event, state, "service")
    elif event.kind == "reasoning.validated":
        require_role(event, state, "service", "reviewer", "human")
    else:
        require_registered_role(event, state)
    return reasoning_life.transition(_life(life, ReasoningState), event)


def _snapshot(event: Event, state: Layer, life: Life) -> Life:
    require_registered_role(event, state)
    return snapshot_life.transition(_life(life, SnapshotState), event)


def _tot(event: Event, state: Layer, life: Life) -> Life:
    require_registered_role(event, state)
    return tot_life.transition(_life(life, TotState), event)


def _review(event: Event, state: Layer, life: Life) -> Life:
    if event.kind == "review.answered":
        require_role(event, state, "human")
    else:
        require_registered_role(event, state)
    return review_life.transition(_life(life, ReviewState), event)


def _imported(event: Event, state: Layer, life: Life) -> Life:
    """A record of another tool: on the stream of what it stands for, by that stream's machine; else kept aside."""
    if typed(event, RecordImported).mapped_kind is not None:
        sorts = {"handoff": decide_handoff, "session": _session, "reasoning": _reasoning}
        return sorts[event.stream.partition("/")[0]](event, state, life)
    require_registered_role(event, state)
    if state.stream(event.stream) is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} was imported already", status="imported")
    return None


RULES: Final[dict[str, Rule]] = {
    "ledger.created": authority_rules.created,
    "record.imported": _imported,
    "agent.registered": authority_rules.registered,
    "role.granted": authority_rules.role_granted,
    "role.revoked": authority_rules.role_revoked,
    "key.delegated": authority_rules.key_delegated,
    "key.revoked": authority_rules.key_revoked,
    "session.started": _session,
    "assessment.recorded": _session,
    "finding.logged": _session,
    "unknown.logged": _session,
    "dead_end.logged": _session,
    "tool.used": _session,
    "report.generated": _session,
    "session.ended": _session,
    "reasoning.started": _reasoning,
    "reasoning.extended": _reasoning,
    "reasoning.concluded": _reasoning,
    "reasoning.briefed": _reasoning,
    "reasoning.validated": _reasoning,
    "snapshot.taken": _snapshot,
    "review.requested": _review,
    "review.answered": _review,
    "tot.started": _tot,
    "tot.decompose_task": _tot,
    "tot.decomposition_result": _tot,
    "tot.initialize_search": _tot,
    "tot.generate_thoughts": _tot,
    "tot.generated_thoughts": _tot,
    "tot.nodes_added": _tot,
    "tot.evaluate_thoughts": _tot,
    "tot.evaluation_results": _tot,
    "tot.nodes_marked": _tot,
    "tot.backtracked": _tot,
    "tot.synthesize_solution": _tot,
    "tot.final_solution": _tot,
    "tot.search_complete": _tot,
    "tot.error": _tot,
    "tot.log_written": _tot,
    "handoff.created": decide_handoff,
    "handoff.amended": decide_handoff,
    "handoff.approved": decide_handoff,
    "handoff.rejected": decide_handoff,
    "handoff.claimed": decide_handoff,
    "handoff.task_checked": decide_handoff,
    "handoff.criterion_checked": decide_handoff,
    "handoff.criterion_waived": decide_handoff,
    "handoff.released": decide_handoff,
    "handoff.logged": decide_handoff,
    "handoff.blocked": decide_handoff,
    "handoff.unblocked": decide_handoff,
    "handoff.completed": decide_handoff,
    "handoff.changes_requested": decide_handoff,
    "handoff.verified": decide_handoff,
    "handoff.cancelled": decide_handoff,
    "handoff.superseded": decide_handoff,
    "handoff.ready": decide_handoff,
}

# Kinds after which cached keys and roles are stale.
AUTHORITY_KINDS: Final = frozenset(
    {"ledger.created", "agent.registered", "role.granted", "role.revoked", "key.delegated", "key.revoked"}
)
