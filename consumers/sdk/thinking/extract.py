"""From a response to a reasoning graph, and back to the response's own words.

Every step's ``content`` is, character for character, the span of its source that ``Extraction.spans`` names; spans and
the gaps between them give each source back whole. What the graph's shape has no field for stands beside it:

- ``inferred`` says which fields of which step were guessed from the wording;
- ``conclusion_from`` says where the conclusion was found: the last concluding step, else the answer beside the
  thinking (whole when it is short, else its first part), else nowhere: then it is empty and named in ``absent``;
- ``ways`` says how each dependency was found (``links``), because thinking seldom states them;
- ``notes`` names redacted blocks, other choices and tags that were not balanced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from consumers.sdk.thinking.links import INFERRING, Links, label_in, link_steps
from consumers.sdk.thinking.response import Format, Note, Region, Response, Source, read_response
from consumers.sdk.thinking.steps import (
    classify_step_type,
    infer_reasoning_type,
    split_steps,
    stated_step_type,
    trimmed,
)
from ledger.errors import Refused
from projections.reasoning.memory import ReasoningMemory, ReasoningStep, steps_max

ConclusionFrom = Literal["step", "answer", "absent"]

TASK_NOT_STATED: Final = "(the response does not state its task)"
conclusion_max_chars: Final = 1_000


class Span(msgspec.Struct, frozen=True):
    """Where a text stands: the number of its source, and the characters from ``start`` to before ``end``."""

    source: int
    start: int
    end: int


class Extraction(msgspec.Struct, frozen=True):
    """A graph extracted from a response, with all that says how it came about."""

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

    ``response`` is bytes, text or decoded JSON. ``task`` and ``ai_id`` win over what the response says of itself.

    Raises:
        Refused: as ``read_response``; ``TOO_LARGE`` for more than ``steps_max`` steps.
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
    """Return the graph that ``extract_reasoning`` finds in ``{"thinking": "…"}``, or in any other known form."""
    return extract_reasoning(response).memory


def parse_thinking_process(thinking: str) -> list[str]:
    """Return the texts of the steps that thinking consists of; empty when there are none."""
    return [thinking[slice(*span)] for span in split_steps(thinking, (0, len(thinking)))]


def _spans(read: Response) -> Iterator[Span]:
    for position, source in enumerate(read.sources):
        for region in source.thinking:
            yield from (Span(position, *span) for span in split_steps(source.text, region))


def _words(read: Response, span: Span) -> str:
    return read.sources[span.source].text[span.start : span.end]


def _labels(read: Response, spans: dict[int, Span]) -> dict[int, int]:
    """Return the numbers that list marks give to steps."""
    labels: dict[int, int | None] = {}
    for number, span in spans.items():
        before = spans.get(number - 1, span)
        start = before.end if number > 1 and before.source == span.source else 0
        labels[number] = label_in(_words(read, Span(span.source, start, span.start)))
    return {number: label for number, label in labels.items() if label is not None}


def _steps(texts: dict[int, str], ways: Links) -> tuple[list[ReasoningStep], dict[int, list[str]]]:
    steps: list[ReasoningStep] = []
    inferred: dict[int, list[str]] = {}
    for number, text in texts.items():
        is_stated, type_ = stated_step_type(text) is not None, classify_step_type(text)
        if not is_stated and type_ in ("observation", "inference"):
            # What rests on earlier steps was not seen, and what stands first follows from none.
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
            if span := _short(source.text, region):
                return "answer", Span(position, *span)
    return "absent", None


def _short(text: str, region: Region) -> Region | None:
    """Return a region if it is short enough for a conclusion, else its first part."""
    whole = trimmed(text, region)
    if whole is None or whole[1] - whole[0] <= conclusion_max_chars:
        return whole
    return split_steps(text, whole)[0]
