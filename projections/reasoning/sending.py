"""What is sent to somebody who asks for a version of a graph: all of it, a chain of deltas, or one squashed delta.

A *payload* is JSON text that a receiver turns into the graph and hashes:

- ``full``: the graph as ``memory_from_dict`` reads it, without what has the seed's default;
- ``squashed``: ``{"reasoning_ref", "reasoning_delta", "target"}``, the seed's shape, from his base straight to the ref;
- ``chain``: ``{"reasoning_ref", "chain": [reasoning_delta, …], "target"}``, through every version in between. Their
  refs are left out: whoever applies the chain computes them, and could believe none that was sent.

Inside a payload a ref is 12 hex digits (7 tokens instead of 40), because it only says which version is meant. The whole
refs stand once in the envelope around it, which is the same for all three, and only the whole ref is what the receiver
compares the hash with.

The smallest of the three is sent: fewest tokens where tokens are counted exactly, else fewest bytes. Tokens are counted
when somebody asks and are stored nowhere: a machine without the tokenizer must fold the same rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from ledger.errors import Corrupted, Refused
from projections.briefs.tokens import count_tokens, tokenizer
from projections.query import prefix_digits_min
from projections.reasoning.changes import ReasoningDelta, SentStep, encode_change, sent_confidence, sent_step
from projections.reasoning.delta import Delta, apply_chain, find_change
from projections.reasoning.memory import compute_reasoning_ref, memory_from_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.reasoning.memory import ReasoningMemory

SentAs: TypeAlias = Literal["full", "squashed", "chain"]


class Size(NamedTuple):
    """How long a payload is: UTF-8 bytes, and tokens as they are counted here."""

    bytes: int
    tokens: int


class ChainCost(NamedTuple):
    """Tokens of giving somebody every version of a graph, one after the other, in this module's short form.

    ``resent`` sends each version whole. ``chain`` sends the first whole and one chain for the rest, ``messages`` the
    first whole and a message with both its refs for each of the rest. ``ratio`` is chain by resent.
    """

    versions: int
    resent: int
    chain: int
    messages: int
    ratio: float


class _Whole(msgspec.Struct, frozen=True, omit_defaults=True):
    task: str
    conclusion: str
    steps: list[SentStep]
    dependencies: dict[int, list[int]] = {}
    ai_id: str = ""
    reasoning_strategy: str = ""
    confidence_in_reasoning: float | UnsetType = UNSET
    known_limitations: list[str] = []


class _Deltas(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One delta or a chain of them; what is in it decides, not what it is called."""

    reasoning_ref: str
    target: str
    reasoning_delta: ReasoningDelta | None = None
    chain: list[ReasoningDelta] = []


_encode: Final = msgspec.json.Encoder().encode


def write_full(memory: ReasoningMemory) -> str:
    """Return the payload of a whole graph."""
    whole = _Whole(
        task=memory.task,
        conclusion=memory.conclusion,
        steps=[sent_step(step) for step in memory.steps],
        dependencies=memory.dependencies,
        ai_id=memory.ai_id,
        reasoning_strategy=memory.reasoning_strategy,
        confidence_in_reasoning=sent_confidence(memory.confidence_in_reasoning),
        known_limitations=memory.known_limitations,
    )
    return _encode(whole).decode()


def write_squashed(base: str, target: str, change: ReasoningDelta) -> str:
    """Return the payload of one delta between two refs."""
    return _encode(Delta(_short(base), change, _short(target))).decode()


def write_chain(base: str, target: str, changes: Sequence[str]) -> str:
    """Return the payload of a chain between two refs; each change is as ``encode_change`` wrote it."""
    chain = [msgspec.Raw(change.encode()) for change in changes]
    return _encode({"reasoning_ref": _short(base), "chain": chain, "target": _short(target)}).decode()


def measure(payload: str) -> Size:
    """Return how long a payload is."""
    return Size(len(payload.encode()), count_tokens(payload))


def choose(payloads: dict[SentAs, str]) -> tuple[SentAs, dict[SentAs, Size]]:
    """Return which payload is the smallest, the first of equals, and the sizes of all."""
    sizes = {name: measure(payload) for name, payload in payloads.items()}
    by_tokens = tokenizer().exact
    return min(sizes, key=lambda name: sizes[name].tokens if by_tokens else sizes[name].bytes), sizes


def read_payload(sent_as: str, payload: str, base: ReasoningMemory | None = None) -> ReasoningMemory:
    """Return the graph that was sent; the caller compares its hash with the whole ref.

    Raises:
        Refused: ``VERSION_MISMATCH`` when a delta is for another base than the one at hand.
        Corrupted: ``VERIFICATION_FAILED`` when the payload makes no graph, or another one than it says.
    """
    try:
        if sent_as == "full":
            return _read_full(payload)
        if sent_as in {"squashed", "chain"} and base is not None:
            return _read_deltas(payload, base)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Corrupted("VERIFICATION_FAILED", f"what was sent cannot be read: {error}") from error
    except Refused as refusal:
        if refusal.code == "VERSION_MISMATCH":
            raise
        raise Corrupted("VERIFICATION_FAILED", f"what was sent is no graph: {refusal.message}") from refusal
    raise Corrupted("VERIFICATION_FAILED", f"what was sent as {sent_as!r} was not asked for")


def measure_chain(versions: Sequence[ReasoningMemory]) -> ChainCost:
    """Return what deltas over these versions cost against sending each version whole again."""
    refs = [compute_reasoning_ref(version) for version in versions]
    changes = [find_change(base, target) for base, target in pairwise(versions)]
    sent = [
        write_squashed(base, target, change) for (base, target), change in zip(pairwise(refs), changes, strict=True)
    ]
    whole = [measure(write_full(version)).tokens for version in versions]
    chain = (
        whole[0]
        + measure(write_chain(refs[0], refs[-1], [encode_change(change).decode() for change in changes])).tokens
    )
    messages = whole[0] + sum(measure(payload).tokens for payload in sent)
    return ChainCost(len(versions), sum(whole), chain, messages, chain / sum(whole))


def describe_sizes(sizes: dict[SentAs, Size]) -> dict[str, Any]:
    """Return sizes as plain values; None for what could not be sent to this receiver."""
    names: tuple[SentAs, ...] = ("full", "chain", "squashed")
    return {name: sizes[name]._asdict() if name in sizes else None for name in names}


def _read_full(payload: str) -> ReasoningMemory:
    memory, unknown = memory_from_dict(msgspec.json.decode(payload))
    if unknown:
        raise Refused("UNKNOWN_FIELD", f"it has unknown fields: {', '.join(unknown)}")
    return memory


def _read_deltas(payload: str, base: ReasoningMemory) -> ReasoningMemory:
    sent = msgspec.json.decode(payload, type=_Deltas)
    changes = sent.chain if sent.reasoning_delta is None else [sent.reasoning_delta]
    return apply_chain(base, sent.reasoning_ref, changes, sent.target)


def _short(ref: str) -> str:
    return ref.removeprefix("sha256:")[:prefix_digits_min]
