"""Shortening a text, by the one rule that reports are shortened by (``projections.reports.compressed.shorten``).

What is left is a beginning of the text that ends between words, followed by ``…``; of a text that begins with a word
too long, only the mark. Of a text of 40,000 characters no more is looked at than can be kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from projections.briefs.tokens import count_tokens
from projections.reports.compressed import ELLIPSIS, shorten

_chars_a_token_max: Final = 8
"""No longer text is tried: prose has four to five characters a token, and what has more is shortened a little more."""


@lru_cache(maxsize=1024)
def cut_to_tokens(text: str, limit: int) -> str:
    """Return as many words of a text as a number of tokens allows."""
    low, high = 1, limit * _chars_a_token_max
    if len(text) <= 2 * high and count_tokens(text) <= limit:
        return text
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(cut_to_chars(text, middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    return cut_to_chars(text, low)


def cut_to_chars(text: str, limit: int) -> str:
    """Return as many words of a text as a number of characters allows; Chinese signs count as two."""
    whole = text.strip()
    if 2 * len(whole) <= limit:
        return whole
    kept = shorten(whole[: limit + 2], limit)
    if len(whole) <= limit + 2 or kept.endswith(ELLIPSIS):
        return kept
    return shorten(whole, limit)  # the beginning ended in white space, and seemed to be all
