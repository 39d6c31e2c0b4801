"""The life of a handoff (seed 002, Handoff Protocol v2). From = the author of ``handoff.created``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ledger.events.fields import DAY_PATTERN, Count, EventData, Label, Line, Name, OptionalText, Position, Ref, Text

HandoffId = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^/\\.\s\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*\Z",
        max_length=200,
        description="The id of a handoff: the name of its file without .md.",
    ),
]
Day = Annotated[str, msgspec.Meta(pattern=DAY_PATTERN + r"\Z", description="A day as YYYY-MM-DD.")]


class HandoffCreated(EventData, frozen=True):
    """Hands work to another agent. Everything in it is what a reviewer approves."""

    title: Label
    to: Name
    reviewer: Name | None = None
    created: Day | None = None
    proposal: Line | None = None
    depends_on: list[HandoffId] = []
    unlock_at: Literal["completed", "verified"] = "completed"
    task: OptionalText = ""
    tasks: list[Line] = []
    criteria: list[Line] = []
    context: OptionalText = ""
    answers: HandoffId | None = None
    reasoning_ref: Ref | None = None
    skeleton: Ref | None = None


class HandoffApproved(EventData, frozen=True):
    """The reviewer lets exactly this version be worked on."""

    version: Ref
    comment: OptionalText = ""


class HandoffRejected(EventData, frozen=True):
    """The reviewer does not want this done."""

    reason: Text


class HandoffClaimed(EventData, frozen=True):
    """The receiver starts; with a lease, others know when it lapses."""

    lease_seconds: Count | None = None


class HandoffTaskChecked(EventData, frozen=True):
    """The receiver ticks a task, or takes the tick back."""

    position: Position
    checked: bool = True


class HandoffCriterionChecked(EventData, frozen=True):
    """The receiver ticks an acceptance criterion, or takes the tick back."""

    position: Position
    checked: bool = True
    evidence: OptionalText = ""


class HandoffCriterionWaived(EventData, frozen=True):
    """The reviewer does without an acceptance criterion."""

    position: Position
    reason: Text


class HandoffReleased(EventData, frozen=True):
    """The receiver gives the work back."""

    reason: OptionalText = ""


class HandoffLogged(EventData, frozen=True):
    """A line in the handoff's log."""

    text: Text


class HandoffBlocked(EventData, frozen=True):
    """The receiver cannot go on."""

    reason: Text


class HandoffUnblocked(EventData, frozen=True):
    """What blocked the handoff is gone."""

    comment: OptionalText = ""


class HandoffCompleted(EventData, frozen=True):
    """The receiver is done; every acceptance criterion is checked or waived."""

    summary: OptionalText = ""
    artifacts: list[Line] = []
    reasoning_ref: Ref | None = None


class HandoffChangesRequested(EventData, frozen=True):
    """The reviewer wants more before it is verified."""

    reasons: Annotated[list[Text], msgspec.Meta(min_length=1)]


class HandoffVerified(EventData, frozen=True):
    """The reviewer has checked the result."""

    comment: OptionalText = ""


class HandoffCancelled(EventData, frozen=True):
    """The sender or reviewer calls the work off."""

    reason: Text
