"""Deltas between versions of a reasoning graph, the receiver's check of them, and the payload to send.

A delta may come from anybody. One for another base is refused, and its result must hash to the ref it names.

A *payload* is JSON text that a receiver turns into the graph and hashes. ``full`` is the graph as ``memory_from_dict``
reads it, without default values; ``squashed`` is one delta from the receiver's base straight to the ref; ``chain`` has
every version in between. A ref inside it has 12 hex digits (7 tokens instead of 40) and only names the version. The
envelope has the whole ref, and the receiver compares the hash with it.

The smallest payload is sent: the fewest tokens where they are counted exactly, else the fewest bytes. Tokens are
counted on request and never stored, because a machine without the tokenizer must fold the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers.query import prefix_digits_min, prefix_range
from deedbook.projections.briefs.tokens import count_tokens, tokenizer
from deedbook.projections.reasoning import graph
from deedbook.projections.reasoning.memory import (
    ReasoningMemory,
    ReasoningStep,
    Settlement,
    compute_reasoning_ref,
    memory_from_dict,
)

SentAs: TypeAlias = Literal["full", "squashed", "chain"]

_SCALARS: Final = ("task", "ai_id", "reasoning_strategy", "conclusion", "confidence_in_reasoning", "known_limitations")
_encode: Final = msgspec.json.Encoder().encode


class Delta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A delta to send: ``reasoning_ref`` is the ref of the base, ``target`` that of the result."""

    reasoning_ref: str
    reasoning_delta: graph.ReasoningDelta
    target: str

    def to_dict(self) -> dict[str, Any]:
        """Return the delta as plain JSON values; step numbers that are keys become strings, as in JSON."""
        values: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return values


class Size(msgspec.Struct, frozen=True):
    """The length of a payload: UTF-8 bytes, and tokens by the tokenizer here."""

    bytes: int
    tokens: int


class _Whole(msgspec.Struct, frozen=True, omit_defaults=True):
    task: str
    conclusion: str
    steps: list[graph.SentStep]
    dependencies: dict[int, list[int]] = {}
    ai_id: str = ""
    reasoning_strategy: str = ""
    confidence_in_reasoning: float | UnsetType = UNSET
    known_limitations: list[str] = []


