"""The intent of an upload, and the blobs that an event needs.

``blob.stored`` is signed like any event but is not an entry of the log: it is stored beside its blob. Unreferenced
blobs are deleted after a day, but nothing can be deleted from the log: uploads in it would let anybody fill it forever.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCreated
from deedbook.ledger.events.reasoning import ReasoningValidated
from deedbook.ledger.events.session import ReportGenerated
from deedbook.ledger.events.tot import SearchComplete
from deedbook.ledger.limits import blob_size_max_bytes

BLOB_STORED: Final = "blob.stored"

BlobRef = Annotated[
    str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z", description="A blob's id: the BLAKE3 of its bytes.")
]


class BlobStored(EventData, frozen=True):
    """The author stores the blob ``ref`` of ``size`` bytes. The stream is ``blob/`` + the digest in ``ref``."""

    ref: BlobRef
    size: Annotated[int, msgspec.Meta(ge=0, le=blob_size_max_bytes)]


BLOB_FIELDS: Final[dict[type[EventData], tuple[str, ...]]] = {
    HandoffCreated: ("template",),
    HandoffAmended: ("template",),
    ReasoningValidated: ("whole",),
    ReportGenerated: ("long_texts", "ref"),
    SearchComplete: ("payload", "tree_ref"),
}
"""The path of the field that names a blob, for each type of data that is incomplete without it.

Every other ref may also name an event, a graph or a version. An import's original is not required: an original with a
secret, or larger than a blob, is only named.
"""


def blobs_of(data: EventData) -> list[str]:
    """Return the refs in ``data`` that must be blobs: without them the event is incomplete."""
    if (path := BLOB_FIELDS.get(type(data))) is None:  # fast: a gate calls this for every event
        return []
    values: list[Any] = [data]
    for name in path:
        values = [getattr(value, name) for value in values]
        values = [item for value in values for item in (value if isinstance(value, list) else [value])]
        values = [value for value in values if value is not None]
    return values
