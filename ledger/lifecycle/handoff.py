"""The life of a handoff (DESIGN §10, seed 002): who may do what in which state.

This machine knows one handoff: its parties are names in its own first event. Whether a name has a role, and
whether the handoffs it depends on have unlocked it, is decided by ``admission.rules`` over several streams.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import msgspec

from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events import handoff as kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.events.body import Event

Status: TypeAlias = Literal[
    "pending", "approved", "rejected", "in_progress", "blocked", "completed", "verified", "cancelled"
]
FINAL: Final[frozenset[Status]] = frozenset({"rejected", "verified", "cancelled"})


class HandoffState(msgspec.Struct, frozen=True, array_like=True, tag="handoff"):
    """Where one handoff stands. ``criteria`` are ``open``, ``checked`` or ``waived``, in the order of the event."""

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

    def is_unlocked_by(self, dependency: HandoffState) -> bool:
        """Whether this handoff may start as far as ``dependency`` goes, by this one's ``unlock_at``."""
        return dependency.status in ("verified", self.unlock_at)

    def is_lapsed(self, now_ms: int) -> bool:
        """Whether the receiver's lease has run out."""
        return self.status == "in_progress" and self.lease_until_ms is not None and now_ms >= self.lease_until_ms


def compute_version(sender: str, data: kinds.HandoffCreated) -> str:
    """Return the ref of what a reviewer approves: everything but status, check marks and log."""
    content = msgspec.to_builtins(data) | {"from": sender}
    return "sha256:" + hashlib.sha256(encode_canonical(content)).hexdigest()


def transition(state: HandoffState | None, event: Event) -> HandoffState:
    """Return the state after ``event``.

    Raises:
        Refused: ``TRANSITION_NOT_ALLOWED``, ``NOT_AUTHORIZED``, ``SELF_APPROVAL``, ``NOT_APPROVED``,
            ``VERSION_MISMATCH``, ``ALREADY_CLAIMED`` or ``CRITERIA_OPEN``.
    """
    if isinstance(event.data, kinds.HandoffCreated):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"handoff {event.name} exists already", status=state.status)
        return _create(event, event.data)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"there is no handoff {event.name}", status=None)
    step = _STEPS.get(type(event.data))
    if step is None:
        raise Refused("UNKNOWN_KIND", f"{event.kind} is no step in a handoff's life", kind=event.kind)
    if state.is_lapsed(event.accepted_ms):
        # A claim whose lease ran out is no claim: the work is free again, and its last holder must claim it anew.
        state = msgspec.structs.replace(state, status="approved", lease_until_ms=None)
    return step(state, event, event.data)


def _create(event: Event, data: kinds.HandoffCreated) -> HandoffState:
    # Without a reviewer the sender verifies; that only a human may do so is a rule about roles. Nobody ever reviews
    # work that he does himself, so who hands work to himself names somebody else.
    reviewer = data.reviewer or event.author
    if reviewer == data.to or data.reviewer == event.author:
        raise Refused("SELF_APPROVAL", f"{reviewer} is sender or receiver and cannot review", name=reviewer)
    return HandoffState(
        sender=event.author,
        receiver=data.to,
        reviewer=reviewer,
        status="pending" if data.reviewer else "approved",
        version=compute_version(event.author, data),
        depends_on=tuple(data.depends_on),
        unlock_at=data.unlock_at,
        tasks=(False,) * len(data.tasks),
        criteria=("open",) * len(data.criteria),
    )


def _approve(state: HandoffState, event: Event, data: kinds.HandoffApproved) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "pending")
    if data.version != state.version:
        raise Refused(
            "VERSION_MISMATCH",
            f"handoff {event.name} is now version {state.version}: read it again before approving",
            version=state.version,
            approved=data.version,
        )
    return msgspec.structs.replace(state, status="approved")


def _reject(state: HandoffState, event: Event, data: kinds.HandoffRejected) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "pending")
    return msgspec.structs.replace(state, status="rejected", reason=data.reason)


def _claim(state: HandoffState, event: Event, data: kinds.HandoffClaimed) -> HandoffState:
    _require_party(event, state.receiver)
    if state.status in ("pending", "rejected"):
        raise Refused("NOT_APPROVED", f"handoff {event.name} is {state.status}", status=state.status)
    if state.status in ("in_progress", "blocked"):
        raise Refused("ALREADY_CLAIMED", f"handoff {event.name} is {state.status} already", status=state.status)
    _require(state, event, "approved")
    lease = None if data.lease_seconds is None else event.accepted_ms + 1000 * data.lease_seconds
    return msgspec.structs.replace(state, status="in_progress", lease_until_ms=lease, reason="")


def _check_task(state: HandoffState, event: Event, data: kinds.HandoffTaskChecked) -> HandoffState:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")
    return msgspec.structs.replace(state, tasks=_replaced(state.tasks, data.position, data.checked, "task"))


