"""Fitting what is told into a number of tokens, characters or bytes: what reports, briefs and tools share.

A text is shortened by one rule (``projections.reports.compressed.shorten``). Which parts are worth their tokens is
decided by whoever spends them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from deedbook.projections.briefs.tokens import count_tokens, greatest
from deedbook.projections.reports.compressed import shorten

_chars_a_token_max: Final = 8
"""No longer text is tried: prose has four to five characters a token, and what has more is shortened a little more."""


class Budget:
    """The rest of a budget. An offer is taken only if the rest can pay for it."""

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
    return shorten(text, greatest(1, high, lambda chars: count_tokens(shorten(text, chars)) <= limit))
