"""The state machine of a snapshot: taken once, never changed, and consistent in itself."""

from __future__ import annotations

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.brief import Brief
from deedbook.ledger.events.snapshot import SnapshotTaken


class SnapshotState(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """The agent that took the snapshot."""

    owner: str


def transition(state: SnapshotState | None, event: Event) -> SnapshotState:
    """Return the state after ``event``.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, or ``INVALID_FIELD`` for fields that contradict each other.
    """
    if state is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"snapshot {event.name} already exists: choose another id")
    _check_agrees(event.data)
    return SnapshotState(event.author)


def _check_agrees(data: SnapshotTaken) -> None:
    """Refuse a snapshot whose short fields differ from its brief: gates read those fields, prompts read the brief."""
    if bool(data.context_summary) == (data.context_source == "none"):
        raise _disagrees("context_source", "context_source must be none exactly when context_summary is empty")
    for name in ("level", "reasoning_fidelity", "reasoning_size"):
        if (getattr(data, name) is None) != (data.reasoning_ref is None):
            raise _disagrees(name, f"{name} and reasoning_ref must be given together")
    levels = [brief.level for brief in data.briefs]
    if len(set(levels)) != len(levels):
        raise _disagrees("briefs", "it has two briefs of one level")
    if levels and data.level not in levels:
        raise _disagrees("level", f"there is no {data.level} brief")
    for brief in data.briefs:
        if (brief.reasoning_ref, brief.conclusion) != (data.reasoning_ref, data.conclusion):
            raise _disagrees("briefs", f"the {brief.level} brief is about another graph")
        if brief.level == data.level:
            _check_same(data, brief)


def _check_same(data: SnapshotTaken, brief: Brief) -> None:
    same = {
        "reasoning_brief": brief.reasoning_brief == data.reasoning_brief,
        "reasoning_fidelity": brief.fidelity.value == data.reasoning_fidelity,
        "reasoning_size": brief.sizes == data.reasoning_size,
        "reasoning_tags": [tag.tag for tag in brief.tags] == data.reasoning_tags,
        "top_assumptions": brief.top_assumptions == data.top_assumptions,
        "top_evidence_refs": brief.top_evidence_refs == data.top_evidence_refs,
    }
    for name, is_same in same.items():
        if not is_same:
            raise _disagrees(name, f"{name} differs from the {brief.level} brief")


def _disagrees(field: str, message: str) -> Refused:
    return Refused("INVALID_FIELD", f"the snapshot contradicts itself: {message}", path=f"$.data.{field}")
