"""The words of one log line: what an event of a handoff says in the form of handoff files, ``- DATE [author] text``.

Pure. The words after the verb are the author's own, so a comment, reason or summary is never lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ledger.events import handoff as kinds
from ledger.events.body import Event
from ledger.events.imported import RecordImported


def log_text(event: Event, content: kinds.HandoffContent) -> str:
    """Return the text of the event's log line; ``content`` gives the words of tasks and criteria."""
    return _TEXTS[type(event.data)](event.data, content)


def _with(verb: str, words: str) -> str:
    return f"{verb}: {words}" if words else verb


def _created(data: kinds.HandoffCreated, _content: kinds.HandoffContent) -> str:
    return f"created the handoff to {data.to}"


def _imported(data: RecordImported, _content: kinds.HandoffContent) -> str:
    status = str(data.claims.get("status") or "nothing")
    return f"imported from {data.source}, which says {status}"


def _superseded(data: kinds.HandoffSuperseded, _content: kinds.HandoffContent) -> str:
    return _with(f"superseded by {data.by}", data.reason)


def _claimed(data: kinds.HandoffClaimed, _content: kinds.HandoffContent) -> str:
    return "claimed" if data.lease_seconds is None else f"claimed for {data.lease_seconds} s"


def _task(data: kinds.HandoffTaskChecked, content: kinds.HandoffContent) -> str:
    return f"task {'done' if data.checked else 'undone'}: {content.tasks[data.position]}"


def _criterion(data: kinds.HandoffCriterionChecked, content: kinds.HandoffContent) -> str:
    text = f"criterion {'met' if data.checked else 'open again'}: {content.criteria[data.position]}"
    return f"{text} ({data.evidence})" if data.evidence else text


def _waived(data: kinds.HandoffCriterionWaived, content: kinds.HandoffContent) -> str:
    return f"criterion waived: {content.criteria[data.position]} ({data.reason})"


# What a handoff's file does not tell in its log: ticks stand in its lists, and nothing depends on `ready`.
NOT_IN_FILES: Final = frozenset({"handoff.task_checked", "handoff.criterion_checked", "handoff.ready"})

# Each function takes the data type it stands beside; the table erases that to Any.
_TEXTS: Final[dict[type[Any], Callable[[Any, kinds.HandoffContent], str]]] = {
    RecordImported: _imported,
    kinds.HandoffCreated: _created,
    kinds.HandoffAmended: lambda data, _: _with("amended", data.reason),
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
    kinds.HandoffSuperseded: _superseded,
    kinds.HandoffReady: lambda data, _: f"ready for {data.to}",
}
