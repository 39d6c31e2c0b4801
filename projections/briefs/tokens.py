"""The number of tokens that a text costs the model that reads it.

It is counted with ``o200k`` if the optional package is installed. Otherwise it is the UTF-8 bytes divided by four,
rounded up, and marked as an estimate: every answer with a count says which it is. Limits that must hold for any reader
are counted by the strictest tokenizer (``most_tokens``).
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
    """A token counter: its name, and whether its counts are exact or an estimate."""

    name: str
    exact: bool
    count: Callable[[str], int]


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text; half surrogate pairs are counted as the replacement character."""
    return tokenizer().count(_encodable(text))


@cache
def tokenizer() -> Tokenizer:
    """Return the exact tokenizer if its package can be imported (slow), else the estimate."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer(ESTIMATE_NAME, exact=False, count=estimate_tokens)
    return Tokenizer("o200k_base", exact=True, count=encodings.o200k_base().count)


def most_tokens(text: str) -> int:
    """Return the greater of the counts by ``cl100k`` and ``o200k``, or without them an upper bound of both."""
    return strictest().count(_encodable(text))


@cache
def strictest() -> Tokenizer:
    """Return the counter for readers with an unknown tokenizer."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer("bound", exact=False, count=bound_tokens)
    counts = encodings.cl100k_base().count, encodings.o200k_base().count
    return Tokenizer("cl100k_base, o200k_base", exact=True, count=lambda text: max(count(text) for count in counts))


def bound_tokens(text: str) -> int:
    """Return an upper bound of the tokens by ``cl100k`` and by ``o200k``.

    A token has at least one byte. In both tokenizers, a space before a letter, and two small letters, are one token,
    except for the pairs that ``_MERGED`` leaves out; and adjacent tokens that are one together never stay apart. So no
    two single small letters are adjacent: at least every other token has two.
    """
    merged = _MERGED.findall(text)
    return len(_MERGED.sub("", text).encode()) + sum(-(-2 * len(letters) // 3) for letters in merged)


def estimate_tokens(text: str) -> int:
    """Return a quarter of the text's UTF-8 bytes, rounded up."""
    return -(-len(_encodable(text).encode()) // _estimate_bytes_per_token)


def greatest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number from ``low`` to ``high`` that fits; if one fits, every smaller one does."""
    if high <= low or fits(high):  # Most texts fit whole: then one call is enough.
        return max(low, high)
    return low + bisect_left(range(low + 1, high), True, key=lambda number: not fits(number))  # noqa: FBT003 - a key


def _encodable(text: str) -> str:
    # One half of a surrogate pair has no UTF-8 form, and the tokenizer raises on it.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
