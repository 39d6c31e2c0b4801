"""How many tokens a text costs the model that reads it.

``o200k`` where the optional package is installed (loaded at the first count: it is slow to import), else UTF-8 bytes
divided by four, rounded up, and marked as an estimate: every answer that carries a count says which it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

ESTIMATE_NAME: Final = "utf8-bytes/4"
_estimate_bytes_per_token: Final = 4


class Tokenizer(NamedTuple):
    """What counts tokens here: its name, and whether its counts are exact or an estimate."""

    name: str
    exact: bool
    count: Callable[[str], int]


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text; half surrogate pairs are counted as the replacement character."""
    return tokenizer().count(_encodable(text))


@cache
def tokenizer() -> Tokenizer:
    """Return the exact tokenizer if its package can be imported, else the estimate."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer(ESTIMATE_NAME, exact=False, count=estimate_tokens)
    return Tokenizer("o200k_base", exact=True, count=encodings.o200k_base().count)


def estimate_tokens(text: str) -> int:
    """Return a quarter of the text's UTF-8 bytes, rounded up."""
    return -(-len(_encodable(text).encode()) // _estimate_bytes_per_token)


def greatest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number from ``low`` to ``high`` that fits; every smaller one does too, ``low`` unasked."""
    middle = high  # What fits whole, as most does, is asked about once.
    while low < high:
        if fits(middle):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def _encodable(text: str) -> str:
    # One half of a surrogate pair has no UTF-8 form, and the tokenizer raises on it.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
