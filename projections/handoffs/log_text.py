"""The words of one log line: what an event of a handoff says in the seed's form ``- DATE [author] text``.

Pure. The words after the verb are the author's own, so a comment, reason or summary is never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.events import handoff as kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.events.body import Event


def log_text(event: Event, created: kinds.HandoffCreated) -> str:
    """Return the text of the event's log line; ``created`` gives the words of tasks and criteria."""
    return _TEXTS[type(event.data)](event.data, created)


def _with(verb: str, words: str) -> str:
    return f"{verb}: {words}" if words else verb


def _created(data: kinds.HandoffCreated, _created: kinds.HandoffCreated) -> str:
    return f"created the handoff to {data.to}"


def _claimed(data: kinds.HandoffClaimed, _created: kinds.HandoffCreated) -> str:
    return "claimed" if data.lease_seconds is None else f"claimed for {data.lease_seconds} s"


def _task(data: kinds.HandoffTaskChecked, created: kinds.HandoffCreated) -> str:
    return f"task {'done' if data.checked else 'undone'}: {created.tasks[data.position]}"


def _criterion(data: kinds.HandoffCriterionChecked, created: kinds.HandoffCreated) -> str:
    text = f"criterion {'met' if data.checked else 'open again'}: {created.criteria[data.position]}"
    return f"{text} ({data.evidence})" if data.evidence else text


def _waived(data: kinds.HandoffCriterionWaived, created: kinds.HandoffCreated) -> str:
    return f"criterion waived: {created.criteria[data.position]} ({data.reason})"


# Each function takes the data type it stands beside; the table erases that to Any.
_TEXTS: Final[dict[type[Any], Callable[[Any, kinds.HandoffCreated], str]]] = {
    kinds.HandoffCreated: _created,
    kinds.HandoffApproved: lambda data, _: _with("approved", data.comment),
    kinds.HandoffRejected: lambda data, _: _with("rejected", data.reason),
    kinds.HandoffClaimed: _claimed,
    kinds.HandoffTaskChecked: _task,
    kinds.HandoffCriterionChecked: _criterion,
    kinds.HandoffCriterionWaived: _waived,
    kinds.HandoffReleased: lambda data, _: _with("released", data.reason),
    kinds.HandoffLogged: lambda data, _: str(data.text),
    kinds.HandoffBlocked: lambda data, _: _with("blocked", data.reason),
    kinds.HandoffUnblocked: lambda data, _: _with("unblocked", data.comment),
    kinds.HandoffCompleted: lambda data, _: _with("completed", data.summary),
    kinds.HandoffChangesRequested: lambda data, _: _with("changes requested", "; ".join(data.reasons)),
    kinds.HandoffVerified: lambda data, _: _with("verified", data.comment),
    kinds.HandoffCancelled: lambda data, _: _with("cancelled", data.reason),
}
