"""The kinds of events that callers name: by the kind's name, or by the class of its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KIND_OF, KINDS

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData


def kinds_of(kinds: Sequence[str | type[EventData]]) -> tuple[str, ...]:
    """Return the names of kinds. Raises Refused: ``UNKNOWN_KIND``."""
    names = tuple(kind if isinstance(kind, str) else _kind_of(kind) for kind in kinds)
    check_kinds(names)
    return names


def _kind_of(data: type[EventData]) -> str:
    if (kind := KIND_OF.get(data)) is not None:
        return kind
    raise Refused("UNKNOWN_KIND", f"{data.__qualname__} is not the class of any kind's data", near=[])


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse a kind that does not exist, and name similar kinds or all. Raises Refused: ``UNKNOWN_KIND``."""
    for kind in kinds:
        if kind not in KINDS:
            alike = near(kind, KINDS)
            listed = "" if alike else f". The kinds are: {', '.join(sorted(KINDS))}"
            message = f"there is no kind {kind!r}{did_you_mean(alike)}{listed}"
            raise Refused("UNKNOWN_KIND", message, kind=kind, near=alike)
