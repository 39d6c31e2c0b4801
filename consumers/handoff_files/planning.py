"""What an edited file asks for: events that the acting agent signs, and edits that are somebody else's to make.

Pure. An edit that means approve, reject, verify or ask for changes is never signed here, whoever saves the file: it is
held, with the command to run (DESIGN §10). So is whatever the acting agent has no part in. What the ledger says already
is not asked for again, so a plan made twice, after a crash, asks for nothing twice.
"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from consumers.handoff_files.comparing import Edits, differences
from ledger.events import handoff as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from consumers.handoff_files.document import Checkbox, HandoffFile, LogLine
    from ledger.events.fields import EventData

# The verb of a status that only a reviewer may set, in the words of the command line.
_REVIEWS: Final = {
    "approved": "approve",
    "rejected": "reject --reason …",
    "verified": "verify",
    "changes_requested": "request-changes --reason …",
}
# What the receiver does to lead a handoff from one status to another.
_WAYS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("approved", "in_progress"): ("claim",),
    ("approved", "completed"): ("claim", "complete"),
    ("approved", "blocked"): ("claim", "block"),
    ("in_progress", "approved"): ("release",),
    ("in_progress", "blocked"): ("block",),
    ("in_progress", "completed"): ("complete",),
    ("blocked", "in_progress"): ("unblock",),
    ("blocked", "completed"): ("unblock", "complete"),
}
_BRACKETS: Final = " ()（）[]—-:：,，"


class Held(NamedTuple):
    """An edit that is not made: what it is, who may make it, and by which command."""

    what: str
    who: str
    command: str


class Plan(NamedTuple):
    """What to sign, in this order; ``amends`` tells that the file's content becomes a new skeleton; what is held."""

    steps: tuple[EventData, ...]
    amends: bool
    held: tuple[Held, ...]


class Standing(NamedTuple):
    """The handoff an edit is about: its id, who has which part, and its status in the ledger."""

    id: str
    senders: tuple[str, ...]
    receiver: str
    reviewer: str
    status: str

    @classmethod
    def of(cls, shown: dict[str, Any]) -> Standing:
        """Return the standing of the handoff that ``handoffs.show`` answered."""
        senders = tuple(name for name in (shown["from"], shown["importer"]) if name)
        return cls(shown["id"], senders, shown["to"], shown["reviewer"] or shown["from"], shown["status"])


def plan_edits(handoff: Standing, *, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile, acting: str) -> Plan:
    """Return what the edits from ``base`` to ``edited`` ask for that ``ledger``, the file as it is now, lacks."""
    edits = differences(base, edited)
    planner = _Planner(handoff, acting, _reason(edited, ledger))
    if edits.is_content_changed and differences(ledger, edited).is_content_changed:
        planner.amend(edits)
    way = planner.way(edits.status)
    planner.begin(way)
    planner.tick(edits, ledger, way)
    planner.finish(way)
    planner.log(edits.log, Counter(map(_said, ledger.log)) - Counter(map(_said, base.log)))
    return Plan(tuple(planner.steps), planner.amends, tuple(planner.held))


def plan_status(handoff: Standing, *, status: str, reason: str, acting: str) -> Plan:
    """Return what a status that somebody wrote asks for; ``reason`` are the words that he wrote beside it."""
    planner = _Planner(handoff, acting, reason)
    way = planner.way(status)
    planner.begin(way)
    planner.finish(way)
    return Plan(tuple(planner.steps), amends=False, held=tuple(planner.held))


def reason_in(text: str) -> str:
    """Return the words beside a status, without the brackets or dashes they stand in."""
    return text.strip(_BRACKETS)


