"""Reads events from entries. A module of its own, because queries on views do not need all the event types."""

from __future__ import annotations

from deedbook.ledger.events.body import Event, make_event
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.envelope import Entry, decode_entry


def read_event(index: int, data: bytes | Entry) -> Event:
    """Return the event in an entry, or in its bytes. If its family has no usable package, its data is ``UnreadData``.

    Raises Refused: the bytes are not an entry of a known kind.
    """
    entry = data if isinstance(data, Entry) else decode_entry(data)
    stored = read_stored(entry.body, may_lack_family=True)
    return make_event(
        stored.body,
        stored.data,
        index=index,
        event_id=stored.id,
        key=entry.key,
        accepted_ms=entry.accepted_ms,
        remnant=stored.remnant,
    )
