"""Builds a reasoning graph from events: its versions, and the changes from one to the next.

Each event makes a new version of the graph, and each version has its ref. Hashing a graph of n steps again at every
step would cost n² encodings, so a ``GraphState`` stores each step as its text in the canonical form.

A settled assumption adds a ``Settlement`` to ``settled`` of its step. So the step stays unchanged, and the ref covers
the outcome and its author. An extension leaves an earlier conclusion unchanged until the graph is concluded again, and
concluding again keeps the confidence and the limitations that it does not name.

The JSON of a ``ReasoningDelta`` is sent often, so it is short: an absent field did not change, and a step omits fields
with default values. The receiver fills in the defaults before the graph is hashed, so the short form affects no ref.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.format.codec import json_decoder
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, Settlement

_dump: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode
_step_decoder: Final = json_decoder(ReasoningStep)
_SCALARS: Final = ("task", "ai_id", "reasoning_strategy", "conclusion", "confidence_in_reasoning")


class SentStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A ``ReasoningStep`` to send: ``step`` is its number, and fields with default values are omitted."""

    step_number: int = msgspec.field(name="step")
    type: str
    content: str
    reasoning_type: str = ""
    evidence: list[str] = []
    premises: list[str] = []
    alternatives_considered: list[str] = []
    assumptions: list[str] = []
    confidence: float | UnsetType = UNSET
    needs_validation: bool | UnsetType = UNSET
    validation_method: str | UnsetType = UNSET
    conclusion: str | UnsetType = UNSET
    evidence_digests: list[str] | UnsetType = UNSET
    settled: list[Settlement] | UnsetType = UNSET

    def whole(self) -> ReasoningStep:
        """Return the step with its defaults."""
        confidence = 1.0 if self.confidence is UNSET else self.confidence
        return ReasoningStep(**msgspec.structs.asdict(self) | {"confidence": confidence})


class ReasoningDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The changes between two versions; an absent field stays as it is.

    ``steps_added`` follow the steps that are kept. ``assumptions_updated`` maps a step to the settlements of its
    assumption, which are added to those that it has. ``steps_removed`` leave with their dependencies;
    ``steps_retracted`` leave with their dependencies and with every link to them.
    """

    task: str | UnsetType = UNSET
    ai_id: str | UnsetType = UNSET
    reasoning_strategy: str | UnsetType = UNSET
    steps_added: list[SentStep] = []
    dependencies: dict[int, list[int]] = {}
    assumptions_updated: dict[int, list[Settlement]] = {}
    conclusion: str | UnsetType = UNSET
    confidence_in_reasoning: float | UnsetType = UNSET
    known_limitations: list[str] | UnsetType = UNSET
    steps_changed: list[SentStep] = []
    steps_removed: list[int] = []
    steps_retracted: list[int] = []
    dependencies_removed: list[int] = []


encode_change: Final = msgspec.json.Encoder().encode
decode_change: Final = json_decoder(ReasoningDelta).decode


class GraphState(msgspec.Struct, frozen=True, array_like=True):
    """One version of a graph; ``steps`` are (number, canonical text) in the order of addition."""

    ai_id: str = ""
    task: str = ""
    reasoning_strategy: str = ""
    conclusion: str = ""
    confidence_in_reasoning: float = 1.0
    known_limitations: tuple[str, ...] = ()
    steps: tuple[tuple[int, str], ...] = ()
    dependencies: dict[int, tuple[int, ...]] = {}


def apply_event(state: GraphState, data: Any, author: str) -> GraphState:
    """Return the version after the data of an event of a graph (``change_of``), which ``author`` signed."""
    return apply_change(GraphState() if isinstance(data, kinds.ReasoningStarted) else state, change_of(data, author))


def apply_change(state: GraphState, change: ReasoningDelta) -> GraphState:
    """Return the version after a change from an event, a stored delta or a received delta.

    A change that does not fit the version gives some other graph. A caller that did not fold the change itself must
    compare the ref.
    """
    scalars = {name: value for name in _SCALARS if (value := getattr(change, name)) is not UNSET}
    if change.known_limitations is not UNSET:
        scalars["known_limitations"] = tuple(change.known_limitations)
    steps, dependencies = state.steps, state.dependencies
    if change.steps_removed or change.dependencies_removed:
        removed, unlinked = set(change.steps_removed), {*change.steps_removed, *change.dependencies_removed}
        steps = tuple(item for item in steps if item[0] not in removed)
        dependencies = {number: rests_on for number, rests_on in dependencies.items() if number not in unlinked}
    if change.steps_retracted:
        steps, dependencies = _without(steps, dependencies, set(change.steps_retracted))
    if change.steps_changed:
        changed = {step.step_number: _dump(step.whole().to_dict()) for step in change.steps_changed}
        steps = tuple((number, changed.get(number, text)) for number, text in steps)
    if change.steps_added:
        steps = (*steps, *((step.step_number, _dump(step.whole().to_dict())) for step in change.steps_added))
    if change.dependencies:
        dependencies = dependencies | {number: tuple(rests_on) for number, rests_on in change.dependencies.items()}
    if change.assumptions_updated:
        settled = change.assumptions_updated
        steps = tuple(
            (number, _updated(text, settled[number]) if number in settled else text) for number, text in steps
        )
    return msgspec.structs.replace(state, steps=steps, dependencies=dependencies, **scalars)


def _without(
    steps: tuple[tuple[int, str], ...], dependencies: dict[int, tuple[int, ...]], gone: set[int]
) -> tuple[tuple[tuple[int, str], ...], dict[int, tuple[int, ...]]]:
    """Return steps and links without the steps ``gone`` and without every link from or to them."""
    links = {number: tuple(on for on in rests_on if on not in gone) for number, rests_on in dependencies.items()}
    left = {number: rests_on for number, rests_on in links.items() if rests_on and number not in gone}
    return tuple(item for item in steps if item[0] not in gone), left


def state_of(memory: ReasoningMemory) -> GraphState:
    """Return a graph as a version, which has no ``reasoning_id``."""
    return GraphState(
        **{name: getattr(memory, name) for name in _SCALARS},
        known_limitations=tuple(memory.known_limitations),
        steps=tuple((step.step_number, _dump(step.to_dict())) for step in memory.steps),
        dependencies={number: tuple(rests_on) for number, rests_on in memory.dependencies.items()},
    )


def canonical_text(state: GraphState) -> bytes:
    """Return the bytes whose SHA-256 is the version's ref. They equal those of ``memory.canonical_json``."""
    # The fields are in the order of their keys. Links are only numbers, so the spaces of ``json.dumps`` are added
    # afterwards. Encoding links with ``json.dumps`` took longer than SHA-256 over the whole graph.
    links = dict(sorted(state.dependencies.items()))
    dependencies = msgspec.json.encode(links).replace(b",", b", ").replace(b":", b": ").decode()
    before = {name: getattr(state, name) for name in ("ai_id", "conclusion", "confidence_in_reasoning")}
    behind = {"known_limitations": state.known_limitations, "reasoning_strategy": state.reasoning_strategy}
    steps = ", ".join([text for _, text in state.steps])
    return (
        f'{_dump(before)[:-1]}, "dependencies": {dependencies}, {_dump(behind | {"reasoning_id": ""})[1:-1]}, '
        f'"steps": [{steps}], "task": {_dump(state.task)}}}'
    ).encode()