class _Planner:
    """The plan while it is made."""

    def __init__(self, handoff: Standing, acting: str, reason: str) -> None:
        self._handoff = handoff
        self._acting = acting
        self._reason = reason
        self.steps: list[EventData] = []
        self.held: list[Held] = []
        self.amends = False

    def amend(self, edits: Edits) -> None:
        """Let the sender change the content, as long as nobody works on it."""
        what = "change " + (", ".join(edits.fields) if edits.fields else "the text")
        if "sender" in edits.fields:
            what += " (From is who signed it, and stays)"
        elif self._handoff.status not in ("pending", "approved"):
            what += f" (it is {self._handoff.status}: content is amended before work begins)"
        elif self._acting in self._handoff.senders:
            self.amends = True
            return
        self._hold(what, self._handoff.senders[:1], "amend …")

    def way(self, status: str | None) -> tuple[str, ...]:
        """Return the receiver's steps that lead to the edited status; hold what is not his to do."""
        now = self._handoff.status
        if status is None or status == now:
            return ()
        reason = self._reason
        if (now, status) in _WAYS:
            steps = _WAYS[now, status]
            if self._acting != self._handoff.receiver or ("block" in steps and not reason):
                self._hold(f"set the status to {status}", (self._handoff.receiver,), f"{steps[-1]} …")
                return ()
            return steps
        if status in _REVIEWS:
            self._hold(f"set the status to {status}", (self._handoff.reviewer,), _REVIEWS[status])
        elif status == "cancelled" and self._acting in self._handoff.senders and reason:
            self.steps.append(kinds.HandoffCancelled(reason=reason))
        elif status in ("cancelled", "superseded"):
            command = "cancel --reason …" if status == "cancelled" else "supersede --by …"
            self._hold(f"set the status to {status}", self._handoff.senders[:1], command)
        else:
            self._hold(f"set the status to {status}, which does not follow from {now}", (), "why")
        return ()

    def begin(self, way: tuple[str, ...]) -> None:
        """Take up the work, before anything is ticked."""
        if "claim" in way:
            self.steps.append(kinds.HandoffClaimed())
        if "unblock" in way:
            self.steps.append(kinds.HandoffUnblocked())

    def tick(self, edits: Edits, ledger: HandoffFile, way: tuple[str, ...]) -> None:
        """Tick what was ticked, and take back what was not."""
        works = self._handoff.status == "in_progress" or "claim" in way or "unblock" in way
        may = self._acting == self._handoff.receiver and works
        for position, checked in _missing(edits.tasks, ledger.tasks):
            if may:
                self.steps.append(kinds.HandoffTaskChecked(position=position, checked=checked))
            else:
                self._hold_tick("task", position, checked=checked)
        for position, checked in _missing(edits.criteria, ledger.criteria):
            if may:
                self.steps.append(kinds.HandoffCriterionChecked(position=position, checked=checked))
            else:
                self._hold_tick("criterion", position, checked=checked)

    def finish(self, way: tuple[str, ...]) -> None:
        """Give the work back, stop or end it, after everything was ticked."""
        if "release" in way:
            self.steps.append(kinds.HandoffReleased(reason=self._reason))
        if "block" in way:
            self.steps.append(kinds.HandoffBlocked(reason=self._reason))
        if "complete" in way:
            self.steps.append(kinds.HandoffCompleted(summary=self._reason))

    def log(self, added: tuple[LogLine, ...], known: Counter[tuple[str | None, str]]) -> None:
        """Log the lines that were added, but for those that the ledger knows already."""
        parties = (*self._handoff.senders, self._handoff.receiver, self._handoff.reviewer)
        for line in added:
            author = line.author or self._acting
            if known[author, line.text]:
                known[author, line.text] -= 1
            elif author == self._acting and self._acting in parties and line.text.strip():
                self.steps.append(kinds.HandoffLogged(text=line.text.strip()))
            else:
                self._hold(f"log {line.text!r}", (author,), f"log {shlex.quote(line.text)}")

    def _hold_tick(self, what: str, position: int, *, checked: bool) -> None:
        undo = "" if checked else " --undo"
        verb = "tick" if checked else "untick"
        text = f"{verb} {what} {position + 1}"
        if self._handoff.status != "in_progress":
            text += f" (it is {self._handoff.status})"
        self._hold(text, (self._handoff.receiver,), f"check --{what} {position + 1}{undo}")

    def _hold(self, what: str, who: tuple[str, ...], command: str) -> None:
        name = who[0] if who and who[0] else self._handoff.reviewer
        verb, _, options = command.partition(" ")
        words = f"baton handoff {verb} {shlex.quote(self._handoff.id)}" + (f" {options}" if options else "")
        self.held.append(Held(what, name, words if verb == "why" else f"{words} --as {name}"))


def _missing(ticks: Mapping[int, bool], boxes: Sequence[Checkbox]) -> Iterator[tuple[int, bool]]:
    for position, checked in ticks.items():
        if position < len(boxes) and boxes[position].is_checked != checked:
            yield position, checked


def _reason(edited: HandoffFile, ledger: HandoffFile) -> str:
    if edited.status is None or (ledger.status is not None and edited.status.rest == ledger.status.rest):
        return ""  # words that stood there before are no reason for this change
    return reason_in(edited.status.rest)


def _said(line: LogLine) -> tuple[str | None, str]:
    return line.author, line.text
