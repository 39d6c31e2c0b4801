"""Which words a text negates (DESIGN §9: a negation changed in its scope is a veto).

A negator covers the next three content words. ``un-`` and ``non-`` count where the graph knows the word without the
prefix ("unencrypted" negates "encrypted", "under" negates nothing). A word of a path negates nothing. Chinese negators
count except inside words that negate nothing (不仅, 非常, 无论, …). Two texts agree if every scope of one meets a scope
of the other, each of which one scope can meet (one negation does not excuse a second); which of two near synonyms
negates, and where in the clause it stands, does not matter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from projections.briefs.text import NOT, content_of, content_words, stem, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

scope_words: Final = 3
_scope_chars: Final = 4
_scope_reach_words: Final = 12

_PREFIXES: Final = ("un", "non")
_PATH: Final = re.compile(r"[\w.~-]+(?:[/\\][\w.~-]+)+(?::\d+)?", re.ASCII)
_CJK_HARMLESS: Final = re.compile(
    "不仅|不但|不同|不过|不断|不管|不论|不久|不只|不止|非常|无论|无非|无数|无疑|未来|未必|莫名|莫非|别的|别人|分别|区别|级别|类别|特别"
    "|没收|没落|除非|是非|并非没有|不得不|不可不|对不起|差不多"
)
_CJK_NEGATOR: Final = re.compile("没有|并非|不是|尚未|从未|[不没未无非别勿莫否]")


def negation_scopes(text: str, vocabulary: Collection[str]) -> list[frozenset[str]]:
    """Return the content words that each negator of a text covers, negators that cover nothing left out."""
    text = _PATH.sub(" ", text)
    scopes = list(_latin_scopes(words(text), vocabulary))
    if not text.isascii():
        scopes += _cjk_scopes(text)
    return [scope for scope in scopes if scope]


def split_prefixes(content: Iterable[str], vocabulary: Collection[str]) -> list[str]:
    """Return content words with "unencrypted" as two words, "not" and "encrypted", where the graph knows the second."""
    split: list[str] = []
    for word in content:
        root = _without_prefix(word, vocabulary) if word not in vocabulary else ""
        split += [NOT, root] if root else [word]
    return split


def negation_differs(
    clause: Iterable[str],
    clause_scopes: list[frozenset[str]],
    source: Iterable[str],
    source_scopes: list[frozenset[str]],
    covered_scopes: list[frozenset[str]],
) -> bool:
    """Tell whether a clause lost a negation of its source, or has one that none of its sources has.

    ``covered_scopes`` are the scopes of all sources the clause draws on: a clause that joins two facts may
    carry the negation of either.
    """
    said, stood = set(clause), set(source)
    lost = any(_mostly_in(scope, said) for scope in _unmet(source_scopes, clause_scopes))
    added = any(_mostly_in(scope, stood) for scope in _unmet(clause_scopes, covered_scopes))
    return lost or added


def _latin_scopes(tokens: list[str], vocabulary: Collection[str]) -> Iterable[frozenset[str]]:
    for position, token in enumerate(tokens):
        if stem(token) == NOT:
            nearby = content_of(tokens[position + 1 : position + 1 + _scope_reach_words])
            yield frozenset([word for word in nearby if word != NOT][:scope_words])
            continue
        root = _without_prefix(stem(token), vocabulary)
        if root:
            yield frozenset({root})


def _without_prefix(word: str, vocabulary: Collection[str]) -> str:
    roots = (word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix))
    return next((root for root in roots if root in vocabulary), "")


def _cjk_scopes(text: str) -> list[frozenset[str]]:
    plain = _CJK_HARMLESS.sub(lambda match: "\n" * len(match[0]), text)
    scopes = []
    for match in _CJK_NEGATOR.finditer(plain):
        nearby = text[match.end() : match.end() + _scope_reach_words]
        following = re.split(r"[\n，,。；;：:、！？]", nearby, maxsplit=1)[0].strip()
        scopes.append(frozenset(content_words(following[:_scope_chars])) if following else frozenset())
    return scopes


def _mostly_in(scope: frozenset[str], present: set[str]) -> bool:
    return 2 * len(scope & present) > len(scope)


def _unmet(scopes: list[frozenset[str]], others: list[frozenset[str]]) -> list[frozenset[str]]:
    """Return the scopes that meet none of the others; each of the others can be met once, by what meets it best."""
    pairs = [(len(one & other), place, at) for place, one in enumerate(scopes) for at, other in enumerate(others)]
    met: set[int] = set()
    taken: set[int] = set()
    for shared, place, at in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:])):
        if shared and place not in met and at not in taken:
            met.add(place)
            taken.add(at)
    return [scope for place, scope in enumerate(scopes) if place not in met]