class _Deltas(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One delta or a chain of them. The present fields decide which, not the name under which it was sent."""

    reasoning_ref: str
    target: str
    reasoning_delta: graph.ReasoningDelta | None = None
    chain: list[graph.ReasoningDelta] = []


def make_delta(base: ReasoningMemory, target: ReasoningMemory) -> Delta:
    """Return the delta that turns ``base`` into ``target``; they may be any two versions."""
    return Delta(compute_reasoning_ref(base), find_change(base, target), compute_reasoning_ref(target))


def describe_change(base: ReasoningMemory, target: ReasoningMemory) -> dict[str, Any]:
    """Return the delta to apply, and each change beside the former value."""
    delta = make_delta(base, target)
    change = delta.reasoning_delta
    before = {step.step_number: step for step in base.steps}
    after = {step.step_number: step for step in target.steps}
    values = {name: (getattr(base, name), getattr(target, name)) for name in _SCALARS if name != "known_limitations"}
    linked = sorted({*change.dependencies, *change.dependencies_removed} & before.keys() & after.keys())
    return {
        **delta.to_dict(),
        "is_equal": delta.reasoning_ref == delta.target,
        "size": msgspec.structs.asdict(measure(write_squashed(delta.reasoning_ref, delta.target, change))),
        "steps_added": [
            after[step.step_number].to_dict() | {"rests_on": target.dependencies.get(step.step_number, [])}
            for step in change.steps_added
        ],
        "assumptions_settled": [
            {"step": number, "content": before[number].content} | msgspec.to_builtins(settlement)
            for number, settlements in change.assumptions_updated.items()
            for settlement in settlements
        ],
        "steps_changed": [
            {"step": step.step_number, "before": before[step.step_number].to_dict(), "after": step.whole().to_dict()}
            for step in change.steps_changed
        ],
        "steps_removed": [before[number].to_dict() for number in change.steps_removed],
        "links_changed": [
            {"step": number, "before": base.dependencies.get(number, []), "after": target.dependencies.get(number, [])}
            for number in linked
        ],
        "changed": {name: {"before": old, "after": new} for name, (old, new) in values.items() if old != new},
        "limitations_added": [
            limitation for limitation in target.known_limitations if limitation not in base.known_limitations
        ],
        "limitations_removed": [
            limitation for limitation in base.known_limitations if limitation not in target.known_limitations
        ],
        "limitations_reordered": base.known_limitations != target.known_limitations
        and set(base.known_limitations) == set(target.known_limitations),
    }


def apply_chain(
    base: ReasoningMemory, base_ref: str, changes: Iterable[graph.ReasoningDelta], target: str
) -> ReasoningMemory:
    """Return the graph after applying changes to ``base``, one after the other; its hash is ``target``.

    Raises Refused: ``VERSION_MISMATCH`` if the changes are for another base, ``INVALID_FIELD`` for an invalid ref.
    Corrupted: ``VERIFICATION_FAILED`` if the result is not ``target``.
    """
    state = graph.state_of(base)
    own_ref = graph.ref_of(state)
    if not _is_named(base_ref, own_ref):
        raise Refused(
            "VERSION_MISMATCH", f"the delta is for {base_ref}, not for {own_ref}", base=base_ref, held=own_ref
        )
    try:
        for change in changes:
            state = graph.apply_change(state, change)
        computed = graph.ref_of(state)
    except ValueError as error:  # NaN: not in JSON, but possible in a delta made by hand
        raise Corrupted("VERIFICATION_FAILED", f"the delta gives no valid graph: {error}", ref=target) from error
    if not _is_named(target, computed):
        message = f"the delta leads to {computed}, not to {target}"
        raise Corrupted("VERIFICATION_FAILED", message, ref=target, computed=computed)
    return graph.memory_of(state, base.reasoning_id)


def find_change(base: ReasoningMemory, target: ReasoningMemory) -> graph.ReasoningDelta:
    """Return the changes from one graph to another."""
    kept_steps = _unchanged_steps(base, target)
    before = {step.step_number: step for step in base.steps}
    updated: dict[int, list[Settlement]] = {}
    changed: list[ReasoningStep] = []
    for step in kept_steps:
        if step != (old := before[step.step_number]):
            known = len(old.settlements())
            further = step.settlements()[known:]
            if further and step == replace(old, settled=[*old.settlements(), *further]):
                updated[step.step_number] = further
            else:
                changed.append(step)
    numbers = {step.step_number for step in kept_steps}
    linked = {number: rests_on for number, rests_on in base.dependencies.items() if number in numbers}
    return graph.ReasoningDelta(
        steps_added=[graph.sent_step(step) for step in target.steps[len(kept_steps) :]],
        dependencies={number: after for number, after in target.dependencies.items() if linked.get(number) != after},
        assumptions_updated=updated,
        steps_changed=[graph.sent_step(step) for step in changed],
        steps_removed=[step.step_number for step in base.steps if step.step_number not in numbers],
        dependencies_removed=[number for number in linked if number not in target.dependencies],
        **{name: new for name in _SCALARS if (new := getattr(target, name)) != getattr(base, name)},
    )


def _unchanged_steps(base: ReasoningMemory, target: ReasoningMemory) -> list[ReasoningStep]:
    """Return the leading steps of the target that are in the base in the same order.

    Added steps come after kept ones, so a step that moved counts as removed and added. A version that grew out of the
    other by events keeps all of its steps.
    """
    position = {step.step_number: index for index, step in enumerate(base.steps)}
    steps: list[ReasoningStep] = []
    last = -1
    for step in target.steps:
        index = position.get(step.step_number, -1)
        if index <= last:
            break
        steps.append(step)
        last = index
    return steps


def _is_named(ref: str, whole: str) -> bool:
    bounds = prefix_range(ref, "sha256")
    if bounds is None:
        raise Refused("INVALID_FIELD", f"{ref!r} is no ref of a graph version", ref=ref)
    return bounds[0] <= whole < bounds[1]


def write_full(memory: ReasoningMemory) -> str:
    """Return the payload of a whole graph."""
    values = {name: getattr(memory, name) for name in _Whole.__struct_fields__}
    steps, confidence = map(graph.sent_step, memory.steps), graph.sent_confidence(memory.confidence_in_reasoning)
    return _encode(_Whole(**values | {"steps": list(steps), "confidence_in_reasoning": confidence})).decode()


def write_squashed(base: str, target: str, change: graph.ReasoningDelta) -> str:
    """Return the payload of one delta between two refs."""
    return _encode(Delta(_short(base), change, _short(target))).decode()


def write_chain(base: str, target: str, changes: Sequence[str]) -> str:
    """Return the payload of type ``chain``: the deltas that lead from the version ``base`` to the version ``target``.

    Both are refs. ``changes`` are JSON texts from ``encode_change``, one for each version, oldest first.
    """
    chain = [msgspec.Raw(change.encode()) for change in changes]
    return _encode({"reasoning_ref": _short(base), "chain": chain, "target": _short(target)}).decode()


def measure(payload: str) -> Size:
    """Return the size of a payload in UTF-8 bytes and in tokens."""
    return Size(len(payload.encode()), count_tokens(payload))


def choose(payloads: dict[SentAs, str]) -> tuple[SentAs, dict[SentAs, Size]]:
    """Return the type of the smallest payload, the first of equals, and all sizes."""
    sizes = {name: measure(payload) for name, payload in payloads.items()}
    by_tokens = tokenizer().exact
    return min(sizes, key=lambda name: sizes[name].tokens if by_tokens else sizes[name].bytes), sizes


def read_payload(sent_as: str, payload: str, base: ReasoningMemory | None = None) -> ReasoningMemory:
    """Return the graph of a payload; the caller compares its hash with the whole ref."""
    try:
        if sent_as == "full":
            return _read_full(payload)
        if sent_as in {"squashed", "chain"} and base is not None:
            sent = read_json(payload, _Deltas)
            changes = sent.chain if sent.reasoning_delta is None else [sent.reasoning_delta]
            return apply_chain(base, sent.reasoning_ref, changes, sent.target)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Corrupted("VERIFICATION_FAILED", f"the payload cannot be read: {error}") from error
    except Refused as refusal:
        if refusal.code == "VERSION_MISMATCH":
            raise
        raise Corrupted("VERIFICATION_FAILED", f"the payload is no graph: {refusal.message}") from refusal
    raise Corrupted("VERIFICATION_FAILED", f"a payload of type {sent_as!r} was not requested")


def _read_full(payload: str) -> ReasoningMemory:
    memory, unknown = memory_from_dict(msgspec.json.decode(payload))
    if unknown:
        raise Refused("UNKNOWN_FIELD", f"it has unknown fields: {', '.join(unknown)}")
    return memory


def _short(ref: str) -> str:
    return ref.removeprefix("sha256:")[:prefix_digits_min]
