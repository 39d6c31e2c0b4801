"""What each step of a piece of thinking rests on, as far as its words tell, and how each link was found.

- ``reference``: the text names the step ("from step 2", "by (1) and (3)", 由步骤2) by the mark or number it bears;
- ``name``: it uses a name that an earlier one gave a value (``z = x + y``), or a path, identifier or figure of one;
- ``connective``: it begins what follows from the step before it ("so", "therefore", 因此); a conclusion, from every
  inference that nothing rests on yet;
- ``adjacent``: an inference of which nothing else is known, and the weakest: the step before it.

What was observed or assumed stands on its own, unless it names a step or computes with a name. Every link leads to an
earlier step and is found from earlier ones alone: no circle comes about, and a transcript that grew keeps its links.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from consumers.sdk.thinking.steps import classify_step_type
from projections.briefs.anchors import anchors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Way: TypeAlias = Literal["reference", "name", "connective", "adjacent"]
Links: TypeAlias = dict[int, dict[int, Way]]

links_max: Final = 16
INFERRING: Final = frozenset({"inference", "hypothesis", "conclusion"})
_NUMBER: Final = r"[(#（]?\d{1,3}[)）]?"
_REFERENCE: Final = re.compile(
    r"(?:\b(?:steps?|points?|facts?|items?|premises?|observations?|assumptions?)|步骤|第)[ \t]*+"
    rf"({_NUMBER}(?:[ \t]*+(?:,|、|and|&|和|与|及)[ \t]*+{_NUMBER})*+)|[(（](\d{{1,2}})[)）]",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"(\d{1,3}|[一二三四五六七八九十①-⑳])[^\w\n]*(?:步\W*)?$")
_ASSIGNED: Final = re.compile(
    r"(?<![\w.])(?<![-+*/=<>^%(] )(?<![-+*/=<>^%(])([A-Za-z_]\w{0,60})[ \t]*+(?::=|=(?!=)|≈|为)", re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CONNECTIVE: Final = re.compile(
    r"\b(?:therefore|thus|hence|consequently|it follows|follows that|(?:which|this|that) means|as a result"
    r"|in conclusion|to conclude)\b|^\W*+(?:so|then)\b(?! far)"
    r"|因此|所以|因而|于是|可见|由此|从而|故|综上|总之|意味着",
    re.IGNORECASE,
)


def link_steps(texts: Mapping[int, str], labels: Mapping[int, int]) -> Links:
    """Return for each step, by number, the earlier steps that it rests on and how each was found.

    ``labels`` are the numbers that steps bear in the text itself; before any does, a step is named by its place.
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
    """Return the number that a list mark before a step bears, in figures of any script."""
    label = _LABEL.search(gap)
    return None if label is None else int(label[1] if label[1].isdecimal() else unicodedata.numeric(label[1]))


def _link(own: dict[int, Way], way: Way, steps: Iterable[int]) -> None:
    """Add links; one that was found in a stronger way stays as it is."""
    for step in steps:
        own.setdefault(step, way)


def _labels_in(text: str, *, bare: bool) -> list[int]:
    """Return the numbers of the steps that a text names; a ``bare`` (2) names one where steps bear numbers."""
    parts = [match[1] or (match[2] if bare else "") for match in _REFERENCE.finditer(text)]
    return [int(digits) for part in parts for digits in re.findall(r"\d+", part)]
