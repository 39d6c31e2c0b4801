"""Asks a language model for prose about a graph, beside the brief, and checks the prose before anybody reads it.

Prose never replaces facts, and gates and budgets ignore it. Each sentence is labelled with its steps, and the fidelity
is marked as a lexical lower bound (an honest paraphrase scores .3 to .8). It is accepted whole or not at all: after one
wrong sentence the reader cannot trust the others. Prose is rejected if

- it does not have 3 to 6 sentences, names a step that the graph does not have, or reads as a heading;
- it has a number, path, name or address that is neither in the steps of its sentence nor in the graph's own task,
  conclusion or limitations: so a figure cannot move from one step to another;
- its words are about other things than the steps of its sentence;
- a veto of the metric applies, which also detects a model that a prompt injection misled. A sentence that repeats the
  words of a hostile step passes, labelled with that step. The step's own fact passes, too.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.events.brief import Fidelity, Prose, Sentence
from deedbook.projections.briefs.anchors import anchors, evidence_location
from deedbook.projections.briefs.fidelity import measure_indexed
from deedbook.projections.briefs.index import GraphIndex, index_graph
from deedbook.projections.briefs.sentences import lead_sentences_max, lead_sentences_min, looks_like_heading
from deedbook.projections.briefs.text import content_words, count_sentences
from deedbook.projections.briefs.vetoes import find_vetoes
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep

sentence_max_chars: Final = 600
problems_shown_max: Final = 5
FIDELITY_KIND: Final = "lexical lower bound"

_PLACE: Final = re.compile(r"[\w./~@\\-]*(?:://|@|\w\.\w)[\w./~@:?&=%#+\\-]*", re.ASCII)
_DOTTED: Final = re.compile(r"\w\.\w")
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_own_share_min: Final = 0.35


def holds(prose: Prose, memory: ReasoningMemory) -> bool:
    """Return whether published prose passes the checks before publication, and claims the right fidelity."""
    index = index_graph(memory)
    return not prose_problems(prose.sentences, index) and prose.fidelity == measure_prose(prose.sentences, index)


def measure_prose(sentences: list[Sentence], index: GraphIndex) -> Fidelity:
    """Return the fidelity of prose, by the metric that measures everything else."""
    return measure_indexed(index, "\n".join(sentence.text for sentence in sentences))


def prose_problems(sentences: list[Sentence], index: GraphIndex) -> list[str]:
    """Return every reason to reject prose; empty if it may be shown."""
    problems: list[str] = []
    if not lead_sentences_min <= len(sentences) <= lead_sentences_max:
        problems.append(f"it has {len(sentences)} sentences, not {lead_sentences_min} to {lead_sentences_max}")
    steps = {step.step_number: step for step in index.memory.steps}
    for position, sentence in enumerate(sentences, start=1):
        own = _form_problems(sentence.text) + _label_problems(sentence, steps, index)
        problems += [f"sentence {position} {problem}" for problem in own]
    return problems


def _form_problems(text: str) -> list[str]:
    problems: list[str] = []
    if text != sanitize_line(text):
        problems.append("has line breaks, control or direction characters")
    if count_sentences(text) != 1:
        problems.append(f"is {count_sentences(text)} sentences")
    if len(text) >= sentence_max_chars:  # a text of exactly this length may have been cut by a reader
        problems.append(f"has {sentence_max_chars} characters or more")
    if looks_like_heading(text):
        problems.append("reads as a heading")
    return problems


def _label_problems(sentence: Sentence, steps: dict[int, ReasoningStep], index: GraphIndex) -> list[str]:
    unknown = [number for number in sentence.steps if number not in steps]
    if unknown:
        return [f"names step {unknown[0]}, which the graph does not have"]
    text = unicodedata.normalize("NFKC", sentence.text)
    allowed = [index.memory.task, index.memory.conclusion, *index.memory.known_limitations]
    allowed += [word for number in sentence.steps for word in _step_words(steps[number])]
    source = unicodedata.normalize("NFKC", "\n".join(allowed))
    foreign = sorted(anchors(text) - anchors(source)) + _foreign_places(text, source)
    if foreign:
        return [f"has {', '.join(dict.fromkeys(foreign))}, which its steps do not have"]
    if _own_share(text, source, index) < _own_share_min:
        return ["is about other things than its steps"]
    return [f"has a veto of the metric: {veto.rule} ({veto.detail})" for veto in find_vetoes(text, index)]


def _own_share(text: str, source: str, index: GraphIndex) -> float:
    """Return the share of a sentence's content words, by weight, that its steps contain."""
    own, source_words = set(content_words(text)), set(content_words(source))
    total = sum(index.weight_of(word) for word in own)
    return sum(index.weight_of(word) for word in own & source_words) / total if total else 0.0


def _foreign_places(text: str, source: str) -> list[str]:
    """Return hosts, addresses and dotted names that the source does not contain exactly."""
    places = [match[0].rstrip(".!?:") for match in _PLACE.finditer(text)]
    places += [dotted for dotted in _DOTTED.findall(text) if not dotted.isascii()]
    return [place for place in places if place not in source and not _INITIALS.fullmatch(place)]


def _step_words(step: ReasoningStep) -> list[str]:
    optional = [text for text in (step.conclusion, step.validation_method) if isinstance(text, str)]
    listed = [*step.premises, *step.alternatives_considered, *step.assumptions, *step.evidence]
    return [step.content, *optional, *listed, *(evidence_location(reference) for reference in step.evidence)]
