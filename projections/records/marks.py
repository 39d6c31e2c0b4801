"""The mark of an imported record, and the time at which it happened, for every view with such records. Pure.

The claimed time counts if it is in the strict form and not later than the ledger's clock when the record was accepted.
A record without one is undated: older than all others.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.format.forms import TIME_PATTERN
from deedbook.projections.answers.answer import UNDATED_MS, Index, Marked, Untrusted

UNKNOWN: Final = "unknown"
"""The author of another tool's record that names none."""

AGENT: Final = "CASE WHEN {0}.imported IS NULL THEN {0}.author ELSE {0}.ai_id END"
"""The agent that worked, as SQL for a row with these columns: the author, or the agent that an imported record claims.
"""
_TIME: Final = re.compile(TIME_PATTERN)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Imported(Marked, frozen=True, kw_only=True):
    """The origin of an imported record, the agent that signed for it, and the time that it claims."""

    source: Untrusted
    importer: str
    claimed_at: Untrusted | None
    event_index: Index
    format: str


def imported_of(event: Event) -> Imported | None:
    """Return the mark of an imported record; None for an event of this ledger's own agents."""
    data = event.data
    if not isinstance(data, RecordImported):
        return None
    return Imported(
        source=data.source,
        importer=event.author,
        claimed_at=data.claimed_at,
        event_index=event.index,
        format=data.format,
    )


def claimed_author(event: Event) -> str:
    """Return the claimed author of an imported record; never the importer, who only signs for it."""
    return event.data.claimed_author or UNKNOWN if isinstance(event.data, RecordImported) else event.author


def claimed_kind(event: Event) -> str:
    """Return the mapped kind of an imported record; for an unmapped one, and for any other event, its kind."""
    return event.data.mapped_kind or event.kind if isinstance(event.data, RecordImported) else event.kind


def happened_ms(event: Event) -> int:
    """Return when an event happened (Unix ms): for an imported record its claimed time, ``UNDATED_MS`` without one."""
    data = event.data
    if not isinstance(data, RecordImported):
        return event.accepted_ms
    if data.claimed_at is None or _TIME.fullmatch(data.claimed_at) is None:
        return UNDATED_MS
    try:
        claimed_ms = (datetime.fromisoformat(data.claimed_at) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:  # no such day in the calendar
        return UNDATED_MS
    return min(max(claimed_ms, UNDATED_MS), event.accepted_ms)


def encoded(mark: Imported | None) -> str | None:
    """Return a mark as stored in a row."""
    return None if mark is None else msgspec.json.encode(mark, order="deterministic").decode()


def decoded(text: str | None) -> Imported | None:
    """Return a mark from a row."""
    return None if text is None else read_json(text, Imported)
