"""Finds the things of a ledger, and the places of files, that a text names, so that a page can link to them. Pure.

A thing is named as ``handoff/ID``, as ``(handoff ID)`` in the lines of a report, or by a hash. The module does not
check that it exists: the page of a missing thing says that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from deedbook.consumers.interfaces.dashboard.address import has_page

_NAME: Final = r"[A-Za-z0-9](?:[\w.@+-]*\w)?"
_THING: Final = re.compile(
    rf"(?<![\w/.:-])(?P<stream>(?P<family>[a-z][a-z0-9_]+)/(?P<id>{_NAME}))(?![\w/])"
    rf"|(?<=\(handoff )(?P<handoff>{_NAME})(?=\))"
    r"|(?P<hash>(?:event|sha256|blake3):[0-9a-f]{12,64})(?![0-9a-f])"
)
_hash_shown_chars: Final = 15


class TextPiece(NamedTuple):
    """A part of a text; ``kind`` and ``id`` are of the thing that it names, or empty."""

    text: str
    kind: str = ""
    id: str = ""


def place_pieces(text: str, places: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return a text in pieces, each with the number of the place that it names (0: none).

    A place has ``path``, ``line``, ``end`` and ``number``; a text names it as ``path:line`` or ``path:line-end``.

    >>> place_pieces("[a.py:1] and a.py:12", [{"path": "a.py", "line": 1, "end": 0, "number": 3}])
    [('[', 0), ('a.py:1', 3), ('] and a.py:12', 0)]
    """
    numbers = {
        f"{place['path']}:{place['line']}" + (f"-{place['end']}" if place["end"] else ""): place["number"]
        for place in places
        if place["path"]
    }
    if not numbers:
        return [(text, 0)]
    names = "|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
    pieces = re.split(rf"(?<![\w/.-])({names})(?![\w-])", text)
    return [(piece, numbers[piece] if position % 2 else 0) for position, piece in enumerate(pieces) if piece]


def link_pieces(text: str) -> list[TextPiece]:
    """Return a text in pieces. A hash is shortened; all other pieces are unchanged.

    >>> [piece for piece in link_pieces("done (handoff a-1), see session/s.") if piece.kind]
    [TextPiece(text='a-1', kind='handoff', id='a-1'), TextPiece(text='session/s', kind='session', id='s')]
    >>> link_pieces("event:0123456789ab")
    [TextPiece(text='event:012345678', kind='event', id='event:0123456789ab')]
    """
    pieces, end = [], 0
    for match in _THING.finditer(text):
        if match["family"] in ("agent", "review") or (match["family"] and not has_page(match["family"])):
            continue
        pieces.append(TextPiece(text[end : match.start()]))
        end = match.end()
        if match["hash"]:
            is_reasoning = text[: match.start()].endswith("Reasoning: ")
            pieces.append(TextPiece(match[0][:_hash_shown_chars], "reasoning" if is_reasoning else "event", match[0]))
        else:
            pieces.append(TextPiece(match[0], match["family"] or "handoff", match["id"] or match["handoff"]))
    return [piece for piece in (*pieces, TextPiece(text[end:])) if piece.text]
