"""Which parts of a text stand in ``<think>…</think>``: thinking, and which do not: the answer.

Models close, open and nest these tags carelessly, so every text has a reading:

- nested tags are one thinking; their inner tags belong to neither part;
- without a closing tag the rest is thinking; where tags were opened more often than closed, the last one closes all;
- a first tag that closes ends thinking that began with the text (templates that put the opening tag into the prompt).

The last two are reported, because they are readings and not what the text says.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TAG: Final = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)

Region = tuple[int, int]


class Tagged(NamedTuple):
    """The regions of a text in order, without empty ones, and whether its tags were not balanced."""

    thinking: tuple[Region, ...]
    answer: tuple[Region, ...]
    is_unclosed: bool
    is_unopened: bool


def has_tags(text: str) -> bool:
    """Return whether there is any tag in a text."""
    return _TAG.search(text) is not None


def read_tags(text: str) -> Tagged:
    """Return what of a text is thinking and what is answer; a text without tags is all answer."""
    thinking: list[Region] = []
    answer: list[Region] = []
    depth = position = 0
    is_first, is_opened_last, is_unopened = True, False, False
    for tag in _TAG.finditer(text):
        closes = bool(tag[1])
        is_thinking = depth > 0 or (closes and is_first)
        (thinking if is_thinking else answer).append((position, tag.start()))
        is_unopened = is_unopened or (closes and is_first)
        depth = max(0, depth - 1) if closes else depth + 1
        position, is_first, is_opened_last = tag.end(), False, not closes
    (thinking if is_opened_last else answer).append((position, len(text)))
    return Tagged(_filled(thinking), _filled(answer), depth > 0, is_unopened)


def _filled(regions: list[Region]) -> tuple[Region, ...]:
    return tuple(region for region in regions if region[0] < region[1])
