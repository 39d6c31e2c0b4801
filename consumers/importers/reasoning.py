"""Reads reasoning graphs from a file, and makes the events that record a graph: started, extended, concluded.

A file is one JSON object, a JSON array of objects, or JSON Lines, all strict. A graph may have more fields than the
format (``source``, ``answer``, …): they are unmapped and reported by path. The texts ``id``, ``domain`` and ``session``
belong to the events that record the graph and are returned as hints. A file is accepted or refused as a whole: the
refusal has the code of the first error, and names each faulty graph with its line (``problems_shown_max``).

Rules of the events:

- Folding them gives the same graph with the same ref. This is checked before anything is returned, so a graph that
  events cannot hold is refused and never recorded as another one.
- Each event fits an entry, with ``envelope_reserve_bytes`` left for the rest of the entry. A step that is too large is
  refused by its number: a step is the unit of proof and is never divided.
- A step may rest only on steps before it or in the same event (``ledger.lifecycle.reasoning``), so a step and a later
  one that it rests on always share an event.

A graph without a conclusion is started and extended, and stays open.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from deedbook.consumers.importers.records import batches
from deedbook.consumers.sdk.thinking.response import first_text
from deedbook.ledger.errors import AS_A_BLOB, Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.format.codec import check_strict, converted
from deedbook.ledger.limits import batch_events_max, batch_size_max_bytes, entry_size_max_bytes
from deedbook.projections.reasoning.graph import GraphState, apply_event, ref_of
from deedbook.projections.reasoning.memory import (
    ReasoningMemory,
    ReasoningStep,
    check_graph,
    compute_reasoning_ref,
    memory_from_dict,
)

file_size_max_bytes: Final = 64 * 1024**2
graphs_max: Final = 10_000
problems_shown_max: Final = 20

_REF_PREFIX: Final = "sha256:"
envelope_reserve_bytes: Final = 6 * 1024
"""Room for the longest stream, correlation and idempotency key, a few causes, key and signature."""
submission_reserve_bytes: Final = 2 * 1024
"""Room for each event's head in a submission: the longest stream, and no causes or keys."""
data_size_max_bytes: Final = entry_size_max_bytes - envelope_reserve_bytes
text_max_chars: Final = 40_000
_dependency_bytes: Final = len("1000000,")
_framing_bytes: Final = 64
_HINTS: Final = ("id", "domain", "session", "session_id")
T = TypeVar("T", bound=EventData)


class Hints(msgspec.Struct, frozen=True):
    """Fields of the file that do not belong to the graph; ``line`` is where the graph begins (None inside an array)."""

    id: str = ""
    domain: str = ""
    session: str = ""
    line: int | None = None
    position: int = 0


class ReadGraph(NamedTuple):
    """A graph of the file, the fields that a graph does not have (by path), and hints for recording it."""

    memory: ReasoningMemory
    unmapped: dict[str, Any]
    hints: Hints


class _Item(NamedTuple):
    value: Any
    line: int | None
    label: str  # the name of the item in errors


def read_reasoning_file(content: bytes) -> list[ReadGraph]:
    """Return the graphs of a file in order, at least one.

    Raises Refused: ``TOO_LARGE``, the strict JSON codes, or as ``memory_from_dict``; the message and ``details`` name
    the line, or the position in an array, and ``problems`` lists every graph that was refused.
    """
    if len(content) > file_size_max_bytes:
        message = f"the file has {len(content)} bytes; the limit is {file_size_max_bytes}"
        raise Refused("TOO_LARGE", message, size=len(content))
    text = content.removeprefix(BOM_UTF8)
    items = _read_items(text)
    if not items:
        raise Refused("INVALID_FORMAT", "the file has no reasoning graph")
    if len(items) > graphs_max:
        raise Refused("TOO_LARGE", f"the file has {len(items)} graphs; the limit is {graphs_max}")
    graphs: list[ReadGraph] = []
    problems: list[tuple[_Item, Refused]] = []
    for position, item in enumerate(items):
        try:
            graphs.append(_graph(item, position))
        except Refused as refusal:
            problems.append((item, refusal))
    if problems:
        raise _all_refused(problems, len(items))
    return graphs


