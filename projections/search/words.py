"""Splits texts and queries into words, so that any text can be found as it was written.

Text is normalised (Unicode NFKC, case folded) and cut into words of letters, digits and their marks. So ``JWT_SECRET``
and ``auth.py:42`` are several words each: found whole, as a phrase, and by part. Scripts without spaces (Chinese,
Japanese, Thai …) and Korean, whose words carry their particles, are cut into single characters. A phrase of two or more
of them finds text that a tokenizer for spaced scripts would miss. Accents are kept, because the fold must not guess the
language. In a number of several parts (``1.2.3``, a date) the single parts say nothing: a query searches it as a
phrase, and the index has it and its beginnings.

The index has words as they were written. The query decides about other forms of a word (``form_of``): an English ending
is removed, and the rest, if it has four letters or more, is searched as a prefix. So the forms that belong together are
not fixed in the index, and a shown match is the text that matched.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from deedbook.projections.briefs.embedding import STOP_WORDS
from deedbook.projections.stores.dialect import Expression

clusters_cached_max: Final = 8_192
stems_cached_max: Final = 65_536
beginning_min: Final = 4

_RANGES: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17d3\u17e0-\u17e9"  # Burmese, Khmer
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff\u3131-\u318e"  # Korean
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana
    "\u3105-\u312f\u31a0-\u31bf"  # bopomofo
    "\U00016fe0-\U0001b2ff\U00020000-\U0003fffd"  # Tangut, Nüshu, further kana and Han, also those still to come
)
# Characters that are normalised together with the letter before them: marks, further jamo of a syllable, and invisible
# characters.
_NO_MARKS: Final = "\u00a0-\u00bf\u2000-\u20cf\u2100-\u2bff\u2e00-\u2e7f\u3000-\u3029\u3030-\u303f\uff00-\uff65"
_FOLLOWING: Final = (
    rf"[\u00ad\u1160-\u11ff\u200c-\u200f\u202a-\u202e\u2060-\u206f\uff9e\uff9f]|(?![{_NO_MARKS}])[^\w\x00-\x7f]"
)
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_ASCII_CHUNK: Final = re.compile(r"\S+")
# English endings, the longest first; three letters or more must remain.
_ENDING: Final = re.compile(
    r"(?<=...)(?:ational|ations?|ingly|ings?|edly|ied|ies|iness|ed|ers?|es|ly|ments?|ness|ions?|y|s|e)$"
)
_NUMBER: Final = re.compile(r"(?<![a-z0-9.])(v?)(\d+(?:[.:/-]\d+)+)(?![a-z0-9])", re.IGNORECASE)
_DOUBLED: Final = re.compile(r"(?<=..)([bdfgkmnprtv])\1$")


class _Patterns(NamedTuple):
    """Patterns for text beyond ASCII; ``unsure`` is no letter, ``cluster`` a letter with its marks."""

    apart: re.Pattern[str]
    unsure: re.Pattern[str]
    word: re.Pattern[str]
    cluster: re.Pattern[str]
    chunk: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Return the patterns, compiled on first use: that takes half of Python's own start-up time."""
    return _Patterns(
        apart=re.compile(f"[{_RANGES}]"),
        unsure=re.compile(r"[^\w\x00-\x7f]"),  # marks are not in \w, although they belong to their letter
        word=re.compile(rf"[{_RANGES}]|[^\x00-/:-`{{-\x7f{_RANGES}]+"),
        cluster=re.compile(rf".(?:{_FOLLOWING})*", re.DOTALL),
        chunk=re.compile(rf"[{_RANGES}]|[^\s{_RANGES}]+"),
    )


class Form(NamedTuple):
    """A searched word: the common part of its forms, and the FTS5 expression that finds them."""

    key: str
    sql: Expression


class Word(NamedTuple):
    """A word as it is indexed, with its position in the text."""

    word: str
    start: int
    end: int


def words_of(text: str) -> list[str]:
    """Return the words of a text, normalised, in order."""
    pattern = _ASCII_WORD if text.isascii() else _patterns().word
    return pattern.findall(_spaced(text))


def words_with_positions(text: str) -> Iterator[Word]:
    """Yield the words of a text with their positions."""
    if text.isascii():
        for match in _ASCII_WORD.finditer(text.lower()):
            yield Word(match[0], match.start(), match.end())
        return
    patterns = _patterns()
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    for cluster in patterns.cluster.finditer(text):
        piece = _spaced_cluster(cluster[0])
        pieces.append(piece)
        spans += [cluster.span()] * len(piece)
    for match in patterns.word.finditer("".join(pieces)):
        yield Word(match[0], spans[match.start()][0], spans[match.end() - 1][1])


