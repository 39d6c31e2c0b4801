"""Deltas between versions of a reasoning graph, and the receiver's check of them (seed 001, "Delta Compression").

    delta = make_delta(base, target)              # any two versions, however far apart: a squashed delta
    memory = apply_delta(base, delta)             # hashes to delta.target, or raises

Nothing is believed: a delta for another base is refused, and what comes of it must hash to the ref it names. So a
delta may come from anybody. Where refs are shortened to 12 hex digits (inside a payload, see ``sending``) whoever
receives it compares the result with the whole ref he asked for.

Everything here is a function of its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ledger.errors import Corrupted, Refused
from projections.reasoning.changes import ReasoningDelta, sent_step
from projections.reasoning.graph import apply_change, memory_of, ref_of, settle, state_of
from projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref
from projections.refs import prefix_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projections.reasoning.memory import ReasoningStep

NOTHING: Final = ReasoningMemory(reasoning_id="", ai_id="", task="", conclusion="")
_SCALARS: Final = ("task", "ai_id", "reasoning_strategy", "conclusion", "confidence_in_reasoning", "known_limitations")


class Delta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A delta in the seed's shape: ``reasoning_ref`` is the ref of the base, ``target`` that of the result."""

    reasoning_ref: str
    reasoning_delta: ReasoningDelta
    target: str

    def to_dict(self) -> dict[str, Any]:
        """Return the delta as plain JSON values; step numbers that are keys are texts, as JSON has them."""
        values: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return values


def make_delta(base: ReasoningMemory, target: ReasoningMemory) -> Delta:
    """Return the delta that turns ``base`` into ``target``; neighbours or not, forwards or backwards."""
    return Delta(compute_reasoning_ref(base), find_change(base, target), compute_reasoning_ref(target))


def apply_delta(base: ReasoningMemory, delta: Delta) -> ReasoningMemory:
    """Return the graph that a delta makes of ``base``; its hash was computed and is the delta's target.

    Raises:
        Refused: ``VERSION_MISMATCH`` when the delta is for another base, ``INVALID_FIELD`` when it names none.
        Corrupted: ``VERIFICATION_FAILED`` when the result is not what the delta says.
    """
    return apply_chain(base, delta.reasoning_ref, [delta.reasoning_delta], delta.target)


def apply_chain(
    base: ReasoningMemory, base_ref: str, changes: Iterable[ReasoningDelta], target: str
) -> ReasoningMemory:
    """Return the graph that changes make of ``base``, one after the other; its hash was computed and is ``target``.

    Raises:
        Refused: ``VERSION_MISMATCH`` when the changes are for another base, ``INVALID_FIELD`` for what is no ref.
        Corrupted: ``VERIFICATION_FAILED`` when the result is not ``target``.
    """
    state = state_of(base)
    held = ref_of(state)
    if not _is_named(base_ref, held):
        raise Refused("VERSION_MISMATCH", f"the delta is for {base_ref}, not for {held}", base=base_ref, held=held)
    try:
        for change in changes:
            state = apply_change(state, change)
        computed = ref_of(state)
    except ValueError as error:  # NaN, which no JSON holds, but a delta made by hand may
        raise Corrupted("VERIFICATION_FAILED", f"the delta makes no graph: {error}", ref=target) from error
    if not _is_named(target, computed):
        raise Corrupted(
            "VERIFICATION_FAILED", f"the delta leads to {computed}, not to {target}", ref=target, computed=computed
        )
    return memory_of(state, base.reasoning_id)


def find_change(base: ReasoningMemory, target: ReasoningMemory) -> ReasoningDelta:
    """Return what changes from one graph to another."""
    kept = _kept_steps(base, target)
    before = {step.step_number: step for step in base.steps}
    updated: dict[int, str] = {}
    changed: list[ReasoningStep] = []
    for step in kept:
        if step != (old := before[step.step_number]):
            update = _find_update(old, step)
            if update is None:
                changed.append(step)
            else:
                updated[step.step_number] = update
    numbers = {step.step_number for step in kept}
    linked = {number: rests_on for number, rests_on in base.dependencies.items() if number in numbers}
    return ReasoningDelta(
        steps_added=[sent_step(step) for step in target.steps[len(kept) :]],
        dependencies={
            number: rests_on for number, rests_on in target.dependencies.items() if linked.get(number) != rests_on
        },
        assumptions_updated=updated,
        steps_changed=[sent_step(step) for step in changed],
        steps_removed=[step.step_number for step in base.steps if step.step_number not in numbers],
        dependencies_removed=[number for number in linked if number not in target.dependencies],
        **{name: _unless_equal(getattr(base, name), getattr(target, name)) for name in _SCALARS},
    )


def _kept_steps(base: ReasoningMemory, target: ReasoningMemory) -> list[ReasoningStep]:
    """Return the first steps of the target, for as long as they stand in the base in the same order.

    What was added stands after what was kept, so a step that moved counts as removed and added. A version that grew
    out of the other by events keeps all of its steps.
    """
    position = {step.step_number: index for index, step in enumerate(base.steps)}
    kept: list[ReasoningStep] = []
    last = -1
    for step in target.steps:
        index = position.get(step.step_number, -1)
        if index <= last:
            break
        kept.append(step)
        last = index
    return kept


def _find_update(old: ReasoningStep, new: ReasoningStep) -> str | None:
    """Return the text that settles the assumption ``old`` so that it is ``new``; None when something else changed."""
    before, after = old.conclusion or "", new.conclusion
    if after is UNSET:
        return None
    update = after.removeprefix(settle(before, ""))
    settled = replace(old, needs_validation=False, conclusion=settle(before, update))
    return update if settled == new else None


def _unless_equal(before: Any, after: Any) -> Any:
    return UNSET if before == after else after


def _is_named(ref: str, whole: str) -> bool:
    """Whether ``ref``, whole or a beginning of 12 or more hex digits, names the whole ref."""
    bounds = prefix_range(ref, "sha256")
    if bounds is None:
        raise Refused("INVALID_FIELD", f"{ref!r} names no version of a graph", ref=ref)
    return bounds[0] <= whole < bounds[1]
