"""The field types of events. Each refuses values that a ledger should not store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from deedbook.ledger.errors import refuse_name
from deedbook.ledger.format import forms
from deedbook.ledger.limits import json_integer_max

Ref = Annotated[str, msgspec.Meta(pattern=forms.REF_PATTERN, description="A content reference: algorithm and digest.")]
EventId = Annotated[str, msgspec.Meta(pattern=forms.EVENT_ID_PATTERN, description="The id of an event.")]
BlobId = Annotated[
    str, msgspec.Meta(pattern=forms.BLOB_ID_PATTERN, description="A blob's id: the BLAKE3 of its bytes.")
]
Version = Annotated[str, msgspec.Meta(pattern=forms.VERSION_PATTERN, description="A SHA-256 digest.")]
Name = forms.Name
Time = Annotated[str, msgspec.Meta(pattern=forms.TIME_PATTERN, description="RFC 3339, UTC, ending in Z.")]
PublicKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="An Ed25519 public key in hex.")]
Signature = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}\Z", description="An Ed25519 signature in hex.")]
TreeHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="The SHA-256 root of a tree, in hex.")]
NatsKey = Annotated[str, msgspec.Meta(pattern=r"^U[A-Z2-7]{55}\Z", description="A NATS user nkey.")]

Label = Annotated[
    str,
    msgspec.Meta(
        pattern=forms.LABEL_PATTERN, min_length=1, max_length=200, description="A short text of visible characters."
    ),
]
Title = Annotated[
    str, msgspec.Meta(pattern=forms.LINE_PATTERN, min_length=1, max_length=200, description="One short line.")
]
Line = Annotated[str, msgspec.Meta(pattern=forms.LINE_PATTERN, min_length=1, max_length=2000, description="One line.")]
Passage = Annotated[str, msgspec.Meta(min_length=1, max_length=2000, description="One or more short lines of text.")]
OptionalId = Annotated[str, msgspec.Meta(pattern=forms.ID_PATTERN, max_length=400, description="An id, or empty.")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=40_000, description="Text that fits into an entry.")]
Statement = Annotated[
    str,
    msgspec.Meta(
        pattern=forms.STATEMENT_PATTERN, min_length=1, max_length=40_000, description="Text that is not blank."
    ),
]
OptionalText = Annotated[str, msgspec.Meta(max_length=40_000, description="Text, or empty.")]

Count = Annotated[int, msgspec.Meta(ge=0, le=json_integer_max)]
Position = Annotated[int, msgspec.Meta(ge=0, le=100_000, description="Zero-based position in a list.")]
StepNumber = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="The number of a reasoning step.")]
Unit = Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="A value between 0 and 1.")]


class EventData(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of every event's ``data``: immutable, complete, without unknown fields.

    ``is_free``: some field may have any shape, so the depth must be checked. Other data is no deeper than its type.
    ``blob_path`` is the path of the field that names a blob, if an event is incomplete without it. ``kept_texts`` are
    fields that stay when a body is erased: texts that programs write and that decide how the others are read.
    ``gc=False`` keeps it out of the garbage collector: an object decoded from bytes is never in a reference cycle.
    """

    is_free: ClassVar[bool] = False
    blob_path: ClassVar[tuple[str, ...]] = ()
    kept_texts: ClassVar[frozenset[str]] = frozenset()

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


class UnreadData(EventData, frozen=True):
    """Stands for the data of an event whose family has no usable package here. Only audits continue with it."""
