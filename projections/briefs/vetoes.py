"""What a brief must never do: say something the graph does not (DESIGN §9).

Each clause of the text that is not, word for word, a clause of the graph is held against the clauses it draws on:

- a number changed in its slot (beside the same words stands another number), a negation changed in its scope, or an
  anchor that the graph lacks: the fidelity is at most .74, so the trust gate asks for the full graph;
- a clause whose words the graph hardly knows: at most .89.

These are heuristics for free text. A brief of verbatim facts is checked by ``check_certificate``, which misses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.events.brief import Veto
from projections.briefs.anchors import anchors, number_value
from projections.briefs.index import spelled
from projections.briefs.negation import negation_differs, negation_scopes, split_prefixes
from projections.briefs.text import NOT, clauses, content_words, words

if TYPE_CHECKING:
    from projections.briefs.index import GraphIndex, Source

CONTRADICTION_CAP: Final = 0.74
UNSUPPORTED_CAP: Final = 0.89
NO_CAP: Final = 1.0

_sources_max: Final = 3
_supported_share: Final = 0.35
_comparable_share: Final = 0.5
_statement_min_words: Final = 2


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
    content = split_prefixes(content_words(clause), index.postings.keys())
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
    """Return the graph clauses that a clause draws on, best first, and the share of its weight that they cover."""
    # A negator is judged, not looked for: some other clause that negates anything at all would pass for its source.
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
        # Of equally good clauses the shortest: it says least beside what is looked for.
        best = max(shares, key=lambda position: (shares[position], -len(index.sources[position].content), -position))
        used.append(index.sources[best])
        covered += shares[best]
        left -= set(index.sources[best].content)
    return used, covered / total if total else 0.0


def _slots(content: list[str]) -> list[tuple[str, str, str]]:
    """Return each number with the words before and after it."""
    padded = ["", *content, ""]
    return [
        (padded[position - 1], number_value(word), padded[position + 1])
        for position, word in enumerate(padded)
        if word and word[0].isdigit()
    ]


def _changed_number(content: list[str], used: list[Source], index: GraphIndex) -> str:
    stood = [slot for source in used for slot in _slots(source.content)]
    values = {value for _, value, _ in stood}
    said = _slots(content)
    for before, value, after in said:
        beside = [slot for slot in stood if (before and slot[0] == before) or (after and slot[2] == after)]
        if any(slot[1] == value for slot in beside) or _stands_elsewhere((before, value, after), index):
            continue
        missing = values - {other for _, other, _ in said}
        if beside:
            return f"{value} where {beside[0][1]} stood"
        if value not in values and missing:
            return f"{value} instead of {', '.join(sorted(missing))}"
    return ""


def _stands_elsewhere(said: tuple[str, str, str], index: GraphIndex) -> bool:
    """Tell whether some clause of the graph has this number beside one of these words (joined facts draw on many)."""
    before, value, after = said
    neighbours = [word for word in (before, after) if word and not word[0].isdigit()]
    for word in neighbours:
        for position in index.postings.get(word, ()):
            for slot in _slots(index.sources[position].content):
                if slot[1] == value and ((slot[0] == before == word) or (slot[2] == after == word)):
                    return True
    return False


def _negation_changed(clause: str, content: list[str], used: list[Source], index: GraphIndex) -> bool:
    said = negation_scopes(clause, index.postings.keys())
    stood = [negation_scopes(source.text, index.postings.keys()) for source in used]
    covered = [scope for scopes in stood for scope in scopes]
    mostly = (
        (source, scopes)
        for source, scopes in zip(used, stood, strict=True)
        if 2 * len(set(source.content) & set(content)) > len(set(source.content))
    )
    return any(negation_differs(content, said, source.content, scopes, covered) for source, scopes in mostly)