def _is_json_lines(text: bytes) -> bool:
    """Return whether the first line is a whole object and more lines follow.

    In a pretty-printed object it is not whole.
    """
    first, _, rest = (part.strip() for part in text.strip().partition(b"\n"))
    if not rest:
        return False
    if first.startswith(b"{") and first.endswith(b"}") and rest.startswith(b"{"):
        return True  # even if the first line is malformed
    try:
        check_strict(first)
    except Refused:
        return False
    return True


def _read_items(text: bytes) -> list[_Item]:
    start = 1 + text.count(b"\n", 0, len(text) - len(text.lstrip()))
    is_lines = _is_json_lines(text)
    numbered = enumerate(text.split(b"\n"), start=1) if is_lines else [(start, text)]
    pieces = [(line, piece) for line, piece in numbered if piece.strip() or not is_lines]
    items: list[_Item] = []
    problems: list[tuple[_Item, Refused]] = []
    for line, piece in pieces:
        try:
            value = check_strict(piece)
        except Refused as refusal:
            at = line if is_lines else _line_of(refusal, text)
            if at is None:
                raise
            problems.append((_Item(None, at, f"line {at}"), refusal))
            continue
        if isinstance(value, list) and not is_lines:
            items += [_Item(item, None, f"graph {number} of the array") for number, item in enumerate(value, start=1)]
        else:
            items.append(_Item(value, line, f"line {line}"))
    if problems:
        raise _all_refused(problems, len(pieces)) from problems[0][1]
    return items


def _line_of(refusal: Refused, text: bytes) -> int | None:
    match refusal.__cause__:
        case json.JSONDecodeError() as error:
            return error.lineno
        case UnicodeDecodeError() as error:
            return 1 + text.count(b"\n", 0, error.start)
        case _:  # any other cause
            # An error without a position (NaN, a duplicate key): its line is known only if there is one line.
            return None if b"\n" in text.strip() else 1 + text.count(b"\n", 0, len(text) - len(text.lstrip()))


def _graph(item: _Item, position: int) -> ReadGraph:
    memory, unmapped = memory_from_dict(item.value)
    # Each agent signs their own settlements: a file cannot say that another agent settled an assumption.
    unmapped |= {f"steps[{at}].settled": step.settled for at, step in enumerate(memory.steps) if step.settlements()}
    memory = replace(memory, steps=[replace(step, settled=UNSET) for step in memory.steps])
    # A reasoning_id that is a ref names the content, not the stream.
    name = "" if memory.reasoning_id.startswith(_REF_PREFIX) else memory.reasoning_id
    hints = Hints(
        id=first_text(unmapped, "id") or name,
        domain=first_text(unmapped, "domain"),
        session=first_text(unmapped, "session", "session_id"),
        line=item.line,
        position=position,
    )
    used = (hints.id, hints.domain, hints.session)
    unmapped = {name: value for name, value in unmapped.items() if name not in _HINTS or value not in used}
    return ReadGraph(memory, unmapped, hints)


def _all_refused(problems: list[tuple[_Item, Refused]], count: int) -> Refused:
    first, refusal = problems[0]
    others = f" (and {len(problems) - 1} more of {count})" if len(problems) > 1 else ""
    listed = [
        {"line": item.line, "place": item.label, "code": fault.code, "message": fault.message}
        for item, fault in problems[:problems_shown_max]
    ]
    details = refusal.details | {"line": first.line, "problems": listed}
    return Refused(refusal.code, f"{first.label}: {refusal.message}{others}", **details)


def extensions_of(memory: ReasoningMemory, *, domain: str = "", session: str = "") -> list[EventData]:
    """Return the events that record a graph, in order; ``submissions_of`` groups them for the ledger.

    Raises Refused: ``STEP_CONFLICT`` as ``check_graph``; ``TOO_LARGE`` with the ``step`` or ``field`` that is too large
    for an entry; ``INVALID_FIELD`` with what an event cannot hold (for example a step without content).
    """
    check_graph(memory)
    if not memory.steps:
        raise Refused("INVALID_FIELD", "the graph has no step, so it cannot be recorded", field="steps")
    started = {name: getattr(memory, name) for name in ("task", "ai_id", "reasoning_strategy")}
    started |= {"domain": domain, "session": session}
    events = [_event(ReasoningStarted, started, "task"), *continuation_of(memory)]
    _check_ref(events, memory)
    return events


