"""Fits texts into a number of tokens, for reports, briefs and tools.

One rule shortens a text (``projections.reports.compressed.shorten``). The caller decides which parts get the tokens.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from deedbook.projections.briefs.tokens import count_tokens, greatest
from deedbook.projections.reports.compressed import shorten

_chars_a_token_max: Final = 8
"""The most characters to try for each token of a limit. Prose has four to five, so the bound rarely matters."""


class Budget:
    """The rest of a budget: ``left`` is the amount that can still be spent."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, cost: int) -> bool:
        """Spend ``cost`` if the rest is enough, and return whether it was."""
        if cost > self.left:
            return False
        self.left -= cost
        return True


@lru_cache(maxsize=1024)
def cut_to_tokens(text: str, limit: int) -> str:
    """Return a text, shortened at a word to at most ``limit`` tokens."""
    high = limit * _chars_a_token_max
    if len(text) <= 2 * high and count_tokens(text) <= limit:
        return text
    return shorten(text, greatest(1, high, lambda chars: count_tokens(shorten(text, chars)) <= limit))
