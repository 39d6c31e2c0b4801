"""The field types that events are made of: each refuses what no ledger should keep."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from deedbook.ledger.format import forms
from deedbook.ledger.limits import json_integer_max

Ref = Annotated[str, msgspec.Meta(pattern=forms.REF_PATTERN, description="A content reference: algorithm and digest.")]
Name = forms.Name
Time = Annotated[str, msgspec.Meta(pattern=forms.TIME_PATTERN, description="RFC 3339, UTC, ending in Z.")]
PublicKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="An Ed25519 public key in hex.")]
Signature = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}\Z", description="An Ed25519 signature in hex.")]
TreeHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="The SHA-256 root of a tree, in hex.")]
NatsKey = Annotated[str, msgspec.Meta(pattern=r"^U[A-Z2-7]{55}\Z", description="A NATS user nkey.")]

Label = Annotated[
    str,
    msgspec.Meta(
        pattern=forms.LABEL_PATTERN, min_length=1, max_length=200, description="A few words that are all seen."
    ),
]
Title = Annotated[
    str, msgspec.Meta(pattern=forms.LINE_PATTERN, min_length=1, max_length=200, description="One short line.")
]
Line = Annotated[str, msgspec.Meta(pattern=forms.LINE_PATTERN, min_length=1, max_length=2000, description="One line.")]
Passage = Annotated[str, msgspec.Meta(min_length=1, max_length=2000, description="A sentence or two, or some lines.")]
OptionalId = Annotated[str, msgspec.Meta(pattern=forms.ID_PATTERN, max_length=400, description="An id; empty: none.")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=40_000, description="Text of any length an entry holds.")]
Statement = Annotated[
    str,
    msgspec.Meta(
        pattern=forms.STATEMENT_PATTERN, min_length=1, max_length=40_000, description="Text, and no blank one."
    ),
]
OptionalText = Annotated[str, msgspec.Meta(max_length=40_000, description="Text; empty when there is none.")]

Count = Annotated[int, msgspec.Meta(ge=0, le=json_integer_max)]
Position = Annotated[int, msgspec.Meta(ge=0, le=100_000, description="Zero-based position in a list.")]
StepNumber = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="The number of a reasoning step.")]
Unit = Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="A value between 0 and 1.")]


class EventData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of every event's ``data``: immutable, complete, without unknown fields.

    Where some field ``is_free``, of any shape, its depth is counted; all other data is no deeper than its type.
    """

    is_free: ClassVar[bool] = False
