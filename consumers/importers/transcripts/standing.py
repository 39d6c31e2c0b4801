"""What a ledger holds already of a response: the same, a beginning of it, or something else under its id.

A transcript grows while it is read: the first run may see the thinking of a response, and the next one its answer, too.
What stands is then extended, never begun anew. A copy that ends earlier than what stands adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.importers.transcripts.mapping import Thought
    from ledger.client import Ask


class Standing(NamedTuple):
    """Where a response belongs: under ``name``; ``rest`` is what is still to be added there (None: nothing).

    ``is_new``: nothing stands there yet. ``owner`` is whoever imported what does.
    """

    name: str
    rest: ReasoningMemory | None
    is_new: bool
    owner: str = ""


class Standings:
    """Looks up what stands, and what a dry run would have added."""

    def __init__(self, answer: Ask, *, is_dry: bool = False) -> None:
        """Ask ``answer``, as the reader of views beside a ledger or a server does."""
        self._answer = answer
        self._is_dry = is_dry
        self._found: dict[str, dict[str, Any]] = {}
        self._planned: dict[str, ReasoningMemory] = {}

    def plan(self, name: str, memory: ReasoningMemory) -> None:
        """Remember what a dry run would add."""
        if self._is_dry:
            self._planned[name] = memory

    def look_up(self, thoughts: Sequence[Thought]) -> None:
        """Ask for everything that these responses may stand under, at once."""
        names = [name for thought in thoughts for name in thought.names]
        self._found = self._answer("reasoning.standings", {"ids": names})["reasonings"] if names else {}

    def of(self, thought: Thought) -> Standing:
        """Return where a response belongs, and what of it is missing there.

        Raises:
            Refused: as ``memory_from_dict``, when the answer is no graph.
        """
        for name in thought.names:
            found = self._found.get(name)
            if found is None and name not in self._planned:
                return Standing(name, thought.memory, is_new=True)
            if found is not None and found["imported"] is None:
                continue  # somebody's own reasoning, which happens to have this id
            owner = "" if found is None else found["author"]
            if found is not None and found["ref"] == compute_reasoning_ref(thought.memory):
                return Standing(name, None, is_new=False, owner=owner)
            there = self._planned.get(name) or self._memory(name)
            if is_beginning(thought.memory, there):
                return Standing(name, None, is_new=False, owner=owner)
            if is_beginning(there, thought.memory):
                return Standing(name, rest_of(thought.memory, there), is_new=False, owner=owner)
        return Standing(thought.names[-1], thought.memory, is_new=True)

    def has_record(self, stream: str) -> bool:
        """Tell whether something was kept aside on a stream."""
        total: int = self._answer("catalog.find", {"stream": stream, "limit": 1})["total"]
        return total > 0

    def _memory(self, name: str) -> ReasoningMemory:
        memory, _ = memory_from_dict(self._answer("reasoning.full", {"ref": name})["memory"])
        return memory


def is_beginning(first: ReasoningMemory, whole: ReasoningMemory) -> bool:
    """Tell whether a graph holds nothing that another one does not hold at the same place; tasks are not compared.

    An answer grows, too: what is said after a call of a tool follows what was said before it.
    """
    if whole.steps[: len(first.steps)] != first.steps:
        return False
    return whole.conclusion.startswith(first.conclusion) or len(first.steps) < len(whole.steps)


def rest_of(whole: ReasoningMemory, there: ReasoningMemory) -> ReasoningMemory:
    """Return the part of a graph that is still missing: further steps, and the conclusion if it is another."""
    conclusion = "" if whole.conclusion == there.conclusion else whole.conclusion
    return msgspec.structs.replace(whole, steps=whole.steps[len(there.steps) :], conclusion=conclusion)
