"""The kinds of a handoff: work that one agent hands to another. From = the author of ``handoff.created``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.fields import (
    Count,
    EventData,
    Label,
    Line,
    Name,
    OptionalText,
    Position,
    Ref,
    Text,
    Title,
)
from deedbook.ledger.format.forms import DAY_PATTERN, FILE_ID_PATTERN

HandoffId = Annotated[
    str,
    msgspec.Meta(
        pattern=FILE_ID_PATTERN, max_length=200, description="The id of a handoff: the name of its file without .md."
    ),
]
UnlockAt: TypeAlias = Literal["completed", "verified"]
reasoning_refs_max: Final = 8
ReasoningRefs = Annotated[
    list[Ref],
    msgspec.Meta(max_length=reasoning_refs_max, description="The versions of reasonings that stand behind it."),
]
Day = Annotated[str, msgspec.Meta(pattern=DAY_PATTERN + r"\Z", description="A day as YYYY-MM-DD.")]


class ReceiverNotes(EventData, frozen=True):
    """What whoever goes on will need and only the sender knows: how the work is tested, what it touches, what bites.

    ``tested_by`` are commands, ``touches`` the files and callers that a change reaches, ``traps`` what is easily taken
    for something else, ``tried`` what was done already and what came of it.
    """

    tested_by: list[Line] = []
    touches: list[Line] = []
    traps: list[Line] = []
    tried: list[Line] = []


class HandoffContent(EventData, frozen=True):
    """What is handed over: everything in it is what a reviewer approves. An imported file may name nobody in ``to``.

    ``template`` is the blob with the bytes of its markdown file, as they were when this content was set.
    """

    title: Title
    to: Name | None = None
    reviewer: Name | None = None
    created: Day | None = None
    proposal: Line | None = None
    depends_on: list[HandoffId] = []
    unlock_at: UnlockAt = "completed"
    task: OptionalText = ""
    tasks: list[Line] = []
    criteria: list[Line] = []
    context: OptionalText = ""
    notes: ReceiverNotes = ReceiverNotes()
    answers: HandoffId | None = None
    reasoning_refs: ReasoningRefs = []
    template: Ref | None = None


class HandoffCreated(HandoffContent, frozen=True):
    """Hands work to another agent."""

    to: Name


class HandoffAmended(HandoffContent, frozen=True):
    """The sender sets the whole content anew: it needs a new approval, and every check mark is taken back.

    The reviewer that it names stays; only he gives the review away: ``hands_over``, and another ``reviewer`` in the
    very content that there is.
    """

    to: Name
    reason: OptionalText = ""
    hands_over: bool = False


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
    evidence: OptionalText = ""


class HandoffCriterionChecked(EventData, frozen=True):
    """The receiver ticks an acceptance criterion, or takes the tick back."""

    position: Position
    checked: bool = True
    evidence: OptionalText = ""


class HandoffWaiverAsked(EventData, frozen=True):
    """The receiver asks the reviewer to do without an acceptance criterion; until he does, it stays open."""

    position: Position
    reason: Text


class HandoffCriterionWaived(EventData, frozen=True):
    """The reviewer does without an acceptance criterion, or (not ``granted``) not, though he was asked to."""

    position: Position
    reason: Text
    granted: bool = True


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
    reasoning_refs: ReasoningRefs = []


class HandoffChangesRequested(EventData, frozen=True):
    """The reviewer wants more before it is verified. ``completion`` is the event that completed what he looked at."""

    completion: Ref
    reasons: Annotated[list[Text], msgspec.Meta(min_length=1)]


class HandoffVerified(EventData, frozen=True):
    """The reviewer has checked the result: of this version, and as the event ``completion`` handed it in.

    That is ``handoff.completed``, or the import of a file, in whose place the reviewer says that it is done.
    """

    version: Ref
    completion: Ref
    comment: OptionalText = ""


class HandoffCancelled(EventData, frozen=True):
    """The sender or reviewer calls the work off."""

    reason: Text


class HandoffSuperseded(EventData, frozen=True):
    """The sender puts another handoff in the place of this one."""

    by: HandoffId
    reason: OptionalText = ""


class HandoffReady(EventData, frozen=True):
    """The router tells that the receiver can claim this approved version now. Nothing depends on it."""

    to: Name
    version: Ref


class HandoffClaims(EventData, frozen=True):
    """What an imported file says of its own state: shown as claimed, never believed. Positions count from 0."""

    status: Line | None = None
    tasks: list[Position] = []
    criteria: list[Position] = []
    done: Label | None = None


def content_of(data: HandoffContent) -> HandoffContent:
    """Return the content alone, without what else its event says."""
    return HandoffContent(**{name: getattr(data, name) for name in HandoffContent.__struct_fields__})
