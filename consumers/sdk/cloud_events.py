"""An event as a CloudEvent (CloudEvents 1.0.2), for systems that speak it: one mapping, made at the edge.

Nothing of it is signed and nothing is kept of it: whoever must believe an event takes its receipt, by the ``id``.

| attribute | of the event |
|---|---|
| `id` | its id, the same however often it is delivered |
| `source` | `urn:deedbook:ledger:` and the ledger's id |
| `type` | `deedbook.` and the kind |
| `subject` | the stream |
| `time`, `recordedtime` | the author's claim; when the ledger accepted it (an extension of theirs) |
| `sequence` | the index in the log, of 19 digits, so that texts sort as numbers (an extension of theirs) |
| `dataschema`, `data` | the published schema of the kind, and what it describes: the signed body, without defaults |
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.clock import clock_text

_OUTSIDE_BODY: Final = frozenset({"index", "id", "accepted_ms", "key"})
# Characters that a header's value may hold unescaped (HTTP binding 3.1.3.2): printable ASCII but space, quote, percent.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def cloud_event(event: Event) -> dict[str, Any]:
    """Return an event in the JSON format of CloudEvents, as plain values."""
    body = {
        name: value
        for name, value in msgspec.to_builtins(event, str_keys=True).items()
        if name not in _OUTSIDE_BODY and value is not None
    }
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
        "dataschema": f"urn:deedbook:schema:{event.kind}",
        "data": body,
    }


def binary(event: Event) -> tuple[dict[str, str], bytes]:
    """Return an event in the binary mode of CloudEvents over HTTP: the headers of a request, and its body."""
    attributes = cloud_event(event)
    body = msgspec.json.encode(attributes.pop("data"))
    headers = {"content-type": attributes.pop("datacontenttype")}
    return headers | {f"ce-{name}": quote(value, safe=_PLAIN) for name, value in attributes.items()}, body
