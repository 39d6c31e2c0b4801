"""Fitting what is told into a number of tokens, characters or bytes: what reports, briefs and tools share.

A text is shortened by one rule (``projections.reports.compressed.shorten``): what is left is a beginning that ends
between words, followed by ``…``; of a text that begins with a word too long, only the mark. Of a text of 40,000
characters no more is looked at than can be kept. Which parts are worth their tokens is decided by whoever spends them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from projections.briefs.tokens import count_tokens, greatest
from projections.reports.compressed import ELLIPSIS, shorten

_chars_a_token_max: Final = 8
"""No longer text is tried: prose has four to five characters a token, and what has more is shortened a little more."""


class Budget:
    """What is left to be spent; an offer is taken only where it can be paid."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, cost: int) -> bool:
        """Spend ``cost`` if there is as much, and return whether there was."""
        if cost > self.left:
            return False
        self.left -= cost
        return True


@lru_cache(maxsize=1024)
def cut_to_tokens(text: str, limit: int) -> str:
    """Return as many words of a text as a number of tokens allows."""
    high = limit * _chars_a_token_max
    if len(text) <= 2 * high and count_tokens(text) <= limit:
        return text
    return cut_to_chars(text, greatest(1, high, lambda chars: count_tokens(cut_to_chars(text, chars)) <= limit))


def cut_to_chars(text: str, limit: int) -> str:
    """Return as many words of a text as a number of characters allows; Chinese signs count as two."""
    whole = text.strip()
    if 2 * len(whole) <= limit:
        return whole
    kept = shorten(whole[: limit + 2], limit)
    if len(whole) <= limit + 2 or kept.endswith(ELLIPSIS):
        return kept
    return shorten(whole, limit)  # the beginning ended in white space, and seemed to be all