def ref_of(state: GraphState) -> str:
    """Return the version's ref, as ``memory.compute_reasoning_ref`` computes it."""
    return f"sha256:{hashlib.sha256(canonical_text(state)).hexdigest()}"


def memory_of(state: GraphState, reasoning_id: str) -> ReasoningMemory:
    """Return a version of a graph as ``ReasoningMemory``, with the name of its stream, which no ref covers, as id."""
    return ReasoningMemory(
        reasoning_id=reasoning_id,
        **{name: getattr(state, name) for name in _SCALARS},
        steps=[_step_decoder.decode(text) for _, text in state.steps],
        dependencies={number: list(rests_on) for number, rests_on in state.dependencies.items()},
        known_limitations=list(state.known_limitations),
    )


def _updated(text: str, settlements: list[Settlement]) -> str:
    values = json.loads(text)
    return _dump(values | {"settled": [*values.get("settled", []), *msgspec.to_builtins(settlements)]})


def sent_step(step: ReasoningStep | kinds.Step) -> SentStep:
    """Return a step, of a graph or of an event, in the form to send."""
    fields = msgspec.structs.asdict(step).items()
    values: dict[str, Any] = {name: UNSET if value is None else value for name, value in fields}
    return SentStep(**values | {"confidence": sent_confidence(step.confidence)})


def sent_confidence(confidence: float) -> float | UnsetType:
    """Return a confidence in the form to send; 1.0 becomes UNSET, because ``omit_defaults`` compares by identity."""
    # adding 0.0 turns -0.0, which has another spelling, into 0.0
    return UNSET if confidence == 1.0 else confidence + 0.0


def change_of(data: Any, author: str) -> ReasoningDelta:
    """Return the changes by the data of an event that ``author`` signed; none for kinds that change no graph."""
    match data:
        case kinds.ReasoningStarted():
            return ReasoningDelta(
                task=data.task, ai_id=data.ai_id or UNSET, reasoning_strategy=data.reasoning_strategy or UNSET
            )
        case kinds.ReasoningConcluded():
            confidence, limitations = data.confidence_in_reasoning, data.known_limitations
            return ReasoningDelta(
                conclusion=data.conclusion,
                confidence_in_reasoning=UNSET if confidence is None else confidence + 0.0,  # turn -0.0 into 0.0
                known_limitations=UNSET if limitations is None else limitations,
            )
        case kinds.ReasoningExtended():
            return ReasoningDelta(
                steps_added=[sent_step(step) for step in data.steps],
                dependencies=data.dependencies,
            )
        case kinds.AssumptionSettled():
            settlement = Settlement(author, data.holds, data.how, data.evidence, data.evidence_digests or [])
            return ReasoningDelta(assumptions_updated={data.step: [settlement]})
        case kinds.StepRetracted():
            return ReasoningDelta(steps_retracted=[data.step])
        case _:  # the data of any other kind
            return ReasoningDelta()
