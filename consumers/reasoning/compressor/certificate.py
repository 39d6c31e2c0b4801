"""Checks that a brief is right: that everything in it agrees with its graph.

The compressor chooses what a prompt shows of a graph; everything else follows from that choice and the graph. So the
check makes the brief again from its own choice and compares it field by field; it needs no list of possible forgeries.
It cannot compare the embedding of another embedder, nor values counted by another tokenizer (sizes, what fitted, and so
the fidelity): the caller must not pass on a brief that is not comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.compress import budget_needed, measured, remarks_of
from deedbook.consumers.reasoning.compressor.envelope import empty_brief, with_facts
from deedbook.ledger.events.brief import Brief, Fact
from deedbook.projections.briefs.embedding import is_embedding_of
from deedbook.projections.briefs.index import index_graph
from deedbook.projections.briefs.rejection import CertificateProblem
from deedbook.projections.briefs.tokens import tokenizer
from deedbook.projections.reasoning.delta import write_full
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref

S = TypeVar("S", bound=msgspec.Struct)

_COUNTED: Final = ("reasoning_brief", "dropped_steps", "fidelity", "sizes", "budget_needed_for_090")
_NOT_COMPARED: Final = {"compressor_name", "compressor_version", "tokenizer", "exact", "embedding", "facts", *_COUNTED}
_FROM_GRAPH: Final = tuple(name for name in Brief.__struct_fields__ if name not in _NOT_COMPARED)


def is_comparable(brief: Brief) -> bool:
    """Return whether a brief was counted with our tokenizer: otherwise its fidelity cannot be checked."""
    return (brief.tokenizer, brief.exact) == (tokenizer().name, tokenizer().exact)


def check_certificate(
    brief: Brief, memory: ReasoningMemory, *, context: str | None = None, domain: str | None = None
) -> list[CertificateProblem]:
    """Return every difference between a brief and its graph, compressed with ``context`` and ``domain``."""
    if brief.reasoning_ref != compute_reasoning_ref(memory):
        return [CertificateProblem("reasoning_ref", None, "The brief belongs to another graph.")]
    index = index_graph(memory)
    empty = empty_brief(index, brief.level, brief.budget, context=context, domain=domain)
    base = replace(empty, whole_graph=write_full(memory)) if brief.layout.whole else empty
    stated = {fact.step for fact in brief.facts}.difference(brief.layout.others)
    remarks = [remark for remark in remarks_of(index) if remark in brief.remarks]
    true = with_facts(base, index, stated, remarks, brief.layout)
    problems = [*_fact_problems(brief.facts, true.facts), *differences(brief, true, _FROM_GRAPH)]
    if not problems and is_comparable(brief):
        true = measured(replace(true, budget_needed_for_090=budget_needed(index, empty)), index)
        problems = list(differences(brief, true, _COUNTED))
    if brief.embedding is not None and not is_embedding_of(brief.embedding, brief.reasoning_brief):
        problems.append(CertificateProblem("embedding", None, "The vector does not belong to the sentences."))
    return problems


def differences(signed: S, true: S, names: Iterable[str]) -> Iterator[CertificateProblem]:
    """Yield a problem for each of these fields that differs."""
    for name in names:
        if getattr(signed, name) != getattr(true, name):
            yield CertificateProblem(name, None, "It differs from the graph and the facts shown.")


def _fact_problems(facts: list[Fact], true: list[Fact]) -> Iterator[CertificateProblem]:
    by_step = {fact.step: fact for fact in true}
    for fact in facts:
        own = by_step.get(fact.step)
        if own is None:
            yield CertificateProblem("facts", fact.step, "The graph has no such step.")
            continue
        for name in Fact.__struct_fields__:
            if getattr(fact, name) != getattr(own, name):
                yield CertificateProblem(f"facts.{name}", fact.step, f"The fact's {name} differs from the step's.")
    if [fact.step for fact in facts] != [fact.step for fact in true]:
        yield CertificateProblem("facts", None, "They do not list each step shown once, in the order of the graph.")
