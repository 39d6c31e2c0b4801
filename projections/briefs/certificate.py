"""What a compressor hands over in place of a graph, and how a receiver checks it.

A brief's facts are byte for byte the trimmed contents of steps, so comparing finds every corruption. Prose fields and
embeddings are derived from the facts; an embedding by another embedder than ours is compared with nothing.
"""

from __future__ import annotations

import msgspec

from ledger.events.brief import Brief, Fact
from projections.briefs.critical import fact_text, is_open_assumption, own_conclusion
from projections.briefs.embedding import is_embedding_of
from projections.briefs.sentences import lead_sentences
from projections.reasoning.memory import ReasoningMemory, ReasoningStep, compute_reasoning_ref


class CertificateProblem(msgspec.Struct, frozen=True):
    """Where a brief says something else than its graph."""

    field: str
    step: int | None
    message: str


def check_certificate(brief: Brief, memory: ReasoningMemory) -> list[CertificateProblem]:
    """Return every place where a brief is not, byte for byte, what its graph says; empty for an honest brief."""
    problems: list[CertificateProblem] = []
    if brief.reasoning_ref != compute_reasoning_ref(memory):
        problems.append(CertificateProblem("reasoning_ref", None, "The brief is of another graph."))
    if brief.conclusion != memory.conclusion.strip():
        problems.append(CertificateProblem("conclusion", None, "The conclusion is not the graph's."))
    steps = {step.step_number: step for step in memory.steps}
    seen: set[int] = set()
    for fact in brief.facts:
        if fact.step in seen:
            problems.append(CertificateProblem("facts", fact.step, "The step is given twice."))
        seen.add(fact.step)
        if fact.step not in steps:
            problems.append(CertificateProblem("facts", fact.step, "The graph has no such step."))
        else:
            problems += _fact_problems(fact, steps[fact.step], memory)
    problems += _remark_problems(brief, memory)
    evidence = {text for step in memory.steps for text in step.evidence}
    if not evidence.issuperset(brief.top_evidence_refs):
        problems.append(CertificateProblem("top_evidence_refs", None, "A reference is not in the graph."))
    return problems + _prose_problems(brief)


def _fact_problems(fact: Fact, step: ReasoningStep, memory: ReasoningMemory) -> list[CertificateProblem]:
    method = step.validation_method.strip() if isinstance(step.validation_method, str) else ""
    same = {
        "text": fact.text == fact_text(step),
        "evidence": fact.evidence == step.evidence,
        "conclusion": fact.conclusion == own_conclusion(step),
        "assumed": fact.assumed == is_open_assumption(step),
        "check": fact.check in {"", method},
        "rests_on": fact.rests_on == memory.dependencies.get(fact.step, []),
    }
    return [
        CertificateProblem(f"facts.{name}", fact.step, f"The fact's {name} is not the step's.")
        for name, is_same in same.items()
        if not is_same
    ]


def _remark_problems(brief: Brief, memory: ReasoningMemory) -> list[CertificateProblem]:
    known: set[tuple[str, int | None, str]] = {("limitation", None, text.strip()) for text in memory.known_limitations}
    for step in memory.steps:
        known |= {("assumption_stated", step.step_number, text.strip()) for text in step.assumptions}
        known |= {("alternative", step.step_number, text.strip()) for text in step.alternatives_considered}
    return [
        CertificateProblem("remarks", remark.step, "The remark is not in the graph.")
        for remark in brief.remarks
        if (remark.sort, remark.step, remark.text) not in known
    ]


def _prose_problems(brief: Brief) -> list[CertificateProblem]:
    """Compare the derived sentences with the facts they are derived from."""
    sentences = lead_sentences(brief.facts, brief.layout)
    problems: list[CertificateProblem] = []
    if not brief.reasoning_brief.startswith(" ".join(sentences)):
        problems.append(CertificateProblem("reasoning_brief", None, "The sentences are not those of the facts."))
    if brief.embedding is not None and not is_embedding_of(brief.embedding, brief.reasoning_brief):
        problems.append(CertificateProblem("embedding", None, "The vector is not that of the sentences."))
    return problems
