"""Where the steps of a piece of thinking begin and end: paragraphs, list items, groups of sentences.

A step is never rewritten, so splitting is only choosing spans. Between them stand white space and list marks, and
nothing else: what is left out of every step can be told from the source.

- A blank line and a list mark begin a new piece; fenced code is a piece of its own.
- A paragraph is divided where the kind of its sentences changes (what was seen, what follows from it), and where a
  group of them would exceed ``step_goal_bytes``. A list item is divided only by its size.
- A sentence longer than ``cut_chars`` is cut at white space, or inside the word if there is none.

Every pattern looks at each character a bounded number of times: thinking comes from strangers and may be of any form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.sdk.thinking.classify import classify_step_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from consumers.sdk.thinking.tags import Region

step_goal_bytes: Final = 320
cut_chars: Final = 1_000

# A dash before a digit may be a minus sign: taking it for a list mark would change the number.
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE: Final = re.compile(r"[ \t]*(?:```|~~~)")
_MARK: Final = re.compile(
    r"[ \t]*+(?:"
    r"(?:[-*+•‣·](?![ \t]++\d)|\d{1,3}[.)]|\((?:\d{1,3}|[a-z])\))(?=[ \t])"
    r"|\d{1,3}[、．](?!\d)|[（(][一二三四五六七八九十\d]{1,3}[）)]|[①-⑳]|[一二三四五六七八九十]{1,3}、"
    r"|(?:step|第)[ \t]*[\d一二三四五六七八九十]{1,3}[ \t]*步?[:：.，,、]"
    r")[ \t]*",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|[。！？；]++[”’」』）\"')\]]*+|\n(?=\s*+[^a-z\s])"
)
_ABBREVIATION: Final = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|dr|mr|ms|fig|eq|approx)$", re.IGNORECASE)
_abbreviation_max_chars: Final = 8
_FULL_STOP: Final = "."


class _Piece(NamedTuple):
    start: int
    end: int
    sort: str  # paragraph, item or code


def split_steps(text: str, region: Region) -> list[Region]:
    """Return the spans of the steps in one region of a text, in order, without overlap, each trimmed and not empty."""
    spans: list[Region] = []
    for piece in _pieces(text, region):
        spans += _divided(text, piece)
    return spans


def _pieces(text: str, region: Region) -> Iterator[_Piece]:
    """Yield paragraphs, list items and fenced code."""
    start, sort = region[0], "paragraph"
    for line in _LINE.finditer(text, *region):
        mark = None if sort == "code" else _MARK.match(text, line.start(), line.end())
        if _FENCE.match(text, line.start(), line.end()):
            if sort == "code":
                yield _Piece(start, line.end(), "code")
                start, sort = line.end(), "paragraph"
            else:
                yield _Piece(start, line.start(), sort)
                start, sort = line.start(), "code"
        elif mark:
            yield _Piece(start, line.start(), sort)
            start, sort = mark.end(), "item"
        elif sort != "code" and line[0].isspace():
            yield _Piece(start, line.start(), sort)
            start, sort = line.end(), "paragraph"
    yield _Piece(start, region[1], sort)


def _divided(text: str, piece: _Piece) -> list[Region]:
    whole = trimmed(text, (piece.start, piece.end))
    if whole is None:
        return []
    if piece.sort != "paragraph" and _width(text, whole) <= step_goal_bytes:
        return [whole]
    groups: list[Region] = []
    group_sort = ""
    for sentence in _sentences(text, whole):
        sort = classify_step_type(text[slice(*sentence)]) if piece.sort == "paragraph" else piece.sort
        joined = (groups[-1][0], sentence[1]) if groups else sentence
        if groups and sort == group_sort and _width(text, joined) <= step_goal_bytes:
            groups[-1] = joined
        else:
            groups.append(sentence)
        group_sort = sort
    return [span for group in groups for span in _cut(text, group)]


def _sentences(text: str, region: Region) -> Iterator[Region]:
    start = region[0]
    for end in _SENTENCE_END.finditer(text, *region):
        before = text[max(start, end.start() - _abbreviation_max_chars) : end.start()]
        if end[0] == _FULL_STOP and _ABBREVIATION.search(before):
            continue
        if sentence := trimmed(text, (start, end.end())):
            yield sentence
        start = end.end()
    if rest := trimmed(text, (start, region[1])):
        yield rest


def _cut(text: str, span: Region) -> Iterator[Region]:
    start, end = span
    while end - start > cut_chars:
        limit = start + cut_chars
        space = next((place for place in range(limit, start, -1) if text[place].isspace()), limit)
        if part := trimmed(text, (start, space)):
            yield part
        start = space
    if rest := trimmed(text, (start, end)):
        yield rest


def trimmed(text: str, region: Region) -> Region | None:
    """Return a region without the white space around it, or None if nothing is left."""
    part = text[slice(*region)]
    kept = part.strip()
    if not kept:
        return None
    start = region[0] + len(part) - len(part.lstrip())
    return start, start + len(kept)


def _width(text: str, region: Region) -> int:
    """Return the UTF-8 bytes of a region: a measure that treats a Chinese sentence like an English one."""
    return len(text[slice(*region)].encode())
