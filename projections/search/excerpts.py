"""The part of a text that shows why it was found: some words around the first match, cut at words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.search.words import chunks_of, placed_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projections.search.asking import Term
    from projections.search.words import Word

excerpt_max_chars: Final = 200
lead_max_chars: Final = 60
terms_shown_max: Final = 32
_CUT: Final = "…"


def excerpt_of(text: str, terms: Sequence[Term]) -> str:
    """Return at most 200 characters of a text around its first match, on one line; ``…`` where it goes on."""
    start, end = next(matches_in(text, terms), (0, 0))
    room = excerpt_max_chars - 2 * len(_CUT)
    first, last = start, min(start + room, len(text))  # a word longer than all the room is cut from the match on
    begun = False
    for chunk_start, chunk_end in chunks_of(text):
        if not begun and chunk_end > start - lead_max_chars and max(chunk_end, end) - chunk_start <= room:
            first, last, begun = chunk_start, max(chunk_end, min(end, len(text))), True
        elif begun and chunk_end - first > room:
            break
        elif begun:
            last = max(last, chunk_end)
        elif chunk_start >= start:
            break
    shown = " ".join(text[first:last].split())
    before = _CUT if text[:first].strip() else ""
    return before + shown + (_CUT if text[last:].strip() else "")


def matches_in(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Yield where terms (the first 32 of them) are found in a text, in order, none overlapping another."""
    words = list(placed_words(text))
    shown = terms[:terms_shown_max]
    firsts = tuple({term.words[0] for term in shown})
    position = 0
    while position < len(words):
        is_near = words[position].word.startswith(firsts)
        found = max((_length(words, position, term) for term in shown), default=0) if is_near else 0
        if found:
            yield words[position].start, words[position + found - 1].end
        position += max(found, 1)


def _length(words: Sequence[Word], position: int, term: Term) -> int:
    """Return how many words a term covers at a position: all of its own, or none."""
    if not words[position].word.startswith(term.words[0]):
        return 0
    here = [one.word for one in words[position : position + len(term.words)]]
    if len(here) < len(term.words) or here[:-1] != list(term.words[:-1]):
        return 0
    is_found = here[-1].startswith(term.words[-1]) if term.is_beginning else here[-1] == term.words[-1]
    return len(here) if is_found else 0
