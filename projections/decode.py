"""From the bytes of an entry to what folds see, once for all views."""

from __future__ import annotations

import hashlib

from ledger.envelope import decode_entry, event_id, pae
from ledger.errors import Corrupted, Refused
from ledger.events.body import decode_body, make_event
from projections.projection import Logged


def read_logged(index: int, data: bytes) -> Logged:
    """Return the event of an entry, with the SHA-256 of its body and the entry's size.

    Raises:
        Corrupted: the log holds bytes that could never have been admitted; ``index`` says where.
    """
    try:
        entry = decode_entry(data)
        body, content = decode_body(entry.body)
    except Refused as error:
        raise Corrupted("CORRUPTED", f"entry {index} cannot be read: {error.message}", index=index) from error
    event = make_event(
        body, content, index=index, event_id=event_id(pae(entry.body)), key=entry.key, accepted_ms=entry.accepted_ms
    )
    return Logged(event, "sha256:" + hashlib.sha256(entry.body).hexdigest(), len(data))
