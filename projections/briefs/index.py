"""A graph prepared for measuring briefs: every text is tokenised once, and the work is linear in the graph's size."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import msgspec

from deedbook.ledger.events.brief import FactMark
from deedbook.projections.briefs.anchors import anchors, evidence_location
from deedbook.projections.briefs.critical import (
    Unit,
    critical_edges,
    critical_numbers,
    critical_units,
    fact_text,
    marks_of,
)
from deedbook.projections.briefs.text import clauses, content_of, words
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.reasoning.outcomes import outcome_text


class Source(msgspec.Struct, frozen=True):
    """One clause of the graph: its text and its content words."""

    text: str
    content: list[str]


class KeyFact(msgspec.Struct, frozen=True):
    """A critical unit, tokenised. A text that contains the run of words ``spelled`` has the unit verbatim."""

    unit: Unit
    spelled: str
    content: list[str]


class GraphIndex(msgspec.Struct, frozen=True):
    """The data of one graph that the metric needs."""

    memory: ReasoningMemory
    key_facts: list[KeyFact]
    idf: dict[str, float]
    unseen_idf: float
    sources: list[Source]
    postings: dict[str, list[int]]
    verbatim: set[str]
    anchors: frozenset[str]
    critical_anchors: frozenset[str]
    edges: list[tuple[int, int]]
    step_spelled: dict[int, str]
    marks: dict[int, FactMark]

    def weight_of(self, word: str) -> float:
        """Return the inverse document frequency of a content word. A word that is not in the graph weighs most."""
        return self.idf.get(word, self.unseen_idf)


def spelled(tokens: list[str]) -> str:
    """Return words as one string to search, which matches only at word boundaries."""
    return f" {' '.join(tokens)} "


def index_graph(memory: ReasoningMemory) -> GraphIndex:
    """Return the index of a graph."""
    critical = critical_numbers(memory)
    units = [(unit, words(unit.text)) for unit in critical_units(memory, critical)]
    key_facts = [KeyFact(unit, spelled(tokens), content_of(tokens)) for unit, tokens in units]
    steps = [step for step in memory.steps if step.step_number in critical]
    # For word frequencies a step counts as one document, and so does a limitation.
    documents = [*(step.content for step in memory.steps), *memory.known_limitations]
    frequency = Counter(word for text in documents for word in set(content_of(words(text))))
    total = max(len(documents), 1)
    evidence = [evidence_location(reference) for step in steps for reference in step.evidence]
    critical_texts = [*(fact.unit.text for fact in key_facts), *evidence]
    texts = _all_texts(memory)
    sources, postings, verbatim = _sources(texts)
    return GraphIndex(
        memory=memory,
        key_facts=key_facts,
        idf={word: _rarity(count, total) for word, count in frequency.items()},
        unseen_idf=_rarity(1, total),
        sources=sources,
        postings=postings,
        verbatim=verbatim,
        anchors=frozenset().union(*map(anchors, texts)),
        critical_anchors=frozenset().union(*map(anchors, critical_texts)),
        edges=critical_edges(memory, critical),
        step_spelled={step.step_number: spelled(words(fact_text(step))) for step in steps},
        marks=marks_of(memory),
    )


def _rarity(count: int, total: int) -> float:
    """Return the weight of a word: 2 in one document of many, towards 1 for a word of all documents.

    It is bounded, because with a plain logarithm the few rarest words of a fact outweighed all others: a text of only
    these words counted as half of the reasoning.
    """
    return 1 + math.log(1 + total / count) / math.log(1 + total)


def _all_texts(memory: ReasoningMemory) -> list[str]:
    texts = [memory.task, memory.conclusion, memory.reasoning_strategy, *memory.known_limitations]
    for step in memory.steps:
        texts += [step.content, *step.premises, *step.alternatives_considered, *step.assumptions]
        texts += [text for text in (step.conclusion, step.validation_method) if isinstance(text, str)]
        texts += [outcome_text(step), *(settlement.how for settlement in step.settlements())]
        for evidence in step.evidence:
            texts += [evidence, evidence_location(evidence)]
    return [text for text in dict.fromkeys(texts) if text.strip()]


def _sources(texts: list[str]) -> tuple[list[Source], dict[str, list[int]], set[str]]:
    """Return the clauses of the texts, the clauses that contain a word, and every verbatim run of words."""
    sources: list[Source] = []
    postings: dict[str, list[int]] = defaultdict(list)
    verbatim: set[str] = set()
    for text in texts:
        parts = clauses(text)
        if len(parts) > 1:
            verbatim.add(spelled(words(text)))
        for clause in parts:
            tokens = words(clause)
            source = Source(clause, content_of(tokens))
            for word in dict.fromkeys(source.content):
                postings[word].append(len(sources))
            sources.append(source)
            verbatim.add(spelled(tokens))
    return sources, dict(postings), verbatim
