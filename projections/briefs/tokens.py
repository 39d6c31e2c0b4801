"""The number of tokens that a text costs the model that reads it.

It is counted with ``o200k`` if the optional package is installed. Otherwise it is the UTF-8 bytes divided by four,
rounded up, and marked as an estimate: every answer with a count says which it is. Limits that must hold for any reader
are counted by the strictest tokenizer, or else by a cautious estimate (``most_tokens``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

ESTIMATE_NAME: Final = "utf8-bytes/4"
CAUTIOUS_NAME: Final = "cautious-estimate"
_estimate_bytes_per_token: Final = 4


# Groups of characters that cost about the same. Several characters of "letter" often make one token. A character of
# "sign" is one or two tokens, of "wide" two to four, and of any other script one or two.
@cache
def _pieces() -> re.Pattern[str]:
    return re.compile(
        r" ?(?P<word>[A-Z]?[a-z]+|[A-Z]+)|(?P<one>[0-9]{1,3}|[^\S\n]*\n\s*|\s+|[\u2010-\u203a\u3000-\u3002\uff0c])"
        r"|(?P<marks>[!-/:-@\[-`{-~]+)|(?P<letter>[\u00df-\u00ff\u0400-\u04ff\u0600-\u06ff])"
        r"|(?P<sign>[\u0080-\u07ff\u0900-\u097f\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7a3])"
        r"|(?P<wide>[\U00010000-\U0010ffff])|(?P<other>.)",
        re.DOTALL,
    )


_TOKENS: Final = {"one": 1.0, "letter": 0.8, "sign": 1.5, "wide": 3.0, "other": 2.0}
_short_word_letters: Final = 6
_letters_per_token: Final = 4
_marks_per_token: Final = 2


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
    """Return the greater of the counts by ``cl100k`` and ``o200k``, or without them a cautious estimate of it."""
    return strictest().count(_encodable(text))


@cache
def strictest() -> Tokenizer:
    """Return the counter for readers with an unknown tokenizer."""
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError:
        return Tokenizer(CAUTIOUS_NAME, exact=False, count=cautious_tokens)
    counts = encodings.cl100k_base().count, encodings.o200k_base().count
    return Tokenizer("cl100k_base, o200k_base", exact=True, count=lambda text: max(count(text) for count in counts))


def cautious_tokens(text: str) -> int:
    """Return an estimate of the greater count by ``cl100k`` and ``o200k`` that is rarely below it.

    Measured: 1.1 to 1.5 times the count of prose, JSON and source in twelve scripts. It is below the count only for
    random letters.
    """
    total = 1.0
    for piece in _pieces().finditer(text):
        name = piece.lastgroup or "other"
        length = piece.end(name) - piece.start(name)
        if name == "word":
            total += 1 if length <= _short_word_letters else -(-length // _letters_per_token)
        elif name == "marks":
            total += -(-length // _marks_per_token)
        else:
            total += _TOKENS[name]
    return int(total)


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