def _check_criterion(state: HandoffState, event: Event, data: kinds.HandoffCriterionChecked) -> HandoffState:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")
    mark = "checked" if data.checked else "open"
    return msgspec.structs.replace(state, criteria=_replaced(state.criteria, data.position, mark, "criterion"))


def _waive_criterion(state: HandoffState, event: Event, data: kinds.HandoffCriterionWaived) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "in_progress", "completed")
    return msgspec.structs.replace(state, criteria=_replaced(state.criteria, data.position, "waived", "criterion"))


def _release(state: HandoffState, event: Event, data: kinds.HandoffReleased) -> HandoffState:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")
    return msgspec.structs.replace(state, status="approved", lease_until_ms=None, reason=data.reason)


def _log(state: HandoffState, event: Event, _data: kinds.HandoffLogged) -> HandoffState:
    _require_party(event, state.sender, state.receiver, state.reviewer)
    return state


def _block(state: HandoffState, event: Event, data: kinds.HandoffBlocked) -> HandoffState:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")
    return msgspec.structs.replace(state, status="blocked", lease_until_ms=None, reason=data.reason)


def _unblock(state: HandoffState, event: Event, _data: kinds.HandoffUnblocked) -> HandoffState:
    _require_party(event, state.receiver, state.reviewer)
    _require(state, event, "blocked")
    return msgspec.structs.replace(state, status="in_progress", reason="")


def _complete(state: HandoffState, event: Event, _data: kinds.HandoffCompleted) -> HandoffState:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")
    unmet = [position for position, mark in enumerate(state.criteria) if mark == "open"]
    if unmet:
        raise Refused(
            "CRITERIA_OPEN",
            f"handoff {event.name} has {len(unmet)} open acceptance criteria: check or waive them first",
            positions=unmet,
        )
    return msgspec.structs.replace(state, status="completed", lease_until_ms=None)


def _request_changes(state: HandoffState, event: Event, data: kinds.HandoffChangesRequested) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "completed")
    return msgspec.structs.replace(state, status="in_progress", reason="; ".join(data.reasons))


def _verify(state: HandoffState, event: Event, _data: kinds.HandoffVerified) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "completed")
    return msgspec.structs.replace(state, status="verified")


def _cancel(state: HandoffState, event: Event, data: kinds.HandoffCancelled) -> HandoffState:
    _require_party(event, state.sender, state.reviewer)
    if state.status in FINAL:
        _not_allowed(state, event)
    return msgspec.structs.replace(state, status="cancelled", lease_until_ms=None, reason=data.reason)


# Each function takes the data type it stands beside; the table erases that to Any.
_STEPS: Final[dict[type[Any], Callable[[HandoffState, Event, Any], HandoffState]]] = {
    kinds.HandoffApproved: _approve,
    kinds.HandoffRejected: _reject,
    kinds.HandoffClaimed: _claim,
    kinds.HandoffTaskChecked: _check_task,
    kinds.HandoffCriterionChecked: _check_criterion,
    kinds.HandoffCriterionWaived: _waive_criterion,
    kinds.HandoffReleased: _release,
    kinds.HandoffLogged: _log,
    kinds.HandoffBlocked: _block,
    kinds.HandoffUnblocked: _unblock,
    kinds.HandoffCompleted: _complete,
    kinds.HandoffChangesRequested: _request_changes,
    kinds.HandoffVerified: _verify,
    kinds.HandoffCancelled: _cancel,
}


def _require(state: HandoffState, event: Event, *allowed: Status) -> None:
    if state.status not in allowed:
        _not_allowed(state, event)


def _not_allowed(state: HandoffState, event: Event) -> NoReturn:
    raise Refused(
        "TRANSITION_NOT_ALLOWED",
        f"{event.kind} cannot follow: handoff {event.name} is {state.status}",
        status=state.status,
    )


def _require_party(event: Event, *allowed: str) -> None:
    if event.author not in allowed:
        names = ", ".join(dict.fromkeys(allowed))
        raise Refused("NOT_AUTHORIZED", f"{event.kind} of {event.name} is for {names}", allowed=list(allowed))


def _require_reviewer(state: HandoffState, event: Event) -> None:
    if event.author == state.reviewer:
        return
    if event.author in (state.sender, state.receiver):
        raise Refused(
            "SELF_APPROVAL",
            f"{event.author} is party to {event.name}; its reviewer is {state.reviewer}",
            reviewer=state.reviewer,
        )
    raise Refused("NOT_AUTHORIZED", f"the reviewer of {event.name} is {state.reviewer}", reviewer=state.reviewer)


def _replaced(marks: tuple[Any, ...], position: int, mark: object, what: str) -> tuple[Any, ...]:
    if position >= len(marks):
        raise Refused("INVALID_FIELD", f"there is no {what} {position}: there are {len(marks)}", path="$.data.position")
    return (*marks[:position], mark, *marks[position + 1 :])
