"""The intent of an upload, and the blobs that an event needs.

``blob.stored`` is signed like any event but is not an entry of the log: it is stored beside its blob. Unreferenced
blobs are deleted after a day, but nothing can be deleted from the log: uploads in it would let anybody fill it forever.
"""

from __future__ import annotations

from typing import Annotated, Final

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


_WITH_BLOBS: Final = frozenset((HandoffCreated, HandoffAmended, ReasoningValidated, ReportGenerated, SearchComplete))


def blobs_of(data: EventData) -> list[str]:
    """Return the refs in ``data`` that must be blobs: without them the event is incomplete."""
    if type(data) not in _WITH_BLOBS:
        return []  # fast: a gate calls this for every event
    match data:
        case HandoffCreated() | HandoffAmended():
            refs = [data.template]
        case ReasoningValidated():
            refs = [data.whole]
        case ReportGenerated():
            refs = [long.ref for long in data.long_texts]
        case SearchComplete():
            refs = [data.payload.tree_ref]
        # An import's original is not required: an original with a secret, or larger than a blob, is only named.
        case _:  # every other kind: its refs may also name events, graphs or versions
            refs = []
    return [ref for ref in refs if ref is not None]
