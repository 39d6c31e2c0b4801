"""The intent of an upload, and which blobs an event cannot be read without.

``blob.stored`` is signed like any event, and no entry of the log: it is kept beside its blob. What no event refers to
is dropped after a day, and from the log nothing can be taken away: uploads in it would let anybody fill it for good.
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
    """The author stores the blob ``ref`` of ``size`` bytes; its stream is ``blob/`` + the digest in ``ref``."""

    ref: BlobRef
    size: Annotated[int, msgspec.Meta(ge=0, le=blob_size_max_bytes)]


_WITH_BLOBS: Final = frozenset((HandoffCreated, HandoffAmended, ReasoningValidated, ReportGenerated, SearchComplete))


def blobs_of(data: EventData) -> list[str]:
    """Return the refs in ``data`` that can be nothing but blobs: without them the event is half."""
    if type(data) not in _WITH_BLOBS:
        return []  # asked of every event that a gate admits
    match data:
        case HandoffCreated() | HandoffAmended():
            refs = [data.template]
        case ReasoningValidated():
            refs = [data.whole]
        case ReportGenerated():
            refs = [long.ref for long in data.long_texts]
        case SearchComplete():
            refs = [data.payload.tree_ref]
        # An import's original is no such ref: what holds a secret, or is larger than a blob, is only named.
        case _:  # every other kind: its refs may name events, graphs or versions, too
            refs = []
    return [ref for ref in refs if ref is not None]
