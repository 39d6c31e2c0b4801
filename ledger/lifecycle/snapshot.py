"""The state machine of a snapshot: taken once, never changed, and consistent. Rules: ``proto/rules/snapshot.json``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deedbook.ledger.events.brief import Brief
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.ledger.lifecycle.machine import OwnedState, Question, Unmet, owned_machine


def _fields_agree(question: Question[OwnedState]) -> Unmet | None:
    """Gates read the short fields of a snapshot, and prompts read its brief. So the two must not differ."""
    field, message = next(_contradictions(question.data), ("", ""))
    return Unmet(f"the snapshot contradicts itself: {message}", {"path": f"$.data.{field}"}) if field else None


def _contradictions(data: SnapshotTaken) -> Iterator[tuple[str, str]]:
    """Yield each field that contradicts another one, with a message."""
    if bool(data.context_summary) == (data.context_source == "none"):
        yield "context_source", "context_source must be none exactly when context_summary is empty"
    for name in ("level", "reasoning_fidelity", "reasoning_size"):
        if (getattr(data, name) is None) != (data.reasoning_ref is None):
            yield name, f"{name} and reasoning_ref must be given together"
    levels = [brief.level for brief in data.briefs]
    if len(set(levels)) != len(levels):
        yield "briefs", "it has two briefs of one level"
    if levels and data.level not in levels:
        yield "level", f"there is no {data.level} brief"
    for brief in data.briefs:
        if (brief.reasoning_ref, brief.conclusion) != (data.reasoning_ref, data.conclusion):
            yield "briefs", f"the {brief.level} brief is about another graph"
        if brief.level == data.level:
            yield from _differences(data, brief)


def _differences(data: SnapshotTaken, brief: Brief) -> Iterator[tuple[str, str]]:
    same = {
        "reasoning_brief": brief.reasoning_brief == data.reasoning_brief,
        "reasoning_fidelity": brief.fidelity.value == data.reasoning_fidelity,
        "reasoning_size": brief.sizes == data.reasoning_size,
        "reasoning_tags": [tag.tag for tag in brief.tags] == data.reasoning_tags,
        "top_assumptions": brief.top_assumptions == data.top_assumptions,
        "top_evidence_refs": brief.top_evidence_refs == data.top_evidence_refs,
    }
    yield from ((name, f"{name} differs from the {brief.level} brief") for name, is_same in same.items() if not is_same)


MACHINE: Final = owned_machine("snapshot", {"fields_agree": _fields_agree})
