"""From events to a reasoning graph: how a start, extensions and conclusions make the seed's ``ReasoningMemory``.

Each event makes a new version of the graph, and each version has its ref. To hash a graph of n steps anew at every
step would cost n² encodings, so a ``GraphState`` keeps each step as the very text that stands in the canonical form:
only what is new is encoded, the rest is joined. ``canonical_text`` is byte for byte ``memory.canonical_json`` (a
property test holds the two together), because there is one ref for a graph, not two.

An update of an assumption changes the step it names: ``needs_validation`` becomes false, and the text is written into
the step's own ``conclusion`` (after what stands there already, parted by "; "). So the assumption's ``content`` stays
as it was stated, the outcome is covered by the ref, briefs show it as what came of the step, and ``evidence`` holds
nothing but references that a validator can check. An update settles an assumption either way: its text says which.

A later extension leaves the conclusion of an earlier ``reasoning.concluded`` standing until it is concluded anew.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.events import reasoning as kinds
from projections.reasoning.memory import ReasoningMemory, ReasoningStep

if TYPE_CHECKING:
    from collections.abc import Iterable

_dump: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode
_step_decoder: Final = msgspec.json.Decoder(ReasoningStep)


class GraphState(msgspec.Struct, frozen=True, array_like=True):
    """One version of a graph; ``steps`` are (number, canonical text) in the order in which they were added."""

    ai_id: str = ""
    task: str = ""
    reasoning_strategy: str = ""
    conclusion: str = ""
    confidence_in_reasoning: float = 1.0
    known_limitations: tuple[str, ...] = ()
    steps: tuple[tuple[int, str], ...] = ()
    dependencies: dict[int, tuple[int, ...]] = {}


def apply_delta(state: GraphState, data: Any) -> GraphState:
    """Return the version after the data of a ``reasoning.started``, ``.extended`` or ``.concluded``."""
    match data:
        case kinds.ReasoningStarted():
            return GraphState(ai_id=data.ai_id, task=data.task, reasoning_strategy=data.reasoning_strategy)
        case kinds.ReasoningConcluded():
            return msgspec.structs.replace(
                state,
                conclusion=data.conclusion,
                confidence_in_reasoning=data.confidence_in_reasoning + 0.0,  # -0.0 would be spelt differently
                known_limitations=tuple(data.known_limitations),
            )
        case kinds.ReasoningExtended():
            added = tuple((step.step_number, _dump(_step_values(step))) for step in data.steps)
            steps = _settled((*state.steps, *added), data.assumptions_updated)
            new = {number: tuple(rests_on) for number, rests_on in data.dependencies.items()}
            return msgspec.structs.replace(state, steps=steps, dependencies=state.dependencies | new)
        case _:
            return state


def canonical_text(state: GraphState) -> bytes:
    """Return the bytes whose SHA-256 is the version's ref: those of ``memory.canonical_json``."""
    before = {
        "ai_id": state.ai_id,
        "conclusion": state.conclusion,
        "confidence_in_reasoning": state.confidence_in_reasoning,
        "dependencies": state.dependencies,
        "known_limitations": state.known_limitations,
        "reasoning_id": "",
        "reasoning_strategy": state.reasoning_strategy,
    }
    steps = ", ".join([text for _, text in state.steps])
    return f'{_dump(before)[:-1]}, "steps": [{steps}], "task": {_dump(state.task)}}}'.encode()


def ref_of(state: GraphState) -> str:
    """Return the version's ref, as ``memory.compute_reasoning_ref`` computes it."""
    return f"sha256:{hashlib.sha256(canonical_text(state)).hexdigest()}"


def memory_of(state: GraphState, reasoning_id: str) -> ReasoningMemory:
    """Return the version as the seed's structure; ``reasoning_id`` is its stream's name, which no ref covers."""
    return ReasoningMemory(
        reasoning_id=reasoning_id,
        ai_id=state.ai_id,
        task=state.task,
        conclusion=state.conclusion,
        steps=[_step_decoder.decode(text) for _, text in state.steps],
        dependencies={number: list(rests_on) for number, rests_on in state.dependencies.items()},
        reasoning_strategy=state.reasoning_strategy,
        confidence_in_reasoning=state.confidence_in_reasoning,
        known_limitations=list(state.known_limitations),
    )


def _step_values(step: kinds.Step) -> dict[str, Any]:
    values: dict[str, Any] = {
        "step_number": step.step_number,
        "type": step.type,
        "content": step.content,
        "reasoning_type": step.reasoning_type,
        "evidence": step.evidence,
        "premises": step.premises,
        "alternatives_considered": step.alternatives_considered,
        "assumptions": step.assumptions,
        "confidence": step.confidence + 0.0,
    }
    optional = {
        "needs_validation": step.needs_validation,
        "validation_method": step.validation_method,
        "conclusion": step.conclusion,
    }
    return values | {name: value for name, value in optional.items() if value is not None}


def _settled(steps: Iterable[tuple[int, str]], updates: dict[int, str]) -> tuple[tuple[int, str], ...]:
    if not updates:
        return tuple(steps)
    return tuple((number, _updated(text, updates[number]) if number in updates else text) for number, text in steps)


def _updated(text: str, update: str) -> str:
    values = json.loads(text)
    before = values.get("conclusion", "")
    values |= {"needs_validation": False, "conclusion": f"{before}; {update}" if before else update}
    return _dump(values)
