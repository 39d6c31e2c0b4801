"""Resolve a point in the past: an index (the state after that entry), or a time by the ledger's own clock.

A time means the last entry, in log order, that was accepted at or before it. If root set the clock back
(``ledger.clock_set``), one time can occur on both sides of the setting; it means the later side, because root declared
the earlier times wrong. Leases are evaluated at the requested time. A time after the last entry means now; interfaces
refuse the future before they ask.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.clock import clock_text, ledger_now
from deedbook.projections.answers.answer import Index, Marked, Ms
from deedbook.projections.answers.query import Arguments, QueryContext
from deedbook.projections.stores.store import ReadTransaction

as_of_max_chars: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INDEX: Final = re.compile(r"[0-9]{1,15}")
_AT: Final = "SELECT accepted_ms FROM events WHERE event_index = ?"
# The number of entries accepted by ?3, by bisection from ?1 to ?2, where times ascend.
_BISECTED: Final = (
    "WITH RECURSIVE part (low, high) AS (SELECT CAST(?1 AS BIGINT), CAST(?2 AS BIGINT) UNION ALL "
    "SELECT CASE WHEN e.accepted_ms <= ?3 THEN e.event_index + 1 ELSE low END, "
    "CASE WHEN e.accepted_ms <= ?3 THEN high ELSE e.event_index END "
    "FROM part JOIN events e ON e.event_index = (low + high) / 2 WHERE low < high) SELECT max(low) AS size FROM part"
)
_SETTINGS: Final = "SELECT event_index FROM events WHERE kind = 'ledger.clock_set' AND event_index > 0 ORDER BY 1"


class InstantArguments(Arguments, frozen=True):
    """``at`` is an index, or a time in ISO 8601 (UTC if it has no offset)."""

    at: int | str


class ShownInstant(Marked, frozen=True, kw_only=True):
    """The last entry at a time, the ledger's clock then (``now_ms``, and ``at`` as text), and the log's size today."""

    event_index: Index
    accepted_ms: Ms
    at: str
    now_ms: Ms
    size: int


class Instant(NamedTuple):
    """The number of entries that the log had then, and the ledger's clock (Unix ms) then."""

    size: int
    now_ms: int


def show_instant(context: QueryContext, args: InstantArguments) -> ShownInstant:
    """Return what an index or a time means. Raises Refused: as ``instant_of``."""
    size, now_ms = instant_of(context.reading, args.at)
    (last,) = context.rows(_AT, (size - 1,))
    at, size_now = clock_text(now_ms), _size(context.reading)
    return ShownInstant(event_index=size - 1, **last, at=at, now_ms=now_ms, size=size_now)


def instant_of(reading: ReadTransaction, at: int | str) -> Instant:
    """Return the instant that an index or a time means in the present views.

    Raises Refused: ``INVALID_FIELD`` if it is neither; ``NOT_FOUND`` beyond the log's end, or before its beginning.
    """
    size = _size(reading)
    target = index_or_time(at)
    if isinstance(target, int):
        if target >= size:
            message = f"the log has no entry {target}: its last entry is {size - 1}"
            raise Refused("NOT_FOUND", message, at=target, size=size)
        return Instant(target + 1, accepted_ms(reading, target))
    at_ms = to_ms(target)
    starts = [0, *(row["event_index"] for row in reading.rows(_SETTINGS)), size]
    for start, end in reversed(list(pairwise(starts))):
        if accepted_ms(reading, start) <= at_ms:
            size = reading.rows(_BISECTED, (start, end, at_ms))[0]["size"]
            present_ms = ledger_now(accepted_ms(reading, starts[-1] - 1), time.time_ns() // 1_000_000)
            return Instant(size, max(accepted_ms(reading, size - 1), min(at_ms, present_ms)))
    first = clock_text(accepted_ms(reading, 0))
    message = f"nothing was accepted by {clock_text(at_ms)}: the ledger begins at {first}"
    raise Refused("NOT_FOUND", message, at=clock_text(at_ms), first=first, size=size)


def index_or_time(at: int | str) -> int | datetime:
    """Return the index or the time that is meant; digits alone are an index. Raises Refused: as ``instant_of``."""
    if isinstance(at, str) and _INDEX.fullmatch(at):
        at = int(at)
    if isinstance(at, int) and not isinstance(at, bool) and at >= 0:
        return at
    text = str(at)
    parsed = iso_time(text) if len(text) <= as_of_max_chars else None
    if parsed is None:
        message = (
            f"{text[:as_of_max_chars]!r} is neither an entry's index nor a time: write 120, or 2026-02-12T10:00:00Z"
        )
        raise Refused("INVALID_FIELD", message, field="as_of")
    return parsed


def to_ms(instant: datetime) -> int:
    """Return the Unix milliseconds of a time, exactly."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def iso_time(text: str) -> datetime | None:
    """Return the time of a text in ISO 8601, in UTC (also without an offset); None for any other text."""
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # an offset can move the first day of the calendar out of it


def _size(reading: ReadTransaction) -> int:
    return next(
        version.position for version in reading.view_versions() if version.is_live and version.view == "catalog"
    )


def accepted_ms(reading: ReadTransaction, index: int) -> int:
    """Return when an entry was accepted (Unix ms), by the ledger's own clock."""
    return int(reading.rows(_AT, (index,))[0]["accepted_ms"])
