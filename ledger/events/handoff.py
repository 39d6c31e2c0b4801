"""The kinds of a handoff: work that one agent hands to another. Its sender is the author of ``handoff.created``."""

from __future__ import annotations

from typing import Annotated, Final

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
from deedbook.ledger.format.forms import DAY_PATTERN, FILE_ID_PATTERN, UnlockAt

HandoffId = Annotated[
    str,
    msgspec.Meta(
        pattern=FILE_ID_PATTERN, max_length=200, description="The id of a handoff: the name of its file without .md."
    ),
]
REMARKS: Final = ("reason", "comment", "summary", "text")
"""The fields in which the signer of an event writes a remark. The log of a handoff and the search show them."""
reasoning_refs_max: Final = 8
ReasoningRefs = Annotated[
    list[Ref],
    msgspec.Meta(max_length=reasoning_refs_max, description="Versions of reasoning graphs that support it."),
]
Result = Annotated[
    Ref,
    msgspec.Meta(
        description="The digest of the present version and of the event that handed the result in: the completion, "
        "or the import of a file."
    ),
]
Day = Annotated[str, msgspec.Meta(pattern=DAY_PATTERN + r"\Z", description="A day as YYYY-MM-DD.")]


class ReceiverNotes(EventData, frozen=True):
    """Notes of the sender for the receiver, who cannot know them otherwise.

    ``done`` is what is done already, and where it lies. ``found`` are facts with their evidence, ``reproduce`` says how
    to see the problem, ``baseline`` which tests fail already and why, ``tested_by`` which commands test the work and
    which tests pin the present behaviour, ``touches`` names the files and callers that a change affects, ``traps`` are
    things that are easily mistaken. ``tried`` are earlier attempts and their results, ``argued`` are claims and
    remedies that nobody tried, ``not_known`` are open questions, ``not_part`` is outside of the work, ``artifacts`` are
    drafts and outputs.
    """

    done: list[Line] = []
    found: list[Line] = []
    reproduce: list[Line] = []
    baseline: list[Line] = []
    tested_by: list[Line] = []
    touches: list[Line] = []
    traps: list[Line] = []
    tried: list[Line] = []
    argued: list[Line] = []
    not_known: list[Line] = []
    not_part: list[Line] = []
    artifacts: list[Line] = []


class HandoffContent(EventData, frozen=True):
    """The content of a handoff. A reviewer approves all of it. ``to`` may be absent in an imported file only.

    ``template`` is the blob with the bytes of its Markdown file at the time when this content was set.
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

    blob_path = ("template",)

    to: Name


class HandoffAmended(HandoffContent, frozen=True):
    """The sender replaces the whole content. It needs a new approval, and all check marks are removed.

    The sender cannot replace the reviewer. Only the reviewer hands the review over, with ``hands_over``, another
    ``reviewer``, and otherwise unchanged content.
    """

    blob_path = ("template",)

    to: Name
    reason: OptionalText = ""
    hands_over: bool = False


class HandoffApproved(EventData, frozen=True):
    """The reviewer approves the handoff at exactly this ``version``."""

    version: Ref
    comment: OptionalText = ""


class HandoffRejected(EventData, frozen=True):
    """The reviewer rejects the handoff for good."""

    reason: Text


class HandoffClaimed(EventData, frozen=True):
    """The receiver starts the work. With a lease, the claim ends after ``lease_seconds``."""

    lease_seconds: Count | None = None


class HandoffTaskChecked(EventData, frozen=True):
    """The receiver checks or unchecks a task."""

    position: Position
    checked: bool = True
    evidence: OptionalText = ""


class HandoffCriterionChecked(EventData, frozen=True):
    """The receiver checks or unchecks an acceptance criterion."""

    position: Position
    checked: bool = True
    evidence: OptionalText = ""


class HandoffWaiverAsked(EventData, frozen=True):
    """The receiver asks the reviewer to waive an acceptance criterion. Until the reviewer does, it stays open."""

    position: Position
    reason: Text


class HandoffCriterionWaived(EventData, frozen=True):
    """The reviewer waives an acceptance criterion, or (not ``granted``) declines a request to waive it."""

    position: Position
    reason: Text
    granted: bool = True


class HandoffQuestionAsked(EventData, frozen=True):
    """Any agent asks another about the handoff. ``place`` is a file it is about, as PATH or PATH:LINE.

    Until a question to the receiver is settled, the handoff cannot be completed.
    """

    to: Name
    question: Text
    place: Line | None = None


class HandoffQuestionAnswered(EventData, frozen=True):
    """The agent that was asked answers. The question stays open until its author settles it."""

    position: Position
    answer: Text


class HandoffQuestionSettled(EventData, frozen=True):
    """The author of a question accepts its answer or withdraws it, or the reviewer of the handoff settles it."""

    position: Position
    comment: OptionalText = ""


class HandoffReleased(EventData, frozen=True):
    """The receiver releases the claim, so that the work can be claimed again."""

    reason: OptionalText = ""


class HandoffLogged(EventData, frozen=True):
    """A line in the handoff's log."""

    text: Text


class HandoffBlocked(EventData, frozen=True):
    """The receiver cannot continue."""

    reason: Text


class HandoffUnblocked(EventData, frozen=True):
    """The handoff is no longer blocked."""

    comment: OptionalText = ""


class HandoffCompleted(EventData, frozen=True):
    """The receiver has completed the work. Every acceptance criterion is checked or waived."""

    summary: OptionalText = ""
    artifacts: list[Line] = []
    reasoning_refs: ReasoningRefs = []


class HandoffChangesRequested(EventData, frozen=True):
    """The reviewer requests changes before verifying exactly this ``result``.

    Criteria that were checked before are open again.
    """

    result: Result
    reasons: Annotated[list[Text], msgspec.Meta(min_length=1)]


class HandoffVerified(EventData, frozen=True):
    """The reviewer has verified exactly this ``result``."""

    result: Result
    comment: OptionalText = ""


class HandoffCancelled(EventData, frozen=True):
    """The sender or reviewer cancels the handoff."""

    reason: Text


class HandoffSuperseded(EventData, frozen=True):
    """The sender replaces this handoff with another."""

    by: HandoffId
    reason: OptionalText = ""


class HandoffReady(EventData, frozen=True):
    """The router announces that the receiver can claim this approved version now. No rule depends on it."""

    to: Name
    version: Ref


class HandoffClaims(EventData, frozen=True):
    """The state that an imported file claims: shown as claimed, never trusted. Positions count from 0."""

    status: Line | None = None
    tasks: list[Position] = []
    criteria: list[Position] = []
    done: Label | None = None


def content_of(data: HandoffContent) -> HandoffContent:
    """Return the content without the other fields of its event."""
    return HandoffContent(**{name: getattr(data, name) for name in HandoffContent.__struct_fields__})