def continuation_of(memory: ReasoningMemory) -> Iterator[EventData]:
    """Yield the events that add steps and a conclusion to a recorded graph; the steps may rest on recorded ones."""
    if memory.steps:
        yield from _extensions(memory)
    if memory.conclusion:
        names = ("conclusion", "confidence_in_reasoning", "known_limitations")
        yield _event(ReasoningConcluded, {name: getattr(memory, name) for name in names}, "conclusion")


def submissions_of(events: Sequence[EventData]) -> list[list[EventData]]:
    """Return the events in order, in groups that each fit one submission (256 events and 900 KiB)."""
    limits = (batch_events_max, batch_size_max_bytes)
    return list(batches(events, lambda event: (1, _size(event) + submission_reserve_bytes), limits))


def _extensions(memory: ReasoningMemory) -> Iterator[ReasoningExtended]:
    steps: list[Step] = []
    size = 0
    for bound in _bound_steps(memory):
        event_steps = [_step(step) for step in bound]
        rests_on = sum(len(memory.dependencies.get(step.step_number, ())) for step in event_steps)
        more = sum(_size(step) + _framing_bytes for step in event_steps) + _dependency_bytes * rests_on
        if more > data_size_max_bytes:
            numbers = [step.step_number for step in bound]
            message = f"steps {numbers[0]} to {numbers[-1]} rest on later ones and are too large for one event"
            raise Refused("TOO_LARGE", message, step=numbers[0], size=more)
        if steps and size + more > data_size_max_bytes:
            yield _extension(steps, memory)
            steps, size = [], 0
        steps += event_steps
        size += more
    yield _extension(steps, memory)


def _bound_steps(memory: ReasoningMemory) -> Iterator[list[ReasoningStep]]:
    """Yield the steps in order, in groups that must share an event."""
    positions = {step.step_number: position for position, step in enumerate(memory.steps)}
    bound: list[ReasoningStep] = []
    until = 0
    for position, step in enumerate(memory.steps):
        rests_on = memory.dependencies.get(step.step_number, ())
        until = max(until, position, *(positions.get(number, 0) for number in rests_on))
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
            f" characters: divide the step, or {AS_A_BLOB} as evidence"
        )
        raise Refused("TOO_LARGE", message, step=step.step_number, size=size, limit=data_size_max_bytes)
    try:
        return converted(values, Step, f"step {step.step_number}")
    except Refused as refusal:
        raise refusal.with_details(step=step.step_number) from refusal


def _event(kind: type[T], values: dict[str, Any], field: str) -> T:
    size = _json_size(values, field)
    if size > data_size_max_bytes or len(values[field]) > text_max_chars:
        message = (
            f"the {field} and the fields beside it have {size} bytes; an event holds {data_size_max_bytes}: {AS_A_BLOB}"
        )
        raise Refused("TOO_LARGE", message, field=field, size=size, limit=data_size_max_bytes)
    return converted(values, kind)


def _check_ref(events: list[EventData], memory: ReasoningMemory) -> None:
    state = GraphState()
    for event in events:
        state = apply_event(state, event, "")
    wanted, folded = compute_reasoning_ref(memory), ref_of(state)
    if wanted != folded:
        message = "events cannot hold this graph: without a conclusion it must not have a confidence or limitations"
        raise Refused("INVALID_FIELD", message, field="conclusion", ref=wanted, folded=folded)


def _size(data: EventData) -> int:
    return len(msgspec.json.encode(data))


def _json_size(values: dict[str, Any], what: str) -> int:
    try:
        return len(msgspec.json.encode(values))
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FIELD", f"{what} is not valid Unicode", field=what) from error
