"""Shortened references: a beginning of 12 or more hex digits, with or without its algorithm (SEEDS, 001)."""

from __future__ import annotations

import re
from typing import Final

from projections.query import prefix_digits_min

_REF: Final = re.compile(rf"(?:(blake3|sha256):)?([0-9a-f]{{{prefix_digits_min},64}})")


def prefix_range(asked: str, algorithm: str) -> tuple[str, str] | None:
    """Return (first, after last) of the whole refs that ``asked`` may stand for; None when it can be none of them.

    Refs are compared as text: ``g`` follows every hex digit.
    """
    found = _REF.fullmatch(asked.lower())
    if found is None or found[1] not in (None, algorithm):
        return None
    first = f"{algorithm}:{found[2]}"
    return first, first + "g"
