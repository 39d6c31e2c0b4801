"""Replaces the secrets in a text that leaves the ledger's control.

It uses the scanner that keeps secrets out of the log. A match of the scanner may be only the beginning of a secret. So
the redaction continues to the end of the word, or of a private key. Then it scans its result again, and replaces the
whole text if it still contains a secret.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from deedbook.ledger.secrets.credentials import ENCODED_KEY, PRIVATE_KEY
from deedbook.ledger.secrets.disguise import revealed
from deedbook.ledger.secrets.scanner import Match, matches_in

passes_max: Final = 4
_WORD_REST: Final = re.compile(rb"""[^\s"'`<>\\]*""")
_KEY_REST: Final = re.compile(rb"(?s:.)*?-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|(?s:.)*")
_ENCODED_REST: Final = re.compile(rb"(?:[A-Za-z0-9+/=]|(?:\s|\\[nrt])+(?=[A-Za-z0-9+/=]{16}))*")


class RedactedText(NamedTuple):
    """A text without secrets, and the kinds of those that were in it."""

    text: str
    kinds: tuple[str, ...] = ()


def redact(text: str) -> RedactedText:
    """Return a text with ``[redacted: KIND]`` in place of each secret.

    >>> redact("use " + "AKIA" + "QYLPMN5HIE7TZXWB here").text
    'use [redacted: AWS access key id] here'
    """
    content = text.encode(errors="replace")
    kinds: list[str] = []
    for _ in range(passes_max):
        matches = list(matches_in(content))
        if not matches and (plain := revealed(content)) != content and (matches := list(matches_in(plain))):
            content = plain  # a disguised secret has no position in the original text
        if not matches:
            return RedactedText(content.decode() if kinds else text, tuple(kinds))
        content = _replaced(content, matches, kinds)
    return RedactedText(_mark(kinds[0]), tuple(kinds))


def _replaced(text: bytes, matches: list[Match], kinds: list[str]) -> bytes:
    """Return the text without its secrets, and add their kinds. Two matches in one secret count once."""
    parts, end = [], 0
    for match in sorted(matches, key=lambda match: match.start):
        start = match.end - len(text[match.start : match.end].lstrip())  # the match may begin with the space before
        if start >= end:
            parts += [text[end:start], _mark(match.kind).encode()]
            kinds.append(match.kind)
        end = max(end, _end_of(match, text))
    return b"".join([*parts, text[end:]])


def _end_of(match: Match, text: bytes) -> int:
    rest = {PRIVATE_KEY: _KEY_REST, ENCODED_KEY: _ENCODED_REST}.get(match.kind, _WORD_REST)
    found = rest.match(text, match.end)
    return match.end if found is None else found.end()


def _mark(kind: str) -> str:
    return f"[redacted: {kind}]"
