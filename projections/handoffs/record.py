"""The state of a handoff as its view folds it: the gate's own state, with the content and the main events.

All decisions about a handoff are computed from this record, in ``facts``, and never from a row.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from deedbook.ledger.events.handoff import HandoffContent
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.projections.views.projection import States


class LatestEvent(msgspec.Struct, frozen=True, array_like=True):
    """The last event of a kind: its index, its author and its time (Unix ms)."""

    index: int
    author: str
    at_ms: int


class CriterionRemark(msgspec.Struct, frozen=True, array_like=True):
    """The last statement about a criterion: the evidence that it is met, or the reason for a waiver or its refusal."""

    evidence: str = ""
    waiver_reason: str = ""


class QuestionText(msgspec.Struct, frozen=True, array_like=True):
    """The texts of a question about a handoff, with the entries of the question and of its last answer."""

    question: str
    place: str | None
    index: int
    answer: str = ""
    answered_index: int | None = None
    comment: str = ""


class HandoffRecord(msgspec.Struct, frozen=True, array_like=True):
    """One handoff: its state by the gate's machine, its content, and the indexes of its main events."""

    id: str
    lifecycle: HandoffState | None = None
    content: HandoffContent | None = None
    content_index: int = -1  # the index of the event that set the content
    imported: RecordImported | None = None  # the imported record, if it is an imported file
    claimed_done: str | None = None  # the day of completion that the file claims
    superseded_by: str | None = None
    created: str = ""
    remarks: tuple[CriterionRemark, ...] = ()
    task_evidence: tuple[str, ...] = ()
    questions: tuple[QuestionText, ...] = ()
    changes: str = ""  # the reasons of the requested changes, until it is completed again or its content is replaced
    summary: str = ""
    artifacts: tuple[str, ...] = ()
    result_refs: tuple[str, ...] = ()
    created_index: int = -1
    approved_index: int | None = None
    claimed_index: int | None = None
    completed_index: int | None = None
    verified_index: int | None = None
    happened_ms: int = 0  # the time of its creation, or the time that an imported file claims
    updated_index: int = -1
    updated_ms: int = 0
    changed_ms: int = 0  # the same for its last event
    latest: dict[str, LatestEvent] = {}  # by kind

    @property
    def reason(self) -> str:
        """The reason of its status. Work whose changes were requested keeps their reasons when it is unblocked."""
        if self.lifecycle is None:
            return ""
        return self.lifecycle.reason or (self.changes if self.lifecycle.status == "in_progress" else "")

    @property
    def reviewer(self) -> str | None:
        """The named reviewer; None: the sender reviews, or the importer of the content."""
        lifecycle, content = self.lifecycle, self.content
        if lifecycle is None or content is None:
            return None
        return content.reviewer or (lifecycle.reviewer if lifecycle.reviewer != lifecycle.sender else None)

    @property
    def people(self) -> set[str]:
        """The agents whose registration, removal or keys affect whom it waits for."""
        state = state_of(self)
        return {name for name in (state.receiver, self.reviewer, *state.deciders) if name}

    def index_of(self, *kinds: str) -> int | None:
        """Return the index of the last event of these kinds, or None."""
        return max((self.latest[kind].index for kind in kinds if kind in self.latest), default=None)


def records_of(states: States, ids: Collection[str]) -> dict[str, HandoffRecord]:
    """Return the records of those handoffs that exist, by id."""
    records = states.states("handoffs", HandoffRecord, sorted(ids)) if ids else {}
    return {name: record for name, record in records.items() if record.lifecycle is not None}


def state_of(record: HandoffRecord) -> HandoffState:
    """Return the gate's state of a handoff that exists."""
    assert record.lifecycle is not None  # noqa: S101 - ``records_of`` returns no other
    return record.lifecycle


def content_of(record: HandoffRecord) -> HandoffContent:
    """Return the content of a handoff that exists."""
    assert record.content is not None  # noqa: S101 - as above
    return record.content
