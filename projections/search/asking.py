"""What a question asks for: words that must all be found, phrases in quotation marks, beginnings that end in ``*``.

The text of a question is never syntax of the index: it is cut into words as all text is, and the expression is put
together here from words alone, which hold letters, digits and marks. A word that is several in the index
(``JWT_SECRET``, 登录) is looked for as a phrase. A dozen or more hex digits are the beginning of a reference, as
everywhere in Baton (SEEDS, 001), and need no ``*``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.errors import Refused
from projections.query import prefix_digits_min
from projections.search.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# The sorts of streams on which events carry human text.
SORTS: Final = ("handoff", "reasoning", "record", "review", "session", "snapshot", "tot")
words_asked_max: Final = 512  # a phrase of n words costs the index n looks at each of its places

_ASKED: Final = re.compile(r'["“”]([^"“”]*)["“”](\*?)|([^\s"“”]+)')
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{prefix_digits_min},63}}")


class Term(NamedTuple):
    """Words to be found side by side; ``is_beginning``: the last of them may go on."""

    words: tuple[str, ...]
    is_beginning: bool


def terms_of(text: str) -> list[Term]:
    """Return what a text asks for, each once; a part of it that holds no word asks for nothing.

    Raises:
        Refused: ``INVALID_FIELD`` when nothing is left to be looked for, ``TOO_LARGE`` beyond 512 different words.
    """
    found: dict[Term, None] = {}
    for part in _ASKED.finditer(text):
        phrase, star, word = part.groups()
        words = tuple(words_of(word if phrase is None else phrase))
        if words:
            is_beginning = bool(star) if phrase is not None else word.endswith("*")
            found[Term(words, is_beginning or _DIGITS.fullmatch(words[-1]) is not None)] = None
    if not found:
        raise Refused("INVALID_FIELD", "there is no word to look for: give letters or digits", path="$.text")
    asked = sum(len(term.words) for term in found)
    if asked > words_asked_max:
        message = f"{asked} words are asked for: at most {words_asked_max} can be"
        raise Refused("TOO_LARGE", message, path="$.text", limit=words_asked_max)
    return list(found)


def expression_of(terms: Sequence[Term]) -> str:
    """Return the FTS5 expression: all terms, each a phrase (a word holds no quotation mark)."""
    return " AND ".join(f'"{" ".join(term.words)}"{" *" if term.is_beginning else ""}' for term in terms)
