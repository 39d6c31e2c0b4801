"""Decoding a line under the ledger's strict rules, but for its numbers.

Transcripts hold numbers that no event can: ids of 64 bits, ``NaN`` and ``Infinity`` as Python writes them. None of them
is thinking, so none costs the thinking beside it: each is read as the text that it is written as, and told.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ledger.codec import check_strict
from ledger.errors import Refused
from ledger.limits import json_integer_max


def decoded(line: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the value of a line, and the numbers in it that are read as texts.

    Raises:
        Refused: as ``check_strict``, for any other fault.
    """
    try:
        return check_strict(line), ()
    except Refused as refusal:
        odd: list[str] = []
        value = (
            _with_texts_for_numbers(line, odd) if refusal.code in ("INTEGER_OUT_OF_RANGE", "INVALID_FORMAT") else None
        )
        if not odd:
            raise
        return value, tuple(odd)


def _with_texts_for_numbers(line: bytes, odd: list[str]) -> Any:
    def as_text(digits: str) -> str:
        odd.append(digits)
        return digits

    def integer(digits: str) -> int | str:
        is_long = len(digits) > len(str(-json_integer_max)) or abs(int(digits)) > json_integer_max
        return as_text(digits) if is_long else int(digits)

    def decimal(digits: str) -> float | str:
        return float(digits) if math.isfinite(float(digits)) else as_text(digits)

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            raise ValueError("a key stands twice in one object")
        return made

    try:
        return json.loads(
            line.decode(), object_pairs_hook=pairs, parse_int=integer, parse_float=decimal, parse_constant=as_text
        )
    except ValueError:
        odd.clear()  # there is another fault, too: the strict rules have named the first
        return None
