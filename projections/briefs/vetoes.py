"""Contradictions between a brief and its graph, which cap the fidelity.

Each clause of the text that is not, word for word, a clause of the graph is compared with the clauses it draws on:

- If a number changed in its slot (another number beside the same words), a negation changed in its scope, or an anchor
  is not in the graph, the fidelity is at most .74, so the trust gate asks for the full graph.
- If the graph hardly contains the words of a clause, it is at most .89.

A negator covers the next three content words. ``un-`` and ``non-`` count if the graph has the word without the prefix
("unencrypted" negates "encrypted", "under" negates nothing). A word of a path negates nothing, nor do Chinese negators
inside certain words (不仅, 非常, 无论, …). Two texts agree if every scope of one matches a scope of the other. Each
scope matches only once, so one negation does not excuse a second.

These are heuristics for free text. For a brief of verbatim facts, ``check_certificate`` finds every contradiction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from deedbook.ledger.events.brief import Veto
from deedbook.ledger.format.chinese import both_scripts
from deedbook.projections.briefs.anchors import anchors, number_value
from deedbook.projections.briefs.index import GraphIndex, Source, spelled
from deedbook.projections.briefs.text import NOT, clauses, content_of, content_words, stem, words

CONTRADICTION_CAP: Final = 0.74
UNSUPPORTED_CAP: Final = 0.89
NO_CAP: Final = 1.0

_sources_max: Final = 3
_supported_share: Final = 0.35
_comparable_share: Final = 0.5
_statement_min_words: Final = 2
scope_words: Final = 3
_scope_chars: Final = 4
_scope_reach_words: Final = 12

_PREFIXES: Final = ("un", "non")
# Matched only at the start of a run: at each character, a word of 10 kB would take quadratic time.
_PATH: Final = re.compile(r"(?<![\w.~-])[\w.~-]+(?:[/\\][\w.~-]+)+(?::\d+)?", re.ASCII)
_CJK_HARMLESS: Final = re.compile(
    both_scripts(
        "不仅|不但|不同|不过|不断|不管|不论|不久|不只|不止|非常|无论|无非|无数|无疑|未来|未必|莫名|莫非|别的|别人|分别|区别|级别|类别|特别"
        "|没收|没落|除非|是非|并非没有|不得不|不可不|对不起|差不多"
    )
)
_CJK_NEGATOR: Final = re.compile(both_scripts("没有|并非|不是|尚未|从未|[不没未无非别勿莫否]"))


def find_vetoes(text: str, index: GraphIndex) -> list[Veto]:
    """Return every veto against a text, in reading order."""
    vetoes: list[Veto] = []
    for clause in clauses(text):
        if spelled(words(clause)) not in index.verbatim:
            vetoes += _vetoes_of(clause, index)
    return vetoes


def _vetoes_of(clause: str, index: GraphIndex) -> list[Veto]:
    foreign = sorted(anchors(clause) - index.anchors)
    if foreign:
        return [Veto("foreign_anchor", clause, CONTRADICTION_CAP, ", ".join(foreign))]
    content = _split_prefixes(content_words(clause), index.postings.keys())
    used, support = _draw_on(content, index)
    if support < _supported_share and len(content) >= _statement_min_words:
        return [Veto("unsupported", clause, UNSUPPORTED_CAP, f"supported {support:.2f}")]
    if support < _comparable_share:
        return []
    changed = _changed_number(content, used, index)
    if changed:
        return [Veto("number_changed", clause, CONTRADICTION_CAP, changed)]
    if _negation_changed(clause, content, used, index):
        return [Veto("negation_changed", clause, CONTRADICTION_CAP, used[0].text)]
    return []


def _draw_on(content: list[str], index: GraphIndex) -> tuple[list[Source], float]:
    """Return the graph clauses with most words of a clause, best first, and the share of its weight that they cover."""
    # Negators are not searched here, because then any two clauses with a negation would match. ``_negation_changed``
    # compares them later.
    left = set(content) - {NOT}
    total = sum(index.weight_of(word) for word in left)
    used: list[Source] = []
    covered = 0.0
    while left and len(used) < _sources_max:
        shares: dict[int, float] = {}
        for word in left:
            for position in index.postings.get(word, ()):
                shares[position] = shares.get(position, 0.0) + index.weight_of(word)
        if not shares:
            break
        # Among equally good clauses, take the shortest: it adds the least to the searched words.
        best = max(shares, key=lambda position: (shares[position], -len(index.sources[position].content), -position))
        used.append(index.sources[best])
        covered += shares[best]
        left -= set(index.sources[best].content)
    return used, covered / total if total else 0.0


def _slots(content: list[str]) -> list[tuple[str, str, str]]:
    beside = zip(["", *content], content, [*content[1:], ""], strict=False)
    return [(before, number_value(word), after) for before, word, after in beside if word[:1].isdigit()]


def _changed_number(content: list[str], used: list[Source], index: GraphIndex) -> str:
    graph_slots = [slot for source in used for slot in _slots(source.content)]
    values = {value for _, value, _ in graph_slots}
    own_slots = _slots(content)
    for before, value, after in own_slots:
        beside = [slot for slot in graph_slots if (before and slot[0] == before) or (after and slot[2] == after)]
        if any(slot[1] == value for slot in beside) or _occurs_elsewhere((before, value, after), index):
            continue
        missing = values - {other for _, other, _ in own_slots}
        if beside:
            return f"{value} where {beside[0][1]} stood"
        if value not in values and missing:
            return f"{value} instead of {', '.join(sorted(missing))}"
    return ""


def _occurs_elsewhere(slot_given: tuple[str, str, str], index: GraphIndex) -> bool:
    """Return whether a clause of the graph has this number beside one of these words (a sentence may join facts)."""
    before, value, after = slot_given
    neighbours = [word for word in (before, after) if word and not word[0].isdigit()]
    return any(
        slot[1] == value and (slot[0] == before == word or slot[2] == after == word)
        for word in neighbours
        for position in index.postings.get(word, ())
        for slot in _slots(index.sources[position].content)
    )


def _negation_changed(clause: str, content: list[str], used: list[Source], index: GraphIndex) -> bool:
    """Return whether a clause lost a negation of a source, or has one that none of its sources has."""
    own_words, own_scopes = set(content), negation_scopes(clause, index.postings.keys())
    source_scopes = [negation_scopes(source.text, index.postings.keys()) for source in used]
    foreign = _unmet(own_scopes, [scope for scopes in source_scopes for scope in scopes])
    for source, scopes in zip(used, source_scopes, strict=True):
        source_words = frozenset(source.content)
        if not _mostly_in(source_words, own_words):
            continue
        lost = any(_mostly_in(scope, own_words) for scope in _unmet(scopes, own_scopes))
        if lost or any(_mostly_in(scope, source_words) for scope in foreign):
            return True
    return False


def negation_scopes(text: str, vocabulary: Collection[str]) -> list[frozenset[str]]:
    """Return the content words that each negator of a text covers, without negators that cover nothing."""
    text = _PATH.sub(" ", text)
    scopes = list(_latin_scopes(words(text), vocabulary))
    if not text.isascii():
        scopes += _cjk_scopes(text)
    return [scope for scope in scopes if scope]


def _split_prefixes(content: Iterable[str], vocabulary: Collection[str]) -> list[str]:
    """Return content words with "unencrypted" as "not" and "encrypted", if the graph has the second."""
    split: list[str] = []
    for word in content:
        root = _without_prefix(word, vocabulary) if word not in vocabulary else ""
        split += [NOT, root] if root else [word]
    return split


def _latin_scopes(tokens: list[str], vocabulary: Collection[str]) -> Iterable[frozenset[str]]:
    for position, token in enumerate(tokens):
        if stem(token) == NOT:
            nearby = content_of(tokens[position + 1 : position + 1 + _scope_reach_words])
            yield frozenset([word for word in nearby if word != NOT][:scope_words])
        elif root := _without_prefix(stem(token), vocabulary):
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


def _mostly_in(scope: frozenset[str], present: AbstractSet[str]) -> bool:
    return 2 * len(scope & present) > len(scope)


def _unmet(scopes: list[frozenset[str]], others: list[frozenset[str]]) -> list[frozenset[str]]:
    """Return the scopes that match none of the others. Each of the others can match once, with its best partner."""
    pairs = [
        (len(scope & other), position, at) for position, scope in enumerate(scopes) for at, other in enumerate(others)
    ]
    met: set[int] = set()
    taken: set[int] = set()
    for shared, position, at in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:])):
        if shared and position not in met and at not in taken:
            met.add(position)
            taken.add(at)
    return [scope for position, scope in enumerate(scopes) if position not in met]
