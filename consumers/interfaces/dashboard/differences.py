"""Computes the differences that a page shows: the changed words of a line, and the lines around a change. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby, takewhile
from typing import Final, Literal, NamedTuple, TypeVar

Line = TypeVar("Line")

words_compared_max: Final = 400
"""The words between the common beginning and end of two lines; more would take a page too long to compare."""

kept_share_min: Final = 0.25
"""If less of the text is kept, the kept words are useless: the whole line counts as replaced."""

# Chinese and Japanese have no spaces between words, so each of their characters counts as a word.
_IDEOGRAPHS: Final = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_IDEOGRAPHS}]|[0-9]+(?:[.,][0-9]+)+|[^\W{_IDEOGRAPHS}]+|\s+|.", re.DOTALL)


lines_around: Final = 2
folded_lines_min: Final = 4
"""Fewer unchanged lines take no more room than the note that would replace them."""


class Piece(NamedTuple):
    """A part of a line: in both versions (``kept``), only in the former one, or only in the present one."""

    mark: Literal["kept", "removed", "added"]
    text: str


def word_changes(was: str, text: str) -> list[Piece]:
    """Return the pieces of two versions of a line, in order.

    The kept and removed pieces joined are ``was``; the kept and added pieces joined are ``text``.

    >>> [(piece.mark, piece.text) for piece in word_changes("keep 30 days", "keep 90 days")]
    [('kept', 'keep '), ('removed', '30'), ('added', '90'), ('kept', ' days')]
    """
    old, new = _WORD.findall(was), _WORD.findall(text)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle = old[start : len(old) - end], new[start : len(new) - end]
    pieces = [Piece("removed", "".join(middle[0])), Piece("added", "".join(middle[1]))]
    if max(map(len, middle)) <= words_compared_max:
        pieces = list(_pieces(*middle))
    pieces = [Piece("kept", "".join(old[:start])), *pieces, Piece("kept", "".join(old[len(old) - end :]))]
    kept = sum(len(piece.text.strip()) for piece in pieces if piece.mark == "kept")
    if kept < kept_share_min * max(len(was.strip()), len(text.strip())):
        pieces = [Piece("removed", was), Piece("added", text)]
    return [piece for piece in pieces if piece.text]


def folded(lines: Sequence[Line], is_kept: Callable[[Line], bool]) -> list[tuple[bool, list[Line]]]:
    """Return the lines in groups: (True, unchanged lines far from any change), or (False, the others).

    >>> [(far, len(lines)) for far, lines in folded("ooooooxooo", "o".__eq__)]
    [(True, 4), (False, 6)]
    """
    changed = [number for number, line in enumerate(lines) if not is_kept(line)]
    near = {number + step for number in changed for step in range(-lines_around, lines_around + 1)}
    groups = [(far, list(group)) for far, group in groupby(enumerate(lines), key=lambda pair: pair[0] not in near)]
    folds = [(far and len(group) >= folded_lines_min, [line for _, line in group]) for far, group in groups]
    return [
        (far, [line for _, group in run for line in group]) for far, run in groupby(folds, key=operator.itemgetter(0))
    ]


def _common(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    """Yield the pieces; white space between two changes belongs to both, so that a changed phrase stays whole."""
    removed = added = ""
    for operation, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        before, after = "".join(old[start:end]), "".join(new[first:last])
        if operation != "equal" or (not before.strip() and (removed or added)):
            removed, added = removed + before, added + after
            continue
        yield from (Piece("removed", removed), Piece("added", added), Piece("kept", before))
        removed = added = ""
    yield from (Piece("removed", removed), Piece("added", added))
