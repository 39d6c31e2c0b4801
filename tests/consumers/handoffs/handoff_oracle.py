"""What a handoff's life allows, once more and in other words: what the ledger decides is held against it.

It calls nothing of ``ledger.lifecycle`` or ``ledger.admission``. ``objections`` names every rule that a step breaks, by
the code of its refusal, so it need not know in which order the gate looks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

WORKING: Final = {"agent", "reviewer", "human", "service"}
REVIEWING: Final = {"reviewer", "human"}
OVER: Final = {"rejected", "verified", "cancelled", "superseded"}
LIVE: Final = {"pending", "approved", "in_progress", "blocked", "completed"}
ANY: Final = OVER | LIVE

# kind → (who may, in which states, next state; None: the same)
TABLE: Final[dict[str, tuple[str, set[str], str | None]]] = {
    "handoff.approved": ("reviewer", {"pending"}, "approved"),
    "handoff.rejected": ("reviewer", {"pending"}, "rejected"),
    "handoff.amended": ("from", {"pending", "approved"}, "pending"),
    "handoff.claimed": ("to", {"approved"}, "in_progress"),
    "handoff.task_checked": ("to", {"in_progress"}, None),
    "handoff.criterion_checked": ("to", {"in_progress"}, None),
    "handoff.waiver_asked": ("to", {"in_progress"}, None),
    "handoff.criterion_waived": ("reviewer", {"in_progress", "completed"}, None),
    "handoff.blocked": ("to", {"in_progress"}, "blocked"),
    "handoff.unblocked": ("to or reviewer", {"blocked"}, "in_progress"),
    "handoff.released": ("to", {"in_progress"}, "approved"),
    "handoff.completed": ("to", {"in_progress"}, "completed"),
    "handoff.verified": ("reviewer", {"completed"}, "verified"),
    "handoff.changes_requested": ("reviewer", {"completed"}, "in_progress"),
    "handoff.cancelled": ("from or reviewer", LIVE, "cancelled"),
    "handoff.superseded": ("from", LIVE, "superseded"),
    "handoff.logged": ("from or to or reviewer", ANY, None),
    "handoff.ready": ("service", {"approved"}, None),
}
MARKING: Final = {
    "handoff.task_checked",
    "handoff.criterion_checked",
    "handoff.waiver_asked",
    "handoff.criterion_waived",
}
CONTENT: Final = {"handoff.created", "handoff.amended", "record.imported"}


class Step(NamedTuple):
    """What somebody tries."""

    author: str
    kind: str
    name: str
    data: dict[str, Any]


@dataclass
class Handoff:
    """Where a handoff stands."""

    sender: str
    importer: str
    receiver: str
    reviewer: str
    status: str
    version: str
    depends_on: list[str]
    unlock_at: str
    tasks: list[str]
    criteria: list[str]
    lease: list[int] | None = None
    claimed_status: str | None = None
    is_announced: bool = False
    completion: str = ""

    def may(self, who: str) -> set[str]:
        """Return the names of those who are from, to or reviewer."""
        names = {"from": {self.sender, self.importer}, "to": {self.receiver}, "reviewer": {self.reviewer}}
        return set().union(*(names[role] for role in who.split(" or "))) - {""}

    def lapse(self, now_ms: int) -> None:
        """Free the work if its lease ran out."""
        if self.status == "in_progress" and self.lease is not None and self.lease[1] <= now_ms:
            self.status, self.lease = "approved", None


@dataclass
class Oracle:
    """All agents and handoffs of a ledger."""

    roles: dict[str, set[str]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    handoffs: dict[str, Handoff] = field(default_factory=dict)
    last_ms: int = 0

    def objections(self, step: Step, now_ms: int) -> set[str]:
        """Return the codes of all that speaks against a step; none: it is allowed."""
        if step.author in self.revoked:
            return {"KEY_REVOKED"}
        if step.author not in self.roles:
            return {"KEY_UNKNOWN"}
        if not step.kind.startswith(("handoff.", "record.")):
            return set() if "admin" in self.roles[step.author] else {"NOT_AUTHORIZED"}
        found = set() if self.roles[step.author] & WORKING else {"NOT_AUTHORIZED"}
        handoff = self.handoffs.get(step.name)
        if step.kind == "record.imported":
            return found | self._against_import(step, handoff)
        if step.kind == "handoff.created":
            return found | self._against_content(step) | ({"TRANSITION_NOT_ALLOWED"} if handoff else set())
        if handoff is None:
            return found | {"NOT_FOUND"}
        handoff = Handoff(**vars(handoff))
        handoff.lapse(now_ms)
        found |= self._against_author(step, handoff)
        is_confirmed_as_done = step.kind == "handoff.verified" and handoff.claimed_status is not None
        if handoff.status not in TABLE[step.kind][1] and not is_confirmed_as_done:
            found.add(_wrong_state(step, handoff))
        return found | self._against_data(step, handoff)

    def _against_author(self, step: Step, handoff: Handoff) -> set[str]:
        who = TABLE[step.kind][0]
        roles = self.roles[step.author]
        if who == "service":
            return set() if "service" in roles else {"NOT_AUTHORIZED"}
        if who != "reviewer":
            return set() if step.author in handoff.may(who) else {"NOT_AUTHORIZED"}
        found = set() if roles & REVIEWING else {"NOT_AUTHORIZED"}
        is_party = step.author in handoff.may("from or to")
        if step.author != handoff.reviewer:
            found.add("SELF_APPROVAL" if is_party else "NOT_AUTHORIZED")
        if step.author == handoff.receiver:
            found.add("SELF_APPROVAL")
        if handoff.importer and step.author in handoff.may("from") and "human" not in roles:
            found.add("SELF_APPROVAL")
        return found

    def _against_data(self, step: Step, handoff: Handoff) -> set[str]:
        data, found = step.data, set()
        match step.kind:
            case "handoff.approved":
                found = {"VERSION_MISMATCH"} if data["version"] != handoff.version else set()
            case "handoff.amended":
                found = self._against_content(step) | self._against_other_reviewer(step, handoff)
            case "handoff.verified" | "handoff.changes_requested":
                found = {"VERSION_MISMATCH"} if data["completion"] != handoff.completion else set()
                found |= {"VERSION_MISMATCH"} if data.get("version", handoff.version) != handoff.version else set()
            case "handoff.claimed":
                found = self._waits(handoff)
            case "handoff.ready":
                found = self._waits(handoff) | ({"TRANSITION_NOT_ALLOWED"} if handoff.is_announced else set())
                found |= {"VERSION_MISMATCH"} if data["version"] != handoff.version else set()
                found |= {"VERSION_MISMATCH"} if data["to"] != handoff.receiver else set()
            case kind if kind in MARKING:
                found = _against_mark(step, handoff)
            case "handoff.completed":
                found = set() if set(handoff.criteria) <= {"checked", "waived"} else {"CRITERIA_OPEN"}
            case "handoff.superseded":
                found = {"INVALID_FIELD"} if data["by"] == step.name else set()
                found |= {"NOT_FOUND"} if data["by"] not in self.handoffs else set()
        return found

    def _against_other_reviewer(self, step: Step, handoff: Handoff) -> set[str]:
        after = step.data.get("reviewer") or step.author
        if handoff.reviewer in ("", after, handoff.sender, handoff.importer):
            return set()
        return {"NOT_AUTHORIZED"} if self.roles.get(handoff.reviewer, set()) & REVIEWING else set()

    def _against_content(self, step: Step) -> set[str]:
        data, found = step.data, self._cycle(step.name, step.data)
        reviewer = data.get("reviewer")
        if reviewer is None and "human" not in self.roles[step.author]:
            found.add("REVIEWER_REQUIRED")
        if (reviewer or step.author) == data["to"] or reviewer == step.author:
            found.add("SELF_APPROVAL")
        if data["to"] not in self.roles or (reviewer is not None and reviewer not in self.roles):
            found.add("AGENT_UNKNOWN")
        if reviewer in self.roles and not self.roles[reviewer] & REVIEWING:
            found.add("NOT_AUTHORIZED")
        return found

    def _against_import(self, step: Step, handoff: Handoff | None) -> set[str]:
        mapped, claims = step.data["mapped"], step.data["claims"]
        found = self._cycle(step.name, mapped)
        if handoff is not None and handoff.claimed_status is None:
            found.add("TRANSITION_NOT_ALLOWED")
        if handoff is not None and not handoff.importer:
            found.add("TRANSITION_NOT_ALLOWED")
        elif handoff is not None and handoff.importer != step.author:
            found.add("NOT_AUTHORIZED")
        for items in ("tasks", "criteria"):
            if any(position >= len(mapped.get(items, [])) for position in claims.get(items, [])):
                found.add("INVALID_FIELD")
        return found

    def _waits(self, handoff: Handoff) -> set[str]:
        found = set()
        for name in handoff.depends_on:
            if name not in self.handoffs:
                found.add("DEPENDENCY_MISSING")
            elif self.handoffs[name].status not in ("verified", handoff.unlock_at):
                found.add("DEPENDENCY_PENDING")
        return found

    def _cycle(self, name: str, data: dict[str, Any]) -> set[str]:
        reached, waiting = set(), list(data.get("depends_on", []))
        while waiting:
            if (on := waiting.pop()) not in reached:
                reached.add(on)
                waiting += self.handoffs[on].depends_on if on in self.handoffs else []
        return {"DEPENDENCY_CYCLE"} if name in reached else set()

    def apply(self, step: Step, now_ms: int, event_id: str) -> None:
        """Let an allowed step happen, as the event of that id."""
        self.last_ms = now_ms
        if not step.kind.startswith(("handoff.", "record.")):
            self._apply_authority(step)
        elif step.kind in CONTENT:
            self.handoffs[step.name] = self._opened(step, event_id)
        else:
            handoff = self.handoffs[step.name]
            handoff.lapse(now_ms)
            _move(step, handoff, now_ms)
            if step.kind == "handoff.completed":
                handoff.completion = event_id
            elif step.kind == "handoff.approved":
                handoff.completion = ""

    def _apply_authority(self, step: Step) -> None:
        match step.kind:
            case "role.granted":
                self.roles[step.name] |= {step.data["role"]}
            case "role.revoked":
                self.roles[step.name] -= {step.data["role"]}
            case _:
                self.revoked.add(step.name)

    def _opened(self, step: Step, event_id: str) -> Handoff:
        is_import = step.kind == "record.imported"
        data = step.data["mapped"] if is_import else step.data
        before = self.handoffs.get(step.name)
        sender, importer = step.author, ""
        if is_import:
            sender, importer = step.data.get("claimed_author", ""), step.author
        elif before is not None:
            sender, importer = before.sender, before.importer
        claims = step.data["claims"] if is_import else {}
        return Handoff(
            sender=sender,
            importer=importer,
            receiver=data.get("to", ""),
            reviewer=data.get("reviewer") or (sender if is_import else step.author),
            status="pending" if is_import or data.get("reviewer") else "approved",
            version=version_of(sender, data),
            depends_on=data.get("depends_on", []),
            unlock_at=data.get("unlock_at", "completed"),
            tasks=[
                "done" if position in claims.get("tasks", []) else "open"
                for position in range(len(data.get("tasks", [])))
            ],
            criteria=[
                "claimed" if position in claims.get("criteria", []) else "open"
                for position in range(len(data.get("criteria", [])))
            ],
            claimed_status=claims.get("status", "") if is_import else None,
            completion=event_id if is_import else "",
        )


def _against_mark(step: Step, handoff: Handoff) -> set[str]:
    is_checked, position = step.data.get("checked", True), step.data["position"]
    is_task = step.kind == "handoff.task_checked"
    marks: list[Any] = handoff.tasks if is_task else handoff.criteria
    if position >= len(marks):
        return {"INVALID_FIELD"}
    if not is_task and not is_checked and marks[position] == "waived":
        return {"TRANSITION_NOT_ALLOWED"}
    if step.kind == "handoff.waiver_asked":
        return {"NOTHING_CHANGED"} if marks[position] != "open" and marks[position] != "claimed" else set()
    if step.kind == "handoff.criterion_waived" and not step.data.get("granted", True):
        return set() if marks[position] == "asked" else {"NOTHING_CHANGED"}
    ticked = "done" if is_task else "checked"
    mark = "waived" if step.kind == "handoff.criterion_waived" else ticked if is_checked else "open"
    return {"NOTHING_CHANGED"} if marks[position] == mark else set()


def _wrong_state(step: Step, handoff: Handoff) -> str:
    if step.kind == "handoff.claimed" and handoff.status in ("pending", "rejected"):
        return "NOT_APPROVED"
    if step.kind == "handoff.claimed" and handoff.status in ("in_progress", "blocked"):
        return "ALREADY_CLAIMED"
    return "TRANSITION_NOT_ALLOWED"


def _move(step: Step, handoff: Handoff, now_ms: int) -> None:
    handoff.status = TABLE[step.kind][2] or handoff.status
    if step.kind in ("handoff.approved", "handoff.rejected", "handoff.verified") or handoff.status in OVER:
        handoff.claimed_status = None
    if handoff.status != "in_progress":
        handoff.lease = None
    match step.kind:
        case "handoff.claimed":
            seconds = step.data.get("lease_seconds")
            handoff.lease = None if seconds is None else [now_ms, now_ms + 1000 * seconds]
            handoff.is_announced = False
        case "handoff.ready":
            handoff.is_announced = True
        case "handoff.cancelled" | "handoff.superseded":
            handoff.is_announced = False
        case "handoff.task_checked":
            handoff.tasks = _marked(handoff.tasks, step, "done" if step.data.get("checked", True) else "open")
        case "handoff.criterion_checked":
            handoff.criteria = _marked(handoff.criteria, step, "checked" if step.data.get("checked", True) else "open")
        case "handoff.criterion_waived":
            handoff.criteria = _marked(handoff.criteria, step, "waived" if step.data.get("granted", True) else "open")
        case "handoff.waiver_asked":
            handoff.criteria = _marked(handoff.criteria, step, "asked")


def _marked(marks: list[Any], step: Step, mark: object) -> list[Any]:
    position = step.data["position"]
    return [*marks[:position], mark, *marks[position + 1 :]]


def version_of(sender: str, content: dict[str, Any]) -> str:
    """Return the hash of the sorted JSON of sender and content; the test leaves out what has its default."""
    content = {name: value for name, value in content.items() if name != "reason"} | {"from": sender}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
