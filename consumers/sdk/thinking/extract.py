"""Extracts a reasoning graph from a response, with the position of each step in the response.

Every step's ``content`` is, character for character, a span of its source (``Extraction.spans``); spans and the gaps
between them are the whole source. Facts for which the graph has no field are beside it:

- ``inferred`` says which fields of which step were guessed from the wording;
- ``conclusion_from`` says where the conclusion was found: in the last concluding step, else in the answer beside the
  thinking (all of a short answer, else its first part, without an announcement of what comes next at its end), else
  nowhere: then it is empty, and ``absent`` names it;
- ``ways`` says how each dependency was found, because thinking rarely states them:
  - ``reference``: the text names the step ("from step 2", "by (1) and (3)", 由步骤2) by its label or number;
  - ``name``: it uses a name that an earlier step defined (``z = x + y``), or an earlier path, identifier or figure;
  - ``connective``: it begins with a word like "so", "therefore" or 因此, and rests on the step before it; a conclusion
    rests on every inference on which no step rests yet;
  - ``adjacent``: the weakest: an inference without any other link rests on the step before it;
- ``notes`` names redacted blocks, other choices and tags that were not balanced.

Observations and assumptions rest on nothing, unless they name a step or compute with a name. Every link leads to an
earlier step and depends on earlier text only. So there is no cycle, and the links of a growing transcript stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from deedbook.consumers.sdk.thinking.response import Format, Note, Region, Response, Source, read_response
from deedbook.consumers.sdk.thinking.steps import (
    classify_step_type,
    infer_reasoning_type,
    item_after_head,
    split_steps,
    stated_step_type,
    trimmed,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.chinese import both_scripts
from deedbook.projections.briefs.anchors import anchors
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, steps_max

Way: TypeAlias = Literal["reference", "name", "connective", "adjacent"]
Links: TypeAlias = dict[int, dict[int, Way]]

links_max: Final = 16
INFERRING: Final = frozenset({"inference", "hypothesis", "conclusion"})
_NUMBER: Final = r"[(#（]?\d{1,3}[)）]?"
_REFERENCE: Final = re.compile(
    both_scripts(
        r"(?:\b(?:steps?|points?|facts?|items?|premises?|observations?|assumptions?)|步骤|第)[ \t]*+"
        rf"({_NUMBER}(?:[ \t]*+(?:,|、|and|&|和|与|及)[ \t]*+{_NUMBER})*+)|[(（](\d{{1,2}})[)）]"
    ),
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"(\d{1,3}|[一二三四五六七八九十①-⑳])[^\w\n]*(?:步\W*)?$")
_ASSIGNED: Final = re.compile(
    both_scripts(r"(?<![\w.])(?<![-+*/=<>^%(] )(?<![-+*/=<>^%(])([A-Za-z_]\w{0,60})[ \t]*+(?::=|=(?!=)|≈|为)"), re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CONNECTIVE: Final = re.compile(
    both_scripts(
        r"\b(?:therefore|thus|hence|consequently|it follows|follows that|(?:which|this|that) means|as a result"
        r"|in conclusion|to conclude)\b|^\W*+(?:so|then)\b(?! far)"
        r"|因此|所以|因而|于是|可见|由此|从而|故|综上|总之|意味着"
    ),
    re.IGNORECASE,
)

_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*(?=\S)|\n+")
_ANNOUNCED: Final = re.compile(
    both_scripts(
        r"\W*(?:(?:ok(?:ay)?|now|next|first|so|then|great|perfect|good)[,.!]?\s+)*"
        r"(?:let me|let's|let us)\b|\W*(?:让我|我来|接下来|我们来)"
        r"|\W*(?:(?:ok(?:ay)?|now|next|first|so|then)[,.!]?\s+)*(?:i'll|i will|i'm going to|i am going to|i need to)\s+"
        r"(?:now |first |also )?(?:check|look|read|run|see|try|search|verify|start|examine|investigate|explore|test)\b"
    ),
    re.IGNORECASE,
)


def link_steps(texts: Mapping[int, str], labels: Mapping[int, int]) -> Links:
    """Return for each step, by number, the earlier steps that it rests on and how each was found.

    ``labels`` are the numbers that steps have in the text; up to the first label, a number means the step's position.
    """
    labelled: dict[int, int] = {}
    values: dict[str, int] = {}
    spelled: dict[str, int] = {}
    unused: set[int] = set()
    links: Links = {}
    for number, text in texts.items():
        own = links[number] = dict[int, Way]()
        assigned, marks = set(_ASSIGNED.findall(text)), {mark for mark in anchors(text) if len(mark) > 1}
        named = (labelled.get(label, 0) if labelled else label for label in _labels_in(text, bare=bool(labelled)))
        _link(own, "reference", (step for step in named if 0 < step < number))
        type_ = classify_step_type(text)
        infers = type_ in INFERRING
        if infers or assigned:
            reused = {values[name] for name in set(_NAME.findall(text)) - assigned if name in values}
            reused |= {spelled[mark] for mark in marks if mark in spelled and infers}
            _link(own, "name", sorted(reused)[-links_max:])
        if infers:
            before = [number - 1] if number > 1 else []
            _link(own, "connective", sorted(unused)[-links_max:] if type_ == "conclusion" else [])
            is_told = bool(own) if type_ == "conclusion" else "reference" in own.values()
            _link(own, "connective", before if _CONNECTIVE.search(text) and not is_told else [])
            _link(own, "adjacent", [] if own else before)
        unused -= own.keys()
        unused |= {number} if type_ == "inference" else set()
        labelled |= {labels[number]: number} if number in labels else {}
        values |= dict.fromkeys(assigned, number)
        spelled |= dict.fromkeys(marks, number)
    return {number: dict(sorted(own.items())) for number, own in links.items() if own}


def label_in(gap: str) -> int | None:
    """Return the number in the list mark before a step, in digits of any script; None if there is none."""
    label = _LABEL.search(gap)
    return None if label is None else int(label[1] if label[1].isdecimal() else unicodedata.numeric(label[1]))


def _link(own: dict[int, Way], way: Way, steps: Iterable[int]) -> None:
    """Add links; an existing link, found in a stronger way, stays unchanged."""
    for step in steps:
        own.setdefault(step, way)


def _labels_in(text: str, *, bare: bool) -> list[int]:
    """Return the step numbers in a text; with ``bare``, "(2)" counts too, because the steps have numbers."""
    parts = [match[1] or (match[2] if bare else "") for match in _REFERENCE.finditer(text)]
    return [int(digits) for part in parts for digits in re.findall(r"\d+", part)]


ConclusionFrom = Literal["step", "answer", "absent"]

TASK_NOT_STATED: Final = "(the response does not state its task)"
conclusion_max_chars: Final = 1_000


class Span(msgspec.Struct, frozen=True):
    """A part of a source: the number of the source, and its characters from ``start`` to before ``end``."""

    source: int
    start: int
    end: int


class Extraction(msgspec.Struct, frozen=True):
    """A graph extracted from a response, with the facts about its extraction (see the module docstring)."""

    memory: ReasoningMemory
    format: Format
    sources: list[Source]
    spans: dict[int, Span]
    inferred: dict[int, list[str]]
    ways: Links
    conclusion_from: ConclusionFrom
    absent: list[str]
    notes: list[Note]


def extract_reasoning(response: Any, *, task: str = "", ai_id: str = "") -> Extraction:
    """Return the reasoning graph of a response in any form that ``consumers.sdk.thinking.response`` lists.

    ``response`` is bytes, text or decoded JSON. ``task`` and ``ai_id`` override the response's own.
    Raises Refused: as ``read_response``; ``TOO_LARGE`` for more than ``steps_max`` steps.
    """
    read = read_response(response)
    spans = dict(enumerate(_spans(read), start=1))
    if len(spans) > steps_max:
        raise Refused("TOO_LARGE", f"the thinking has {len(spans)} steps; a graph has at most {steps_max}")
    texts = {number: _words(read, span) for number, span in spans.items()}
    ways = link_steps(texts, _labels(read, spans))
    steps, inferred = _steps(texts, ways)
    conclusion_from, conclusion_span = _find_conclusion(read, steps, spans)
    task = task or read.task
    memory = ReasoningMemory(
        reasoning_id="",
        ai_id=ai_id or read.model,
        task=task or TASK_NOT_STATED,
        conclusion=_words(read, conclusion_span) if conclusion_span else "",
        steps=steps,
        dependencies={number: list(rests_on) for number, rests_on in ways.items()},
    )
    absent = [name for name, is_there in (("task", task), ("conclusion", memory.conclusion)) if not is_there]
    return Extraction(memory, read.format, read.sources, spans, inferred, ways, conclusion_from, absent, read.notes)


def extract_reasoning_from_minimax(response: Any) -> ReasoningMemory:
    """Return the same as ``extract_reasoning``, for ``{"thinking": "…"}`` or any other known form."""
    return extract_reasoning(response).memory


def parse_thinking_process(thinking: str) -> list[str]:
    """Return the texts of the steps in a thinking text; empty if there are none."""
    return [thinking[slice(*span)] for span in split_steps(thinking, (0, len(thinking)))]


def _spans(read: Response) -> Iterator[Span]:
    for position, source in enumerate(read.sources):
        for region in source.thinking:
            yield from (Span(position, *span) for span in split_steps(source.text, region))


def _words(read: Response, span: Span) -> str:
    return read.sources[span.source].text[span.start : span.end]


def _labels(read: Response, spans: dict[int, Span]) -> dict[int, int]:
    labels: dict[int, int | None] = {}
    for number, span in spans.items():
        before = spans.get(number - 1, span)
        start = before.end if number > 1 and before.source == span.source else 0
        gap = _words(read, Span(span.source, start, span.start))
        labels[number] = label_in(gap) or label_in(item_after_head(_words(read, span)))
    return {number: label for number, label in labels.items() if label is not None}


def _steps(texts: dict[int, str], ways: Links) -> tuple[list[ReasoningStep], dict[int, list[str]]]:
    steps: list[ReasoningStep] = []
    inferred: dict[int, list[str]] = {}
    for number, text in texts.items():
        is_stated, type_ = stated_step_type(text) is not None, classify_step_type(text)
        if not is_stated and type_ in ("observation", "inference"):
            # No link to earlier steps was found, or this is the first step.
            type_ = "inference" if number in ways or (type_ == "inference" and number > 1) else "observation"
        reasoning_type = infer_reasoning_type(text) if type_ in INFERRING else ""
        steps.append(ReasoningStep(step_number=number, type=type_, content=text, reasoning_type=reasoning_type))
        names = (("type", not is_stated), ("reasoning_type", reasoning_type), ("dependencies", number in ways))
        if guessed := [name for name, is_guessed in names if is_guessed]:
            inferred[number] = guessed
    return steps, inferred


def _find_conclusion(
    read: Response, steps: list[ReasoningStep], spans: dict[int, Span]
) -> tuple[ConclusionFrom, Span | None]:
    concluding = [step.step_number for step in steps if step.type == "conclusion"]
    if concluding:
        return "step", spans[concluding[-1]]
    for position in reversed(range(len(read.sources))):
        source = read.sources[position]
        for region in reversed(source.answer):
            if (span := _short(source.text, region)) and (span := _said(source.text, span)):
                return "answer", Span(position, *span)
    return "absent", None


def _said(text: str, region: Region) -> Region | None:
    """Return a region without the announcements at its end ("Let me check:"); None if nothing else is left."""
    start, end = region
    said = text[start:end]
    while said:
        *_, last = _SENTENCES.split(said)
        if not _ANNOUNCED.match(last):
            return region if said.endswith((":", "：")) else (start, start + len(said))
        said = said[: len(said) - len(last)].rstrip()
    return None


def _short(text: str, region: Region) -> Region | None:
    """Return a region if it is short enough for a conclusion, else its first part."""
    whole = trimmed(text, region)
    if whole is None or whole[1] - whole[0] <= conclusion_max_chars:
        return whole
    return split_steps(text, whole)[0]
