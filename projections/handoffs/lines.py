"""The types of answers about handoffs in a list.

This module imports no events and no fold, because a list must start fast.
"""

from __future__ import annotations

from deedbook.ledger.lifecycle.handoff_status import Status
from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Page, Untrusted


class LinkedHandoff(Marked, frozen=True, kw_only=True):
    """Another handoff, and its status; null: it does not exist."""

    id: str
    status: Status | None


class References(Answer, frozen=True, kw_only=True):
    """The handoffs that depend on a handoff, and those that answer it."""

    dependents: list[LinkedHandoff]
    answered_by: list[LinkedHandoff]


class UnannouncedHandoff(Marked, frozen=True, kw_only=True, rename={"receiver": "to"}):
    """A handoff that its receiver can claim, and that no event announced as ready."""

    id: str
    receiver: str
    version: str


class UnannouncedHandoffs(Answer, frozen=True, kw_only=True):
    """Handoffs to announce, the oldest first."""

    handoffs: list[UnannouncedHandoff]


class HandoffLine(Marked, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A handoff in a list. ``is_ready``: its receiver can claim it.

    ``happened_ms`` is when it was created, and ``changed_ms`` when it changed last: of an imported file the times that
    it claims, 0 if it claims none. ``is_history``: it claims to be over, and nobody here has confirmed it.
    """

    id: str
    status: Status
    title: Untrusted
    sender: str
    receiver: str
    reviewer: str | None
    created: str
    tasks_done: int
    tasks_total: int
    criteria_done: int
    criteria_total: int
    claimed_author: Untrusted | None
    claimed_at: Untrusted | None
    claimed_status: Untrusted | None
    reason: Untrusted
    is_history: bool
    created_index: Index
    happened_ms: Ms
    updated_index: Index
    updated_ms: Ms
    changed_ms: Ms
    importer: str | None
    is_ready: bool
    depends_on: list[LinkedHandoff]


class HandoffPage(Page[HandoffLine], frozen=True, kw_only=True):
    """A page of handoffs. ``history`` counts the matches left out: imported ones that claim to be over."""

    history: int


class NewLine(Marked, frozen=True, kw_only=True):
    """A line that somebody else signed and that concerns an agent. ``id`` is that of its stream, ``FAMILY/ID``.

    ``title`` is the title of a handoff, or the text of a decision or question.
    """

    event_index: Index
    stream: str
    id: str
    title: Untrusted
    author: str
    kind: str
    accepted_ms: Ms
    text: Untrusted
