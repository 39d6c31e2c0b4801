"""How many tokens a text costs the model that reads it.

``o200k`` where the optional package is installed, else UTF-8 bytes divided by four, rounded up, and marked as an
estimate: every answer that carries a count says which it was. What must never cost more than is said, whoever reads it,
is counted by the strictest of them (``most_tokens``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

ESTIMATE_NAME: Final = "utf8-bytes/4"
_estimate_bytes_per_token: Final = 4


_MERGED: Final = re.compile(
    " ?[a-z](?:(?!(?<=b)q|(?<=f)[jz]|(?<=g)[jkq]|(?<=h)j|(?<=j)[gvwxyz]|(?<=k)[qxz]|(?<=[lnou])q|(?<=m)z"
    "|(?<=q)[fgjkovyz]|(?<=r)j|(?<=t)[jq]|(?<=v)[qz]|(?<=w)[qvz]|(?<=x)[ghjkquvw]|(?<=y)[fjqv]|(?<=z)[gjqrv])[a-z])*"
)


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
    """Return the exact tokenizer if its package can be imported, which is slow, else the estimate."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer(ESTIMATE_NAME, exact=False, count=estimate_tokens)
    return Tokenizer("o200k_base", exact=True, count=encodings.o200k_base().count)


def most_tokens(text: str) -> int:
    """Return the greater of what ``cl100k`` and ``o200k`` count, or without them a bound below neither."""
    return strictest().count(_encodable(text))


@cache
def strictest() -> Tokenizer:
    """Return what counts for readers of whom nobody knows which tokenizer they have."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer("bound", exact=False, count=bound_tokens)
    counts = encodings.cl100k_base().count, encodings.o200k_base().count
    return Tokenizer("cl100k_base, o200k_base", exact=True, count=lambda text: max(one(text) for one in counts))


def bound_tokens(text: str) -> int:
    """Return a number of tokens that neither ``cl100k`` nor ``o200k`` exceeds.

    A token has at least one byte. In both, a space before a letter and two small letters are one token, but for the
    pairs that ``_MERGED`` leaves out; and no two tokens side by side stay apart that are one together. So of small
    letters no single one stands beside another: at least every other token has two.
    """
    merged = _MERGED.findall(text)
    return len(_MERGED.sub("", text).encode()) + sum(-(-2 * len(letters) // 3) for letters in merged)


def estimate_tokens(text: str) -> int:
    """Return a quarter of the text's UTF-8 bytes, rounded up."""
    return -(-len(_encodable(text).encode()) // _estimate_bytes_per_token)


def greatest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number from ``low`` to ``high`` that fits; every smaller one does too, ``low`` unasked."""
    if high <= low or fits(high):  # What fits whole, as most does, is asked about once.
        return max(low, high)
    return low + bisect_left(range(low + 1, high), True, key=lambda number: not fits(number))  # noqa: FBT003 - a key


def _encodable(text: str) -> str:
    # One half of a surrogate pair has no UTF-8 form, and the tokenizer raises on it.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