@lru_cache(stems_cached_max)
def stem_of(word: str) -> str:
    """Return the common part of the forms of an English word.

    >>> [stem_of(word) for word in ("expiry", "expires", "expiration", "running", "log", "登")]
    ['expir', 'expir', 'expir', 'run', 'log', '登']
    """
    if not word.isascii() or not word.isalpha():
        return word
    left = _ENDING.sub("", word, count=1)
    return word if left == word else _DOUBLED.sub(r"\1", left)


def form_of(word: str) -> Form:
    """Return how to search a word: itself, its stem, and words that begin with either, if it has four letters or more.

    A number of several parts, separated by spaces, is a phrase; a ``v`` may precede it.
    """
    if " " in word:
        return Form(word, Expression(f'("{word}" OR "v{word}")'))
    stem = stem_of(word)
    if len(word) < beginning_min or not word.isalpha() or is_apart(word):
        return Form(word, Expression(f'"{word}"'))
    # The word itself counts twice, so that it ranks before its other forms.
    forms = f'"{word}" OR "{stem}" *' if len(stem) >= beginning_min else f'"{word}" * OR "{stem}"'
    return Form(stem, Expression(f"({forms})"))


def forms_of(text: str) -> list[Form]:
    """Return the searched forms of a text, each once; function words (what, is, it) say nothing and are left out.

    Characters of scripts without spaces are searched in pairs: one alone is in too many words.
    """
    forms: dict[str, Form] = {}
    for run in _runs(text.split()):
        if len(run) > 1:
            forms |= {pair: Form(pair, Expression(f'"{pair}"')) for pair in map(" ".join, pairwise(run))}
        elif run[0] not in STOP_WORDS:
            form = form_of(run[0])
            forms.setdefault(form.key, form)
    return list(forms.values())


def features_of(text: str) -> Counter[str]:
    """Return the keys of all forms by which a text can be searched, and how often it has each."""
    numbers: list[str] = []
    chunks = _NUMBER.sub(lambda number: _beginnings(number, numbers), text).split()
    # ASCII chunks, usually nearly all, have no runs: reading them at once takes a tenth of the time.
    words = Counter(words_of(" ".join(filter(str.isascii, chunks))))
    keys = Counter(numbers)
    for word, count in words.items():
        keys[stem_of(word)] += count
    for run in _runs(chunk for chunk in chunks if not chunk.isascii()):
        keys.update(map(stem_of, run))
        keys.update(map(" ".join, pairwise(run)))
    return keys


def _beginnings(number: re.Match[str], beginnings: list[str]) -> str:
    """Add the beginnings of a number of two parts or more, and ``v1`` for ``v1.2``; return the text in its place."""
    version, digits = number[1].lower(), words_of(number[2])
    beginnings += [version + digits[0]] if version else []
    beginnings += [" ".join(digits[:count]) for count in range(2, len(digits) + 1)]
    return " "


@lru_cache(clusters_cached_max)
def is_apart(word: str) -> bool:
    """Return whether a word is a character of a script without spaces."""
    return not word.isascii() and _patterns().apart.match(word) is not None


def _runs(chunks: Iterable[str]) -> Iterator[list[str]]:
    """Yield words and numbers one by one, and adjacent characters of scripts without spaces together."""
    for chunk in chunks:
        numbers = [[" ".join(words_of(number[2]))] for number in _NUMBER.finditer(chunk)]
        for is_run, words in groupby(words_of(_NUMBER.sub(" ", chunk) if numbers else chunk), is_apart):
            run = list(words)
            yield from [run] if is_run else ([word] for word in run)
        yield from numbers


def chunks_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans between which a text may be cut: words separated by spaces, and characters without spaces."""
    pattern = _ASCII_CHUNK if text.isascii() else _patterns().chunk
    for match in pattern.finditer(text):
        yield match.span()


def _spaced(text: str) -> str:
    """Return the text normalised, with spaces for characters beyond ASCII that are not part of a word."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # Removing something between two marks can change their order again.
    return unicodedata.normalize("NFKC", _patterns().unsure.sub(_belonging, folded))


_spaced_cluster: Final = lru_cache(clusters_cached_max)(_spaced)


def _belonging(match: re.Match[str]) -> str:
    """Return the replacement of a character that is no letter: itself, nothing, or a space that ends the word."""
    sign = match[0]
    if _patterns().apart.match(sign):
        return sign  # even if this version of Unicode does not know it: these planes are reserved for such characters
    if "\ufe00" <= sign <= "\ufe0f" or "\U000e0100" <= sign <= "\U000e01ef":
        return ""  # a variation selector
    category = unicodedata.category(sign)
    if category == "Cf" and sign != "\u200b":
        return ""  # a soft hyphen, a joiner, a mark of direction
    return sign if category.startswith("M") else " "
