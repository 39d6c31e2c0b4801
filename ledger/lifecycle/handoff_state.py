"""The state of a handoff, and how it begins: from content that somebody signed, or from an imported file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events import handoff as kinds
from ledger.events.imported import RecordImported, read_mapped

if TYPE_CHECKING:
    from ledger.events.body import Event

Status: TypeAlias = Literal[
    "pending", "approved", "rejected", "in_progress", "blocked", "completed", "verified", "cancelled", "superseded"
]
FINAL: Final[frozenset[Status]] = frozenset({"rejected", "verified", "cancelled", "superseded"})


class HandoffState(msgspec.Struct, frozen=True, array_like=True, tag="handoff"):
    """Where one handoff stands.

    ``criteria`` are ``open``, ``claimed`` (ticked in an imported file, and still open here), ``checked`` or ``waived``,
    in the order of the event. ``importer`` acts for a sender who may not be registered here; ``claimed_status`` is what
    an imported file says of itself, until somebody confirms or amends it. ``is_announced``: the router has told.
    """

    sender: str
    receiver: str
    reviewer: str
    status: Status
    version: str
    depends_on: tuple[str, ...]
    unlock_at: str
    tasks: tuple[bool, ...]
    criteria: tuple[str, ...]
    lease_until_ms: int | None = None
    reason: str = ""
    importer: str = ""
    claimed_status: str | None = None
    is_announced: bool = False

    @property
    def senders(self) -> tuple[str, ...]:
        """Who may act as its sender."""
        return tuple(name for name in (self.sender, self.importer) if name)

    def is_unlocked_by(self, dependency: HandoffState) -> bool:
        """Whether this handoff may start as far as ``dependency`` goes, by this one's ``unlock_at``."""
        return dependency.status in ("verified", self.unlock_at)

    def is_lapsed(self, now_ms: int) -> bool:
        """Whether the receiver's lease has run out."""
        return self.status == "in_progress" and self.lease_until_ms is not None and now_ms >= self.lease_until_ms


def compute_version(sender: str, data: kinds.HandoffContent) -> str:
    """Return the ref of what a reviewer approves: everything but status, check marks and log."""
    content = msgspec.to_builtins(kinds.content_of(data)) | {"from": sender}
    return "sha256:" + hashlib.sha256(encode_canonical(content)).hexdigest()


def opened(data: kinds.HandoffContent, name: str, *, sender: str, author: str, importer: str = "") -> HandoffState:
    """Return the state in which new content waits for its approval.

    Raises:
        Refused: ``SELF_APPROVAL``.
    """
    # Without a reviewer the sender verifies; that only a human may do so is a rule about roles. Nobody ever reviews
    # work that he does himself, so who hands work to himself names somebody else.
    reviewer = data.reviewer or author
    if reviewer == data.to or data.reviewer == author:
        raise Refused("SELF_APPROVAL", f"{reviewer} is sender or receiver of {name} and cannot review", name=reviewer)
    return HandoffState(
        sender=sender,
        receiver=data.to or "",
        reviewer=reviewer,
        status="pending" if data.reviewer else "approved",
        version=compute_version(sender, data),
        depends_on=tuple(data.depends_on),
        unlock_at=data.unlock_at,
        tasks=(False,) * len(data.tasks),
        criteria=("open",) * len(data.criteria),
        importer=importer,
    )


def imported(state: HandoffState | None, event: Event, data: RecordImported) -> HandoffState:
    """Take a file's word for its content, and for nothing else: whatever it claims, it is pending.

    It may be imported again, as its file goes on changing, until somebody here confirmed or amended it.

    Raises:
        Refused: ``TRANSITION_NOT_ALLOWED``, or ``INVALID_FIELD`` for a claim about a task that is not there.
    """
    found = read_mapped(data)
    if found is None or (state is not None and state.claimed_status is None):
        status = None if state is None else state.status
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.name} is not (or no longer) an imported file", status=status)
    content, claims = found
    assert isinstance(content, kinds.HandoffContent)  # noqa: S101 - the kind's stream fixes what it maps to
    assert isinstance(claims, kinds.HandoffClaims)  # noqa: S101 - as above
    tasks: tuple[Any, ...] = (False,) * len(content.tasks)
    for position in claims.tasks:
        tasks = replaced(tasks, position, True, "task")  # noqa: FBT003 - a mark
    criteria: tuple[Any, ...] = ("open",) * len(content.criteria)
    for position in claims.criteria:
        criteria = replaced(criteria, position, "claimed", "criterion")
    sender = data.claimed_author or ""
    return HandoffState(
        sender=sender,
        receiver=content.to or "",
        reviewer=content.reviewer or sender,
        status="pending",
        version=compute_version(sender, content),
        depends_on=tuple(content.depends_on),
        unlock_at=content.unlock_at,
        tasks=tasks,
        criteria=criteria,
        importer=event.author,
        claimed_status=claims.status or "",
    )


def replaced(marks: tuple[Any, ...], position: int, mark: object, what: str) -> tuple[Any, ...]:
    """Return the marks with one changed.

    Raises:
        Refused: ``INVALID_FIELD`` when there is none at ``position``.
    """
    if position >= len(marks):
        raise Refused("INVALID_FIELD", f"there is no {what} {position}: there are {len(marks)}", path="$.data.position")
    return (*marks[:position], mark, *marks[position + 1 :])
