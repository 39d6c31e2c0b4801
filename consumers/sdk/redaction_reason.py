"""Finds words in the reason of a redaction that repeat the erased texts: every reader of the ledger sees the reason.

A reason repeats a text if it has one of these:

- a word of four letters or more of the text that the caller named;
- an erased text as a whole, unless it has less than four letters and no digit;
- a word of an erased text that looks like a credential, or a part of it: it mixes letters and digits, it joins three or
  more parts, or the scanner for secrets finds it;
- three words in a row of an erased text.

Upper and lower case are alike. Another plain word passes, also if it is a name, and words such as "password" always do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from deedbook.ledger.secrets.scanner import matches_in

part_min_chars: Final = 4
row_words: Final = 3
_joined_parts_min: Final = 3
_PART: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = re.compile(r"[\s\"{}\[\],;]+")  # also within JSON
_EDGES: Final = "'`()<>.:!?…"
_USUAL: Final = frozenset(
    {
        *(
            "account",
            "address",
            "code",
            "credential",
            "credentials",
            "email",
            "login",
            "mail",
            "name",
            "names",
            "number",
        ),
        *("passphrase", "passwd", "password", "passwords", "person", "phone", "private", "secret", "secrets", "token"),
        *("tokens", "user", "username"),
    }
)
"""Words for the kind of a secret: they occur beside secrets, and reasons need them."""


def repeated_in(reason: str, named: str, texts: Collection[str]) -> str | None:
    """Return the first words of a reason that repeat ``named`` or one of the erased texts; None if nothing does."""
    whole = reason.casefold()
    parts = _parts(whole)
    for text in (text.casefold().strip() for text in (named, *texts)):
        is_telling = len(text) >= part_min_chars or any(map(str.isdecimal, text))
        if is_telling and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", whole):
            return text
    for word in (*_words(named), *(word for text in texts for word in _credentials(text))):
        told: list[str] = [
            part for part in _PART.findall(word) if part in parts and len(part) >= part_min_chars and part not in _USUAL
        ]
        if word in whole and len(word) >= part_min_chars and word not in _USUAL:
            return word
        if told:
            return told[0]
    rows = {row for text in texts for row in _rows(text)}
    return next((" ".join(row) for row in _rows(reason) if row in rows), None)


def _words(text: str) -> list[str]:
    return [word for part in _BETWEEN.split(text.casefold()) if (word := part.strip(_EDGES))]


def _parts(text: str) -> set[str]:
    return set(_PART.findall(text))


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    words = _words(text)
    yield from zip(*(words[start:] for start in range(row_words)), strict=False)


def _credentials(text: str) -> Iterator[str]:
    """Yield the words of a text that look like credentials."""
    encoded = text.encode(errors="replace")
    for match in matches_in(encoded):
        # A match ends at the beginning of a secret, and may begin with a name, such as "password is".
        rest = encoded[match.end :].split()[:1] if not encoded[match.end :][:1].isspace() else []
        yield from _words(b"".join([encoded[match.start : match.end], *rest]).decode(errors="replace"))[-1:]
    for word in _words(text):
        parts = [part for part in _PART.findall(word) if not part.isdecimal()]
        is_mixed = any(re.search(r"[0-9]", part) for part in parts)
        if is_mixed or (len(parts) >= _joined_parts_min and not {"/", "."} & {*word}):
            yield word
