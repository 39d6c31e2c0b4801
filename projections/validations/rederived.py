"""Re-derivations: reasonings of other agents that reach the same conclusion, and why one is not independent.

If a reasoning does not pass its validation, its receiver can ask a human, or find another agent who derived the same
conclusion independently. So a re-derivation is shown by name beside the human's answer, and opens no gate. The log
cannot prove independence, because reading leaves no entry, and an accomplice of the author could copy a conclusion. An
equal conclusion does not prove the author's steps either. A receiver acts on the re-derivation itself, and the
validation of the re-derivation decides.

It is called independent only if nothing here speaks against it:

- Other agents recorded it, here, by themselves: an import proves nothing.
- No key behind either conclusion is reported compromised.
- It belongs to another session, and states no step in the same words.
- It has a step besides its conclusion, and its conclusion rests on no refuted assumption.
- Before the later of the two conclusions, neither author had validated the other reasoning or settled one of its
  assumptions.

Conclusions are the same if their words are (``conclusion_key``). One of fewer than four words ("Yes") says too little
alone: then the tasks must be the same, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from deedbook.ledger.lifecycle.authority import report_on_signature
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.briefs.critical import refutations
from deedbook.projections.briefs.text import plain, words
from deedbook.projections.reasoning.answers import ReasoningLine
from deedbook.projections.reasoning.fold import VERSIONS, ReasoningRecord
from deedbook.projections.reasoning.graph import decode_change, memory_of
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.reasoning.queries import get_graph
from deedbook.projections.validations.answers import Rederivation
from deedbook.projections.validations.fold import VALIDATIONS

looked_at_max: Final = 16
"""The newest reasonings with the same conclusion that are compared."""

telling_words_min: Final = 4


class Derivation(NamedTuple):
    """A concluded reasoning: its author and session, the entry of its conclusion, and the first entry of each visitor.

    A visitor is another agent who validated it or settled one of its assumptions. ``compromised`` is the entry that
    reports the key behind the conclusion as compromised, if any.
    """

    author: str
    session: str
    memory: ReasoningMemory
    concluded_index: int
    visitors: dict[str, int]
    compromised: int | None = None


def rederivations(source: RowSource, ref: str, owners: Iterable[str]) -> list[Rederivation]:
    """Return the reasonings of other agents that reach the same conclusion as a version, newest first.

    ``owners`` are the ids of the reasonings that have this version, whose ref is ``ref``.
    """
    names, records = sorted(owners), source.states("reasoning", ReasoningRecord, owners)
    memory = next((_memory(record) for record in records.values() if record.ref == ref), None)
    memory = memory or get_graph(source, ref).memory
    if not plain(memory.conclusion):
        return []
    args = {"conclusion": memory.conclusion, "status": "concluded", "limit": looked_at_max}
    listed = source.view("reasoning.list", args, Page[ReasoningLine]).items
    own = [_derivation(source, records[name]) for name in names if name in records]
    authors = {derivation.author for derivation in own}
    found: list[Rederivation] = []
    # The view only supplies candidates. The states come from verified entries if the source reads these.
    for name, record in source.states("reasoning", ReasoningRecord, [line.id for line in listed]).items():
        other = _derivation(source, record)
        is_own_text = record.origin is None and not record.is_erased
        is_of_other = record.author not in authors and is_own_text and record.status == "concluded"
        if is_of_other and is_same_conclusion(memory, other.memory):
            doubts = filter(None, (doubt_of(each._replace(memory=memory), other) for each in own))
            doubt = next(doubts, "")
            index = other.concluded_index
            found.append(
                Rederivation(
                    reasoning_id=name, reasoning_ref=record.ref, event_index=index, by=record.author, doubt=doubt
                )
            )
    return sorted(found, key=lambda each: each.event_index, reverse=True)


def is_same_conclusion(first: ReasoningMemory, second: ReasoningMemory) -> bool:
    """Return whether two reasonings reach the same conclusion (see the module docstring)."""
    is_same = plain(first.conclusion) == plain(second.conclusion)
    is_telling = len(words(first.conclusion)) >= telling_words_min
    return is_same and (is_telling or plain(first.task) == plain(second.task))


def doubt_of(first: Derivation, second: Derivation) -> str:
    """Return a text about the reasons against their independence; empty if the ledger shows none."""
    if first.session and first.session == second.session:
        return f"both belong to the session {first.session}"
    for derivation in (first, second):
        if derivation.compromised is not None:
            return f"entry {derivation.compromised} reports a key behind that of {derivation.author} as compromised"
    own, copied = _steps(second), _steps(first).keys() & _steps(second).keys()
    if not own:
        return "it has no step but its conclusion"
    if copied:
        return f"its step {min(own[text] for text in copied)} has the same words"
    if any(refuted.is_ground for refuted in refutations(second.memory)):
        return "it rests on a refuted assumption"
    for visited, visitor in ((first, second), (second, first)):
        index = visited.visitors.get(visitor.author, visitor.concluded_index)
        if index < visitor.concluded_index:
            return f"{visitor.author} had examined that of {visited.author} before (entry {index})"
    return ""


def _steps(derivation: Derivation) -> dict[str, int]:
    """Return the numbers of the steps by their words, without those that state the conclusion."""
    conclusion = plain(derivation.memory.conclusion)
    steps = {plain(step.content): step.step_number for step in derivation.memory.steps}
    return {text: number for text, number in steps.items() if text != conclusion}


def _derivation(source: RowSource, record: ReasoningRecord) -> Derivation:
    kind, agents = "reasoning.concluded", source.agents([record.author])
    rows = source.select(VERSIONS, "version", newest_first=True, limit=1, reasoning_id=record.id, kind=kind)
    index, compromised = record.updated_index, None
    for row in rows:
        index = row["event_index"]
        compromised = report_on_signature(agents, row["key"], kind, f"reasoning/{record.id}", index)
    return Derivation(record.author, record.session, _memory(record), index, _visitors(source, record.id), compromised)


def _memory(record: ReasoningRecord) -> ReasoningMemory:
    return memory_of(record.graph, record.id)


def _visitors(source: RowSource, name: str) -> dict[str, int]:
    visits = [
        (row["author"], row["event_index"]) for row in source.select(VALIDATIONS, "event_index", reasoning_id=name)
    ]
    for row in source.select(VERSIONS, "event_index", reasoning_id=name, kind="reasoning.assumption_settled"):
        settled = decode_change(row["delta"]).assumptions_updated.values()
        visits += [(each.by, row["event_index"]) for settlements in settled for each in settlements]
    return dict(sorted(visits, key=lambda visit: visit[1], reverse=True))
