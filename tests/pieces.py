"""Cuts a source into the steps of its thinking and the gaps between them, by the steps' spans alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.consumers.sdk.thinking.extract import Extraction


class Piece(NamedTuple):
    """A part of a source: the span of a step, or a gap if ``step`` is None."""

    text: str
    step: int | None


def pieces(found: Extraction, source: int = 0) -> Iterator[Piece]:
    """Yield the steps of a source and the gaps between them, in order; their texts joined are the source."""
    text = found.sources[source].text
    position = 0
    for number, span in found.spans.items():
        if span.source != source:
            continue
        if span.start > position:
            yield Piece(text[position : span.start], None)
        yield Piece(text[span.start : span.end], number)
        position = span.end
    if position < len(text):
        yield Piece(text[position:], None)
