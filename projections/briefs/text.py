"""The words of a text as the fidelity metric compares them: changing a rule here changes published values.

- *Words* are all tokens in order, lower case: two texts are verbatim if their words are equal.
- *Content words* have meaning: light stems without stop words, bigrams of unspaced scripts and of Korean.
- *Clauses* end at sentence marks, semicolons, square brackets and newlines, so that texts that a renderer puts side by
  side are never read as one statement.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

NOT: Final = "¬"
"""The content word that replaces every negator."""

_CJK: Final = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
CJK_MARKS: Final = frozenset("、。，．；：？！）］｝」』】》〉…")
_CLAUSE_END: Final = re.compile(r"[.!?](?=\s|$|[\"')\]])|[。！？；;\[\]\n\r]|→|\s[-–—]\s")
_APOSTROPHE: Final = re.compile("['’]")
_WHITESPACE: Final = re.compile(r"\s+")

NEGATORS: Final = frozenset({"not", "no", "never", "none", "nor", "neither", "without", "cannot", "nothing", "nobody"})
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those is are was were be been being am do does did has have had having of in on at to"
        " for from by with as it its they them their he she his her we our you your i my and or so then than there here"
        " which who whom whose what when where will would can could shall should may might must also just very into"
        " over such thus hence because since if while therefore",
    )
)
_SUFFIXES: Final = ("ations", "ation", "ingly", "ions", "ion", "ings", "ing", "edly", "ed", "ies", "es", "s", "ly")
_stem_min_chars: Final = 3
_BEFORE_NT: Final = {"ca": "can", "wo": "will", "sha": "shall"}


# Patterns with thousands of characters take milliseconds to compile, so verbs that do not need them must not compile
# them.
@cache
def _token() -> re.Pattern[str]:
    return re.compile(rf"[{_CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)?")


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(r"[\u3041-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def words(text: str) -> list[str]:
    """Return all tokens of a text in order. In a text of signs only, each sign is a token."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    tokens: list[str] = []
    for token in _token().findall(text.lower()):
        if _is_cjk(token):
            tokens += map("".join, pairwise(token)) if len(token) > 1 else [token]
        elif token.endswith(("n't", "n’t")):
            tokens += [_BEFORE_NT.get(token[:-3], token[:-3]), "not"]
        else:
            tokens.append(token if token.isalnum() else _APOSTROPHE.split(token, maxsplit=1)[0])
    return tokens or [sign for sign in text if not sign.isspace()]


def content_of(tokens: list[str]) -> list[str]:
    """Return the content words among tokens; if there are none, all of them."""
    return [stem(token) for token in tokens if token not in _STOP_WORDS] or tokens


def content_words(text: str) -> list[str]:
    """Return the content words of a text in order."""
    return content_of(words(text))


def clauses(text: str) -> list[str]:
    """Return the clauses of a text, each a statement of its own, trimmed, without empty ones."""
    return [part.strip() for part in _CLAUSE_END.split(text) if part and part.strip()]


def count_sentences(text: str) -> int:
    """Return how many sentences a text has; a text without any mark is one."""
    ends = re.findall(r"[.!?]+(?=\s|$)|[。！？]+", text.strip())
    trailing = bool(re.search(r"[.!?。！？]\s*$", text))
    return len(ends) + (0 if trailing or not text.strip() else 1)


def one_line(text: str) -> str:
    """Return a text with every run of white space and control characters as one space, so it cannot forge a heading."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    printable = "".join(" " if unicodedata.category(sign) in {"Cc", "Cs"} else sign for sign in text)
    return _WHITESPACE.sub(" ", printable).strip()


def plain(text: str) -> str:
    """Return a text in the form that identifies a statement: one line, one case, without its last mark."""
    return one_line(text).casefold().rstrip(".!。！ ")


@lru_cache(maxsize=65_536)
def stem(token: str) -> str:
    """Return the light stem of one token."""
    if token in NEGATORS:
        return NOT
    if not token.isalpha() or not token.isascii():
        return token
    for suffix in _SUFFIXES:
        if token.endswith(suffix) and len(token) - len(suffix) >= _stem_min_chars:
            return _tidy(token[: -len(suffix)], suffix)
    return token.removesuffix("e") if len(token) > _stem_min_chars else token


def _tidy(root: str, suffix: str) -> str:
    if suffix == "ies":
        return root + "y"
    if suffix == "s" and root.endswith(("s", "u", "i")):
        return root + suffix  # "class", "status", "analysis" are no plurals
    if len(root) > _stem_min_chars and root[-1] == root[-2] and root[-1] not in "lsz":
        return root[:-1]  # "logged" → "log" + "g"
    return root.removesuffix("e") if len(root) > _stem_min_chars else root


def _is_cjk(token: str) -> bool:
    first = token[0]
    return "\u3040" <= first <= "\u30ff" or "\u3400" <= first <= "\u9fff" or "\uac00" <= first <= "\ufaff"


@lru_cache(maxsize=16_384)  # for every length that is tried, a text is measured character by character
def is_between_signs(before: str, after: str) -> bool:
    """Return whether a word may end between two characters: beside an ideograph or hiragana, not before its mark."""
    is_beside = _unspaced().match(before) or _unspaced().match(after)
    return bool(is_beside) and after not in CJK_MARKS and not unicodedata.category(after).startswith("M")
