"""Ids as people meet them: made of a title's words, and listed with commas, with or without ``.md``."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime

from ledger.errors import Refused

slug_max_chars = 80


def default_id(title: str) -> str:
    """Return ``YYYY-MM-DD-`` and the title in lower-case words; letters of other scripts stay.

    Raises Refused: ``USAGE`` for a title without a word.
    """
    plain = unicodedata.normalize("NFKC", title).lower()
    slug = re.sub(r"[^\w]+", "-", plain).strip("-_")[:slug_max_chars].strip("-_")
    if not slug:
        raise Refused("USAGE", "the title has no word to make an id of: give one with --id")
    return f"{datetime.now(UTC):%Y-%m-%d}-{slug}"


def split_ids(text: str) -> list[str]:
    """Return the ids in ``a.md, b``; ``(none)`` is no dependency."""
    found = [one.strip().removesuffix(".md") for one in text.split(",")]
    return [one for one in found if one and one != "(none)"]
