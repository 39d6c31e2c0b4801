"""The kinds of events that callers may name."""

from __future__ import annotations

from collections.abc import Sequence

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KINDS


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse a kind that does not exist, and name similar kinds or all. Raises Refused: ``UNKNOWN_KIND``."""
    for kind in kinds:
        if kind not in KINDS:
            alike = near(kind, KINDS)
            listed = "" if alike else f". The kinds are: {', '.join(sorted(KINDS))}"
            message = f"there is no kind {kind!r}{did_you_mean(alike)}{listed}"
            raise Refused("UNKNOWN_KIND", message, kind=kind, near=alike)
