"""The kinds of a review: a gate asks a human for a decision outside a handoff."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.fields import EventData, Label, Line, OptionalId, OptionalText, Ref

Verdict: TypeAlias = Literal["approved", "rejected"]


class ReviewRequested(EventData, frozen=True):
    """Asks a human for a decision before anybody acts. ``rule`` caused it, and ``validations`` are the reports used."""

    question: Line
    rule: Label
    reasons: Annotated[list[Line], msgspec.Meta(max_length=20)] = []
    task: OptionalText = ""
    reasoning_ref: Ref | None = None
    snapshot_id: OptionalId = ""
    validations: Annotated[list[Ref], msgspec.Meta(max_length=20)] = []


class ReviewAnswered(EventData, frozen=True):
    """A human's answer. It closes the request."""

    verdict: Verdict
    comment: OptionalText = ""
