"""The facts of a handoff that decisions need, computed from folded states; why, next, the board and lists share them.

Pure. ``facts`` reads the record of the handoff, the records of the handoffs that it depends on, and the agents and keys
of the ledger. A caller that acts gets these from verified entries; a list gets them from the states that the fold
stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.authority import Agents, voided
from deedbook.ledger.lifecycle.handoff import (
    MET,
    counted_status,
    is_own_import,
    report_on_completion,
    report_on_decision,
    reports_on_waivers,
    void_handover,
)
from deedbook.ledger.lifecycle.handoff_status import Status, is_lapsed, is_unlocked, never_unlocks, stage_of
from deedbook.ledger.lifecycle.machine import void_text
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.handoffs.claims import claims_over
from deedbook.projections.handoffs.record import HandoffRecord, state_of


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that is not settled: its number, who asked, who was asked, and whether it was answered."""

    number: int
    by: str
    to: str
    is_answered: bool


class HandoffFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff as of one snapshot: its status and parties, and whether its dependencies let it start."""

    id: str
    status: Status
    version: str = ""
    sender: str
    importer: str = ""
    receiver: str
    reviewer: str  # the sender if no other is named
    unlock_at: UnlockAt = "completed"
    reason: str = ""
    claimed_status: str | None = None
    is_unlocked: bool = True
    unlocked_index: int = -1  # the last event of a dependency that unlocked it
    is_lapsed: bool = False  # by the ledger's clock
    depends_on: tuple[str, ...] = ()
    stuck_on: str | None = None  # the first dependency that will never be done
    stuck_status: Status | None = None  # its status; None: it does not exist
    stuck_claim: str | None = None  # the status that it claims to be over by, if nobody here has verified it
    stuck_reason: str = ""  # the reason of that status; of a superseded one, it names the replacement
    approval_ended_by: str = ""  # the author of the amendment that ended its approval
    is_waiver_asked: bool = False
    tasks_left: tuple[int, ...] = ()  # counted from 1
    criteria_left: tuple[int, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    claimed_ms: int | None = None
    status_by: str | None = None  # the signer of the event that set its status, and its time
    status_ms: int | None = None
    counted_status: Status | None = None  # its status if only valid decisions count; None: ``status``
    approval_index: int | None = None
    compromised_approval: int | None = None  # the entry that reports a key on which its approval rests
    handover_index: int | None = None  # the hand-over of the review that does not count
    compromised_handover: int | None = None
    handed_to: str = ""  # the reviewer by that hand-over
    completion_index: int | None = None
    compromised_completion: int | None = None
    verification_index: int | None = None
    compromised_verification: int | None = None
    compromised_waivers: dict[int, int] = {}  # by the number of the criterion, counted from 1
    receiver_void: str = ""  # why the role of its receiver does not count
    is_receiver_registered: bool = True  # an imported file may name anybody
    receiver_removed: int | None = None  # the entry that removed its receiver
    reviewer_removed: int | None = None  # the entry that removed its named reviewer
    is_own_import: bool = False  # its reviewer sent or imported it, and is no human

    @property
    def questions_left(self) -> list[int]:
        """The numbers of the questions to its receiver that are not settled: it cannot be completed before."""
        return [question.number for question in self.questions if question.to == self.receiver]

    @property
    def is_orphaned(self) -> bool:
        """Whether its receiver was removed while work is left."""
        return self.receiver_removed is not None and stage_of(self.status) in ("waiting", "working")

    @property
    def is_unreviewed(self) -> bool:
        """Whether its reviewer must act next, and was removed or cannot confirm their own import."""
        cannot_act = self.reviewer_removed is not None or self.is_own_import
        return cannot_act and (self.waits_for_approval or self.status == "completed")

    @property
    def is_unreceived(self) -> bool:
        """Whether it is approved, but its receiver cannot claim it: they are unknown here, or lost the role."""
        is_claimable = self.status == "approved" or self.is_lapsed
        is_receiver_able = self.is_receiver_registered and not self.receiver_void
        return is_claimable and not is_receiver_able and not self.is_orphaned

    @property
    def amender(self) -> str:
        """The agent that can amend it: who imported it acts for its sender."""
        return self.importer or self.sender

    @property
    def is_imported(self) -> bool:
        """Whether it is from a file, and nobody here has confirmed it."""
        return self.status == "pending" and self.claimed_status is not None

    @property
    def is_history(self) -> bool:
        """Whether it is from a file that claims to be over. Then it waits for nobody."""
        return self.is_imported and claims_over(self.claimed_status)

    @property
    def waits_for_approval(self) -> bool:
        """Whether it needs an approval, perhaps again because its present approval does not count."""
        is_claimable = self.status == "approved" or self.is_lapsed
        return self.status == "pending" or (is_claimable and self.compromised_approval is not None)

    def is_unlocked_by(self, other: HandoffFacts | None) -> bool:
        """Whether ``other`` allows this handoff to start; None: it does not exist."""
        return is_unlocked(None if other is None else other.counted_status or other.status, self.unlock_at)


def facts_of(record: HandoffRecord, known: Mapping[str, HandoffRecord], agents: Agents, now_ms: int) -> HandoffFacts:
    """Return the facts of a handoff that exists; ``known`` has the existing handoffs that it depends on."""
    state, latest = state_of(record), record.latest
    dependencies = {on: known.get(on) for on in state.depends_on}
    statuses = {on: None if other is None else state_of(other).status for on, other in dependencies.items()}
    counted = (None if other is None else counted_status(state_of(other), agents) for other in dependencies.values())
    waivers = reports_on_waivers(state, agents)
    void = voided(agents, state.receiver, rules_of("handoff").roles)
    receiver, index = agents.agent(state.receiver), state.approval_index
    handover = void_handover(state, agents)
    reviewer_name = record.reviewer if handover is None else handover[0].by
    reviewer = None if reviewer_name is None else agents.agent(reviewer_name)
    stuck_on = next((on for on, other in dependencies.items() if _is_dead_end(other)), None)
    stuck = None if stuck_on is None else dependencies[stuck_on]
    set_by = latest.get(f"handoff.{state.status}")
    return HandoffFacts(
        id=record.id,
        status=state.status,
        version=state.version,
        sender=state.sender,
        importer=state.importer,
        receiver=state.receiver,
        reviewer=reviewer_name or state.sender,
        unlock_at=state.unlock_at,
        reason=record.reason,
        claimed_status=state.claimed_status,
        is_unlocked=all(is_unlocked(status, state.unlock_at) for status in counted),
        unlocked_index=max((_done_index(on, state.unlock_at) for on in dependencies.values() if on), default=-1),
        is_lapsed=is_lapsed(state.status, state.lease, now_ms),
        depends_on=state.depends_on,
        stuck_on=stuck_on,
        stuck_status=None if stuck_on is None else statuses[stuck_on],
        stuck_claim=None if stuck is None else claim_of_history(stuck),
        stuck_reason="" if stuck is None else state_of(stuck).reason,
        approval_ended_by=_ended_by(record, state.status),
        is_waiver_asked="asked" in state.criteria,
        tasks_left=tuple(number for number, mark in enumerate(state.tasks, 1) if mark != "done"),
        criteria_left=tuple(at + 1 for at, mark in enumerate(state.criteria) if mark not in MET or at in waivers),
        questions=tuple(
            OpenQuestion(number, asked.by, asked.to, mark == "answered")
            for number, (mark, asked) in enumerate(zip(state.questions, state.asked, strict=True), 1)
            if mark != "settled"
        ),
        claimed_ms=None if record.claimed_index is None else latest["handoff.claimed"].at_ms,
        status_by=None if set_by is None else set_by.author,
        status_ms=None if set_by is None else set_by.at_ms,
        approval_index=index,
        compromised_approval=report_on_decision(state, state.approval, agents),
        counted_status=counted_status(state, agents),
        handover_index=None if handover is None else handover[0].index,
        compromised_handover=None if handover is None else handover[1],
        handed_to="" if handover is None else state.reviewer,
        completion_index=None if state.completion is None else state.completion.index,
        compromised_completion=report_on_completion(state, agents),
        verification_index=None if state.verification is None else state.verification.index,
        compromised_verification=report_on_decision(state, state.verification, agents),
        compromised_waivers={at + 1: report for at, report in waivers.items()},
        receiver_void="" if void is None else void_text(state.receiver, void),
        is_receiver_registered=receiver is not None,
        receiver_removed=None if receiver is None else receiver.removed_index,
        reviewer_removed=None if reviewer is None else reviewer.removed_index,
        is_own_import=agents.agent(state.reviewer) is not None and is_own_import(state, state.reviewer, agents),
    )


def _ended_by(record: HandoffRecord, status: Status) -> str:
    """Return the author of the amendment that ended an approval; empty if it was never approved, or is again."""
    approved, amended = (record.latest.get(kind) for kind in ("handoff.approved", "handoff.amended"))
    is_ended = status == "pending" and approved is not None and amended is not None and amended.index > approved.index
    return amended.author if is_ended and amended is not None else ""


def claim_of_history(record: HandoffRecord) -> str | None:
    """Return the status that an imported handoff claims if it says that pending work is over; else None."""
    state = state_of(record)
    return state.claimed_status if state.status == "pending" and claims_over(state.claimed_status) else None


def _is_dead_end(dependency: HandoffRecord | None) -> bool:
    """Return whether nobody will finish a dependency (None: it does not exist), so that its dependents must change."""
    if dependency is None:
        return True
    return never_unlocks(state_of(dependency).status) or claim_of_history(dependency) is not None


def _done_index(dependency: HandoffRecord, unlock_at: UnlockAt) -> int:
    done = dependency.completed_index if unlock_at == "completed" else None
    index = dependency.verified_index if done is None else done
    return -1 if index is None else index
