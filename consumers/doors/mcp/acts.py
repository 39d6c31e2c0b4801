"""What each act on a handoff needs and takes, and the events it signs (seed 002).

The names are the verbs of ``baton handoff``. What a tool's call gives for another act is refused, because whoever gives
it means something that would not happen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from consumers.handoffs.acts import amendment_of, created_by, position_of, ticks_of
from consumers.sdk.names import default_id, split_ids
from ledger.errors import Refused
from ledger.events import handoff as kinds
from ledger.events.fields import REF_PATTERN, EventData

if TYPE_CHECKING:
    from consumers.doors.mcp.desk import Desk

CONTENT: Final = (
    "title",
    "to",
    "reviewer",
    "tasks",
    "criteria",
    "depends_on",
    "unlock_at",
    "body",
    "context",
    "proposal",
    "answers",
    "reasoning_ref",
)


class Act(NamedTuple):
    """The arguments that an act must have and may have, besides ``id`` and ``idempotency_key``."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


ACTS: Final[dict[str, Act]] = {
    "create": Act(("title", "to"), CONTENT),
    "amend": Act((), (*CONTENT, "reason")),
    "claim": Act((), ("lease_minutes",)),
    "check": Act((), ("task_numbers", "criterion_numbers", "all_open", "undo")),
    "log": Act(("text",)),
    "block": Act(("reason",)),
    "unblock": Act((), ("comment",)),
    "release": Act((), ("reason",)),
    "complete": Act((), ("summary", "artifacts", "reasoning_ref")),
    "cancel": Act(("reason",)),
    "approve": Act((), ("version", "comment")),
    "reject": Act(("reason",)),
    "waive": Act(("criterion_numbers", "reason")),
    "verify": Act((), ("comment",)),
    "request_changes": Act(("reason",)),
    "why": Act(),
    "show": Act(),
}
READING: Final = frozenset({"why", "show"})
REVIEWING: Final = frozenset({"approve", "reject", "waive", "verify", "request_changes"})


def check_given(action: str, id_: str | None, given: dict[str, Any]) -> None:
    """Refuse a call that lacks what its act needs, or gives what it does not take.

    Raises:
        Refused: ``USAGE`` naming the argument.
    """
    act = ACTS[action]
    missing = [name for name in act.needs if name not in given]
    if id_ is None and action != "create":
        missing.insert(0, "id")
    if missing:
        raise Refused("USAGE", f"{action} needs {' and '.join(missing)}", fields=missing)
    alien = sorted(set(given) - {*act.needs, *act.takes})
    if alien:
        takes = ", ".join(dict.fromkeys(("id", *act.needs, *act.takes)))
        raise Refused("USAGE", f"{action} takes no {alien[0]}: it takes {takes}", fields=alien)


def creation(desk: Desk, sender: str, id_: str | None, given: dict[str, Any]) -> tuple[str, list[EventData]]:
    """Return the id and the event of a new handoff.

    Raises:
        Refused: ``USAGE`` for a title that makes no id; ``INVALID_FIELD`` or ``TOO_LARGE``.
    """
    name = id_.removesuffix(".md") if id_ else default_id(given["title"])
    fields: dict[str, Any] = {
        "title": given["title"],
        "proposal": given.get("proposal"),
        "depends_on": given.get("depends_on", []),
        "unlock_at": given.get("unlock_at", "completed"),
        "task": given.get("body", ""),
        "tasks": given.get("tasks", []),
        "criteria": given.get("criteria", []),
        "context": given.get("context", ""),
        "answers": given.get("answers"),
        "reasoning_ref": given.get("reasoning_ref"),
    }
    return name, [created_by(sender, desk.settings, to=given["to"], reviewer=given.get("reviewer"), **fields)]


def events_of(desk: Desk, action: str, shown: dict[str, Any], given: dict[str, Any]) -> list[EventData]:
    """Return the events that an act on a handoff (an answer of ``handoffs.show``) signs.

    Raises:
        Refused: ``USAGE`` or ``INVALID_FIELD`` for what the handoff does not have.
    """
    reason, comment = given.get("reason", ""), given.get("comment", "")
    match action:
        case "amend":
            return [amendment_of(shown, _changes(given), reason, desk.client)]
        case "claim":
            minutes = given.get("lease_minutes")
            return [kinds.HandoffClaimed(lease_seconds=None if minutes is None else 60 * minutes)]
        case "check":
            ticked = (given.get("task_numbers", []), given.get("criterion_numbers", []))
            return ticks_of(shown, *ticked, is_all=given.get("all_open", False), undo=given.get("undo", False))
        case "log":
            return [kinds.HandoffLogged(text=given["text"])]
        case "block":
            return [kinds.HandoffBlocked(reason=reason)]
        case "unblock":
            return [kinds.HandoffUnblocked(comment=comment)]
        case "release":
            return [kinds.HandoffReleased(reason=reason)]
        case "complete":
            artifacts, ref = given.get("artifacts", []), given.get("reasoning_ref")
            return [kinds.HandoffCompleted(summary=given.get("summary", ""), artifacts=artifacts, reasoning_ref=ref)]
        case "cancel":
            return [kinds.HandoffCancelled(reason=reason)]
        case _:
            return _review(action, shown, given)


def _review(action: str, shown: dict[str, Any], given: dict[str, Any]) -> list[EventData]:
    reason, comment = given.get("reason", ""), given.get("comment", "")
    match action:
        case "approve":
            version = given.get("version", shown["version"])
            if not re.match(REF_PATTERN, version):
                raise Refused("USAGE", "version is a whole one, sha256:…, as `show` tells it", field="version")
            return [kinds.HandoffApproved(version=version, comment=comment)]
        case "reject":
            return [kinds.HandoffRejected(reason=reason)]
        case "waive":
            at = [position_of(shown["criteria"], "criterion", number) for number in given["criterion_numbers"]]
            return [kinds.HandoffCriterionWaived(position=one, reason=reason) for one in at]
        case "verify":
            return [kinds.HandoffVerified(comment=comment)]
        case _:
            return [kinds.HandoffChangesRequested(reasons=[reason])]


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    changes = {name: value for name, value in given.items() if name != "reason"}
    if "body" in changes:
        changes["task"] = changes.pop("body")
    if "depends_on" in changes:
        changes["depends_on"] = [one for text in changes["depends_on"] for one in split_ids(text)]
    if "answers" in changes:
        changes["answers"] = changes["answers"].removesuffix(".md")
    return changes
