"""How a whole graph becomes events: started, extended as often as its size needs, concluded (seed 001; DESIGN §3).

Rules this module keeps:

- folding the events gives the graph back with the same ref: this is computed before anything is returned, so a graph
  that events cannot carry is refused and never recorded as another one;
- each event fits an entry, with ``envelope_reserve_bytes`` left for what stands around its data; a step that fits none
  is refused by its number, because a step is the unit of proof and is never divided;
- a step may rest only on steps before it or in the same event (``ledger.lifecycle.reasoning``), so no cut is made
  between a step and a later one that it rests on.

A graph without a conclusion is started and extended, and stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ledger.codec import schema_error
from ledger.errors import Refused
from ledger.events.fields import EventData
from ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from ledger.limits import batch_events_max, batch_size_max_bytes, entry_size_max_bytes
from projections.reasoning.graph import GraphState, apply_event, ref_of
from projections.reasoning.memory import ReasoningMemory, ReasoningStep, check_graph, compute_reasoning_ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

envelope_reserve_bytes: Final = 6 * 1024
"""Room for the longest stream, correlation and idempotency key, a few causes, key and signature."""

submission_reserve_bytes: Final = 2 * 1024
"""Room for each event's head in a submission: the longest stream, and no causes or keys."""

data_size_max_bytes: Final = entry_size_max_bytes - envelope_reserve_bytes
text_max_chars: Final = 40_000

_dependency_bytes: Final = len("1000000,")
_framing_bytes: Final = 64

T = TypeVar("T", bound=EventData)


def extensions_of(memory: ReasoningMemory, *, domain: str = "", session: str = "") -> list[EventData]:
    """Return the events that record a graph, in order; ``submissions_of`` groups them for the ledger.

    Raises:
        Refused: ``STEP_CONFLICT`` as ``check_graph``; ``TOO_LARGE`` naming the ``step`` or ``field`` that fits no
            entry; ``INVALID_FIELD`` naming what an event cannot hold (as a step without content).
    """
    check_graph(memory)
    if not memory.steps:
        raise Refused("INVALID_FIELD", "a graph without a step cannot be recorded", field="steps")
    started = {
        "task": memory.task,
        "ai_id": memory.ai_id,
        "reasoning_strategy": memory.reasoning_strategy,
        "domain": domain,
        "session": session,
    }
    events: list[EventData] = [_event(ReasoningStarted, started, "task"), *_extensions(memory)]
    if memory.conclusion:
        concluded = {
            "conclusion": memory.conclusion,
            "confidence_in_reasoning": memory.confidence_in_reasoning,
            "known_limitations": memory.known_limitations,
        }
        events.append(_event(ReasoningConcluded, concluded, "conclusion"))
    _check_ref(events, memory)
    return events


def submissions_of(events: Sequence[EventData]) -> list[list[EventData]]:
    """Return the events in groups that each fit one submission (256 events and 900 KiB), in order."""
    groups: list[list[EventData]] = []
    size = 0
    for event in events:
        more = _size(event) + submission_reserve_bytes
        if not groups or len(groups[-1]) == batch_events_max or size + more > batch_size_max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(event)
        size += more
    return groups


def _extensions(memory: ReasoningMemory) -> Iterator[ReasoningExtended]:
    steps: list[Step] = []
    size = 0
    for bound in _bound_steps(memory):
        converted = [_step(step) for step in bound]
        more = sum(_step_size(step, memory) for step in converted)
        if more > data_size_max_bytes:
            numbers = [step.step_number for step in bound]
            message = f"steps {numbers[0]} to {numbers[-1]} rest on later ones and do not fit one event together"
            raise Refused("TOO_LARGE", message, step=numbers[0], size=more)
        if steps and size + more > data_size_max_bytes:
            yield _extension(steps, memory)
            steps, size = [], 0
        steps += converted
        size += more
    yield _extension(steps, memory)


def _bound_steps(memory: ReasoningMemory) -> Iterator[list[ReasoningStep]]:
    """Yield the steps in order, those together between which no cut may be made."""
    positions = {step.step_number: position for position, step in enumerate(memory.steps)}
    bound: list[ReasoningStep] = []
    until = 0
    for position, step in enumerate(memory.steps):
        rests_on = memory.dependencies.get(step.step_number, ())
        until = max(until, position, *(positions[number] for number in rests_on))
        bound.append(step)
        if position == until:
            yield bound
            bound = []


def _extension(steps: list[Step], memory: ReasoningMemory) -> ReasoningExtended:
    numbers = [step.step_number for step in steps]
    dependencies = {number: memory.dependencies[number] for number in numbers if number in memory.dependencies}
    return ReasoningExtended(steps=steps, dependencies=dependencies)


def _step(step: ReasoningStep) -> Step:
    values = step.to_dict()
    size = _json_size(values, f"step {step.step_number}") + _framing_bytes
    longest = max(len(step.content), len(values.get("conclusion", "")))
    if size > data_size_max_bytes or longest > text_max_chars:
        message = (
            f"step {step.step_number} has {size} bytes; an event holds {data_size_max_bytes}, a text {text_max_chars}"
            " characters: divide the step, or put its text into a blob and cite it as evidence"
        )
        raise Refused("TOO_LARGE", message, step=step.step_number, size=size, limit=data_size_max_bytes)
    try:
        return msgspec.convert(values, Step)
    except msgspec.ValidationError as error:
        refusal = schema_error(error, f"step {step.step_number}")
        raise refusal.with_details(step=step.step_number) from error


def _event(kind: type[T], values: dict[str, Any], field: str) -> T:
    size = _json_size(values, field)
    if size > data_size_max_bytes or len(values[field]) > text_max_chars:
        message = f"the {field} and what stands with it have {size} bytes; an event holds {data_size_max_bytes}"
        raise Refused("TOO_LARGE", message, field=field, size=size, limit=data_size_max_bytes)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise schema_error(error) from error


def _check_ref(events: list[EventData], memory: ReasoningMemory) -> None:
    state = GraphState()
    for event in events:
        state = apply_event(state, event)
    wanted, found = compute_reasoning_ref(memory), ref_of(state)
    if wanted != found:
        message = (
            "events cannot hold this graph as it is: a graph without a conclusion has no confidence or limitations"
        )
        raise Refused("INVALID_FIELD", message, field="conclusion", ref=wanted, folded=found)


def _step_size(step: Step, memory: ReasoningMemory) -> int:
    rests_on = memory.dependencies.get(step.step_number, ())
    return _size(step) + _framing_bytes + _dependency_bytes * len(rests_on)


def _size(data: EventData) -> int:
    return len(msgspec.json.encode(data))


def _json_size(values: dict[str, Any], what: str) -> int:
    try:
        return len(msgspec.json.encode(values))
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FIELD", f"{what} is not valid Unicode", field=what) from error
