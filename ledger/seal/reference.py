"""Sealed references: the text that an event holds instead of a sealed text.

``sealed:SUBJECT:blake3:HEX/N`` means text ``N``, counted from 0, of the sealed blob ``blake3:HEX``. The content of that
blob is a JSON array of texts, so one event needs only one sealed blob. Every view, index, file and note holds the
reference like any other text. Only an exact reference counts: a longer text that contains one is an ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.codec import UNREADABLE, json_decoder

REFERENCE: Final = re.compile(
    r"sealed:(?P<subject>[a-z0-9][a-z0-9_-]{0,62}):(?P<ref>blake3:[0-9a-f]{64})/(?P<position>0|[1-9][0-9]{0,3})"
)
texts_max: Final = 10_000
"""The largest number of texts in one sealed blob: positions have at most four digits."""


class SealedReference(msgspec.Struct, frozen=True):
    """The subject of a sealed text, the sealed blob that has the text, and the text's position in that blob."""

    subject: str
    ref: str
    position: int

    def __str__(self) -> str:
        return f"sealed:{self.subject}:{self.ref}/{self.position}"


def read_reference(text: str) -> SealedReference | None:
    """Parse a text that is exactly one sealed reference; return None for any other text."""
    match = REFERENCE.fullmatch(text) if text.startswith("sealed:") else None
    return None if match is None else _reference(match)


def with_references(text: str, shown: Callable[[SealedReference], str]) -> str:
    """Return a text, such as a page that quotes events, with the result of ``shown`` in place of each reference."""
    return REFERENCE.sub(lambda match: shown(_reference(match)), text) if "sealed:" in text else text


def _reference(match: re.Match[str]) -> SealedReference:
    return SealedReference(match["subject"], match["ref"], int(match["position"]))


_texts_decoder: Final = json_decoder(list[str])


def encode_texts(texts: list[str]) -> bytes:
    """Return the content of a sealed blob with texts."""
    return msgspec.json.encode(texts)


def text_at(content: bytes, reference: SealedReference) -> str:
    """Return the text that a reference names, from the content of its sealed blob.

    Raises Corrupted: ``VERIFICATION_FAILED`` if the content is no list of texts, or has no such position.
    """
    try:
        return _texts_decoder.decode(content)[reference.position]
    except (*UNREADABLE, IndexError) as error:
        message = f"the sealed blob {reference.ref} has no text {reference.position}: its author made a wrong reference"
        raise Corrupted("VERIFICATION_FAILED", message, ref=reference.ref) from error
