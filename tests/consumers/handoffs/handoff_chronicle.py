"""Invariants of every history of handoffs, checked on the accepted events alone: no state machine, no model."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from graphlib import TopologicalSorter
from typing import Any, Final, NamedTuple

CONTENT: Final = {"handoff.created", "handoff.amended", "record.imported"}
REVIEWS = {
    "handoff.approved",
    "handoff.rejected",
    "handoff.criterion_waived",
    "handoff.verified",
    "handoff.changes_requested",
}


class Step(NamedTuple):
    """An attempted operation."""

    author: str
    kind: str
    name: str
    data: dict[str, Any]


class Told(NamedTuple):
    """One accepted event, and whether its author was a human when it was accepted."""

    step: Step
    now_ms: int
    is_human: bool


class Chronicle:
    """The accepted operations, by handoff."""

    def __init__(self) -> None:
        self.told: dict[str, list[Told]] = defaultdict(list)

    def add(self, step: Step, now_ms: int, *, is_human: bool) -> None:
        """Note an accepted event of a handoff, and check its statements about earlier events."""
        before = self.told[step.name]
        if step.kind == "handoff.claimed":
            assert _holder(before, now_ms) is None, "two hold the claim"
            self._is_approved(step.name, before)
        if step.kind == "handoff.completed":
            assert _open_criteria(before) == set(), "completed with open criteria"
        if step.kind in REVIEWS:
            self._is_reviewed(step, before, is_human=is_human)
        before.append(Told(step, now_ms, is_human))

    def has_no_cycle(self) -> None:
        """Check that none of them waits for itself."""
        waits = {name: _content(told)[1].get("depends_on", []) for name, told in self.told.items()}
        TopologicalSorter(waits).prepare()

    def changes(self, name: str) -> str:
        """Return the reasons of the requested changes that no completion and no new content has answered."""
        reasons = ""
        for one in _content(self.told[name])[2]:
            if one.step.kind == "handoff.changes_requested":
                reasons = "; ".join(one.step.data["reasons"])
            elif one.step.kind == "handoff.completed":
                reasons = ""
        return reasons

    def _is_approved(self, name: str, before: list[Told]) -> None:
        """Check that the content as it is now was approved by a third party, or set by a human without a reviewer."""
        set_by, content, since = _content(before)
        sender = self._sender(before)
        if set_by.step.kind != "record.imported" and "reviewer" not in content:
            assert set_by.is_human, f"{name} was claimed though nobody was to approve it"
            return
        approvals = [one.step for one in since if one.step.kind == "handoff.approved"]
        assert approvals, f"{name} was claimed before this content was approved"
        assert approvals[-1].data["version"] == version_of(sender, content), "an older version was approved"

    def _is_reviewed(self, step: Step, before: list[Told], *, is_human: bool) -> None:
        set_by, content, _ = _content(before)
        sender = self._sender(before)
        imports = [one.step.author for one in before if one.step.kind == "record.imported"]
        default = sender if set_by.step.kind == "record.imported" else set_by.step.author
        assert step.author == content.get("reviewer", default), f"{step.kind} by somebody who is not the reviewer"
        assert step.author != content.get("to"), "reviewed by its receiver"
        if step.author in (sender, *imports):
            assert is_human, "reviewed by its sender"

    def _sender(self, before: list[Told]) -> str:
        """Return the sender: the agent that created the handoff, or the author that its last import claims."""
        made = [one.step for one in before if one.step.kind in ("handoff.created", "record.imported")][-1]
        return made.author if made.kind == "handoff.created" else made.data.get("claimed_author", "")


def _content(told: list[Told]) -> tuple[Told, dict[str, Any], list[Told]]:
    """Return the event that set the content, the content, and the later events."""
    at = max(index for index, one in enumerate(told) if one.step.kind in CONTENT)
    data = told[at].step.data
    return told[at], data.get("mapped", data), told[at + 1 :]


def _holder(told: list[Told], now_ms: int) -> str | None:
    """Return the agent that claimed the work and has not released it, if its lease has not expired."""
    holder, until_ms = None, None
    for one in told:
        if until_ms is not None and one.now_ms >= until_ms:
            holder, until_ms = None, None
        if one.step.kind == "handoff.claimed":
            seconds = one.step.data.get("lease_seconds")
            holder, until_ms = one.step.author, None if seconds is None else one.now_ms + 1000 * seconds
        elif one.step.kind == "handoff.blocked":
            until_ms = None
        elif one.step.kind in ("handoff.released", "handoff.completed", "handoff.amended", "handoff.cancelled"):
            holder, until_ms = None, None
    return None if until_ms is not None and now_ms >= until_ms else holder


def _open_criteria(told: list[Told]) -> set[int]:
    """Return the criteria that nobody waived, and that nobody checked since the last change or request for changes."""
    _, content, since = _content(told)
    marks = dict.fromkeys(range(len(content.get("criteria", []))), "open")
    for one in since:
        data = one.step.data
        if one.step.kind == "handoff.changes_requested":
            marks = {position: "open" if mark == "checked" else mark for position, mark in marks.items()}
        elif one.step.kind == "handoff.criterion_checked":
            marks[data["position"]] = "checked" if data.get("checked", True) else "open"
        elif one.step.kind == "handoff.criterion_waived":
            marks[data["position"]] = "waived" if data.get("granted", True) else "open"
    return {position for position, mark in marks.items() if mark == "open"}


def version_of(sender: str, content: dict[str, Any]) -> str:
    """Return the hash of the sorted JSON of sender and content; the test leaves out fields with default values."""
    content = {name: value for name, value in content.items() if name != "reason"} | {"from": sender}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
