"""Events as they are read from entries: apart, because their types are many, and who asks views reads none."""

from __future__ import annotations

from deedbook.ledger.events.body import Event, decode_body, make_event
from deedbook.ledger.format.envelope import Entry, decode_entry, event_id, pae


def read_event(index: int, data: bytes | Entry) -> Event:
    """Return the event in an entry, or in its bytes.

    Raises Refused: the bytes are no entry of a kind this software knows.
    """
    entry = data if isinstance(data, Entry) else decode_entry(data)
    body, content = decode_body(entry.body)
    return make_event(
        body, content, index=index, event_id=event_id(pae(entry.body)), key=entry.key, accepted_ms=entry.accepted_ms
    )
