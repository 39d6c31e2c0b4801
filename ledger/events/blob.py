"""The intent of an upload, and the blobs that an event needs.

``blob.stored`` is signed like any event but is not an entry of the log: it is stored beside its blob. Unreferenced
blobs are deleted after a day, but nothing can be deleted from the log: uploads in it would let anybody fill it forever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from deedbook.ledger.events.declared import DeclaredData, texts_in
from deedbook.ledger.events.fields import BlobId, EventData
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCompleted, HandoffCreated, ReceiverNotes
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import DeadEndLogged, FindingLogged, ReportGenerated, ToolUsed, UnknownLogged
from deedbook.ledger.limits import blob_size_max_bytes
from deedbook.ledger.seal.reference import SealedReference, read_reference

BLOB_STORED: Final = "blob.stored"


class BlobStored(EventData, frozen=True):
    """The author stores the blob ``ref`` of ``size`` bytes. The stream is ``blob/`` + the digest in ``ref``."""

    ref: BlobId
    size: Annotated[int, msgspec.Meta(ge=0, le=blob_size_max_bytes)]


ARTIFACT_FIELDS: Final[dict[type[EventData], tuple[str, ...]]] = {
    HandoffCreated: ("notes", "artifacts"),
    HandoffAmended: ("notes", "artifacts"),
    HandoffCompleted: ("artifacts",),
    ReportGenerated: ("artifacts_created",),
    ToolUsed: ("purpose",),
}
"""The path of the texts that may name a kept artifact, which is a blob: they end in ``kept: REF``.

Every other ref may also name an event, a graph or a version.
"""

_OF_CONTENT: Final = (
    ("task",),
    ("tasks",),
    ("criteria",),
    ("context",),
    # Not ``artifacts``: they name blobs, which the ledger must see. Seal the content of the blob itself.
    *(("notes", name) for name in ReceiverNotes.__struct_fields__ if name != "artifacts"),
)
SEALABLE_FIELDS: Final[dict[type[EventData], tuple[tuple[str, ...], ...]]] = {
    HandoffCreated: _OF_CONTENT,
    HandoffAmended: _OF_CONTENT,
    FindingLogged: (("finding",), ("evidence",)),
    UnknownLogged: (("unknown",),),
    DeadEndLogged: (("approach",), ("why_failed",)),
}
"""The paths of the texts that may be sealed references (``ledger.seal.reference``), which need their sealed blobs."""

_KEPT: Final = re.compile(r"kept: ((?:blake3|sha256):[0-9a-f]{64})\)?\Z")


def blobs_of(data: EventData, raw: bytes | None = None) -> list[str]:
    """Return the refs in ``data`` that must be blobs: without them the event is incomplete.

    ``raw`` are the bytes of the body: if they hold no ref, the fields are not read.
    """
    # An escape such as \u0062 may stand for a letter of a ref.
    if raw is not None and not (b"blake3:" in raw or b"sha256:" in raw or b"\\u" in raw):
        return []
    kind = type(data)
    refs: list[str] = []
    if (path := kind.blob_path) and not (isinstance(data, RecordImported) and data.only_digest):
        refs += _texts_at(data, path)
    if (texts := ARTIFACT_FIELDS.get(kind)) is not None:
        refs += [match[1] for text in _texts_at(data, texts) if (match := _KEPT.search(text))]
    return refs + [reference.ref for reference in sealed_in(data)]


def sealed_in(data: EventData) -> list[SealedReference]:
    """Return the sealed references among the texts of an event, the first of each blob."""
    if isinstance(data, DeclaredData):  # only the log knows its schema, so every text may be a reference
        texts = [*texts_in(data.fields)]
    else:
        texts = [text for path in SEALABLE_FIELDS.get(type(data), ()) for text in _texts_at(data, path)]
    references = [read_reference(text) for text in texts]
    return list({reference.ref: reference for reference in references[::-1] if reference is not None}.values())[::-1]


def _texts_at(data: EventData, path: Iterable[str]) -> list[str]:
    """Return the texts of the field at a path, which may lead through lists."""
    values: list[Any] = [data]
    for name in path:
        values = [getattr(value, name) for value in values]
        values = [item for value in values for item in (value if isinstance(value, list) else [value])]
        values = [value for value in values if value is not None]
    return values
