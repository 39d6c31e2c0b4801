"""An event as a CloudEvent (CloudEvents 1.0.2), for systems that use the format.

A CloudEvent is derived, unsigned and not stored. To prove the event, a receiver requests its receipt by the ``id``.

| attribute | value |
|---|---|
| `id` | the event's id, the same in every delivery |
| `source` | `urn:deedbook:ledger:` and the ledger's id |
| `type` | `deedbook.` and the kind |
| `subject` | the stream |
| `time`, `recordedtime` | the author's claimed time; the ledger's time (an extension of CloudEvents) |
| `sequence` | the index in the log with 19 digits, so that texts sort as numbers (an extension of CloudEvents) |
| `data` | the signed body without salt and defaults; with a salt, it matches the published schema of the kind |
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from deedbook.consumers.sdk.events import describe
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.clock import clock_text

_OUTSIDE_BODY: Final = frozenset({"index", "id", "accepted_ms", "key"})
# Characters that a header's value may hold unescaped (HTTP binding 3.1.3.2): printable ASCII but space, quote, percent.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def cloud_event(event: Event) -> dict[str, Any]:
    """Return an event in the JSON format of CloudEvents, as plain values."""
    body = {name: value for name, value in describe(event).items() if name not in _OUTSIDE_BODY and value is not None}
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": f"urn:deedbook:ledger:{event.ledger}",
        "type": f"deedbook.{event.kind}",
        "subject": event.stream,
        "time": event.at,
        "recordedtime": clock_text(event.accepted_ms),
        "sequence": f"{event.index:019}",
        "datacontenttype": "application/json",
        "data": body,
    }


def binary(event: Event) -> tuple[dict[str, str], bytes]:
    """Return an event in the binary mode of CloudEvents over HTTP: the headers of a request, and its body."""
    attributes = cloud_event(event)
    body = msgspec.json.encode(attributes.pop("data"))
    headers = {"content-type": attributes.pop("datacontenttype")}
    return headers | {f"ce-{name}": quote(value, safe=_PLAIN) for name, value in attributes.items()}, body
