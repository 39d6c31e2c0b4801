"""Warns an author, before they sign, of links that a validator would report; suggests links from the words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from shlex import quote
from typing import Any, Final, TypeVar

from deedbook.consumers.reasoning.validator.evidence import cite
from deedbook.consumers.reasoning.validator.validator import (
    check_inference,
    inferences_of,
    is_unlinked,
    premises_of,
)
from deedbook.consumers.sdk.text import counted
from deedbook.consumers.sdk.thinking.extract import Links, link_steps
from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.briefs.critical import concluding_steps
from deedbook.projections.reasoning.graph import GraphState, apply_event, memory_of, state_of
from deedbook.projections.reasoning.memory import ReasoningMemory, memory_from_dict

T = TypeVar("T")

links_shown_max: Final = 5


def check_drafts(drafts: Sequence[tuple[str, T]], view: Ask, *, is_own: bool = True) -> tuple[list[T], list[str]]:
    """Return the data of drafts with the digests of what they cite, and warnings about evidence and links.

    Each draft is a stream and its data. The arguments are those of ``cite``.
    Raises Refused: as ``cite``; ``INVALID_FORMAT`` for a number that JSON does not have.
    """
    for _, data in drafts:
        encode_canonical(data)  # the links are found in a graph, and a graph cannot hold NaN
    names = (quote(stream.removeprefix("reasoning/")) for stream, _ in drafts)
    retractions = [f"deed reasoning retract {name}" for name in names]
    cited, missing = cite([data for _, data in drafts], view, is_own=is_own, retractions=retractions)
    return cited, [*missing, *link_warnings(drafts, view)]


def link_warnings(drafts: Iterable[tuple[str, Any]], view: Ask) -> list[str]:
    """Return warnings about the steps and conclusions in events to be signed: the stream and data of each.

    A recorded reasoning that they extend is read from ``view``. At most ``links_shown_max`` are about one reasoning.
    """
    added: dict[str, list[EventData]] = {}
    for stream, data in drafts:
        if isinstance(data, ReasoningStarted | ReasoningExtended | ReasoningConcluded):
            added.setdefault(stream.removeprefix("reasoning/"), []).append(data)
    warnings: list[str] = []
    for name, events in added.items():
        is_new = isinstance(events[0], ReasoningStarted)
        recorded = GraphState() if is_new else _recorded(view("reasoning.show", {"id": name}))
        found = _warnings(name, recorded, events)
        warnings += found[:links_shown_max]
        if (more := len(found) - links_shown_max) > 0:
            warnings.append(f"{name}: and {counted(more, 'more warning')} about links")
    return warnings


def _recorded(shown: Mapping[str, Any]) -> GraphState:
    memory, _ = memory_from_dict(shown["memory"])
    return state_of(memory)


def _warnings(name: str, recorded: GraphState, events: Sequence[EventData]) -> list[str]:
    known = {number for number, _ in recorded.steps}
    state = recorded
    for data in events:
        state = apply_event(state, data, "")
    memory = memory_of(state, name)
    steps, suggested = premises_of(memory), _Suggested(memory)
    unlinked: list[int] = []
    warnings: list[str] = []
    for step in inferences_of(memory):
        number = step.step_number
        deps = [steps[wanted] for wanted in memory.dependencies.get(number, ()) if wanted in steps]
        check = check_inference(step, deps)
        if number in known or check.status == "sound":
            continue
        if check.status == "unlinked":
            unlinked.append(number)
            words = suggested.before(number)
            advice = "no step comes before it: if you saw this, record it as an observation"
            if words:
                advice = "record it again with the steps that it rests on, and let the conclusion rest on the new step"
            warnings.append(f"step {number} of {name} is unlinked{words}: {advice}")
        else:
            warnings.append(f"step {number} of {name}: {check.reason}")
    is_concluded = any(isinstance(data, ReasoningConcluded) for data in events)
    concluding = {step.step_number for step in concluding_steps(memory)} if is_concluded else set()
    if is_concluded and is_unlinked(memory) and concluding.isdisjoint(unlinked):
        advice = f"`deed reasoning conclude {quote(name)} TEXT --rests-on STEP` names the steps that it rests on"
        warnings.append(f"the conclusion of {name} is unlinked{suggested.before(None)}: {advice}")
    return warnings


class _Suggested:
    """The links that the importer's rules find in the words of the steps and conclusion; computed once."""

    def __init__(self, memory: ReasoningMemory) -> None:
        self._memory = memory

    def before(self, number: int | None) -> str:
        """Return a remark about a step (None: the conclusion); empty if no step comes before it."""
        place = self._numbers.index(number) + 1
        found = self._links.get(place) or ({place - 1: "adjacent"} if place > 1 else {})
        words = ", ".join(str(self._numbers[earlier - 1]) for earlier in found)
        return f" (its words suggest {words})" if words else ""

    @cached_property
    def _numbers(self) -> list[int | None]:
        return [*(step.step_number for step in self._memory.steps), None]

    @cached_property
    def _links(self) -> Links:
        texts = [*(step.content for step in self._memory.steps), self._memory.conclusion]
        return link_steps(dict(enumerate(texts, start=1)), {})
