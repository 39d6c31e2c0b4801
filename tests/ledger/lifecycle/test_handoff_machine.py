"""A handoff never reaches a state that the protocol forbids, whatever steps agents try in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec
from building import NO_EVENT
from event_examples import smallest
from given import fact
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.lifecycle.handoff import MACHINE, MET, HandoffState, compute_result
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status, is_lapsed

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

NAMES = ["alice", "bob", "rita", "eve"]
WRONG_VERSION = "sha256:" + "0" * 64
LEADS_TO = {
    None: {"pending", "approved"},
    "pending": {"approved", "rejected", "cancelled"},
    "approved": {"pending", "in_progress", "cancelled"},
    "in_progress": {"pending", "approved", "blocked", "completed", "cancelled"},
    "blocked": {"in_progress", "cancelled"},
    "completed": {"in_progress", "verified", "cancelled"},
    "rejected": set(),
    "verified": set(),
    "cancelled": set(),
}
REVIEWS = (
    kinds.HandoffApproved,
    kinds.HandoffRejected,
    kinds.HandoffCriterionWaived,
    kinds.HandoffChangesRequested,
    kinds.HandoffVerified,
)
names = st.sampled_from(NAMES)
positions = st.integers(0, 3)
DRAWN: dict[type[EventData], dict[str, st.SearchStrategy[object]]] = {
    kinds.HandoffClaimed: {"lease_seconds": st.none() | st.integers(0, 30)},
    kinds.HandoffTaskChecked: {"position": positions, "checked": st.booleans()},
    kinds.HandoffCriterionChecked: {"position": positions, "checked": st.booleans()},
    kinds.HandoffCriterionWaived: {"position": positions, "reason": st.just("known")},
}
# The class HandoffMachine has a rule for each of these kinds.
OF_RULES = {
    kinds.HandoffCreated,
    kinds.HandoffApproved,
    kinds.HandoffVerified,
    kinds.HandoffChangesRequested,
    kinds.HandoffAmended,
}
# Only the cases of ``proto/cases`` test these kinds: they need other handoffs, or are about one criterion or question.
OF_CASES = {
    kinds.HandoffReady,
    kinds.HandoffSuperseded,
    kinds.HandoffWaiverAsked,
    kinds.HandoffQuestionAsked,
    kinds.HandoffQuestionAnswered,
    kinds.HandoffQuestionSettled,
}
OTHERS = [
    st.just(msgspec.convert(smallest(name), kind.data))
    for name, kind in KINDS.items()
    if kind.stream == "handoff" and kind.data not in DRAWN.keys() | OF_RULES | OF_CASES
]
data_of_steps: st.SearchStrategy[EventData] = st.one_of(
    *(st.builds(data, **fields) for data, fields in DRAWN.items()), *OTHERS
)


def test_the_machine_leads_to_every_status() -> None:
    assert LEADS_TO.keys() - {None} == set(get_args(Status)) - {"superseded"}


class HandoffMachine(RuleBasedStateMachine):
    """Four agents try every step at any time; only the transition function decides."""

    def __init__(self) -> None:
        super().__init__()
        self.state: HandoffState | None = None
        self.history: list[Event] = []
        self.now_s = 0

    @initialize(sender=names, to=names, reviewer=st.none() | names, tasks=st.integers(0, 2), criteria=st.integers(0, 2))
    def create(self, sender: str, to: str, reviewer: str | None, tasks: int, criteria: int) -> None:
        """Create a handoff between any two agents."""
        self.sender = sender
        data = kinds.HandoffCreated(title="t", to=to, reviewer=reviewer, tasks=["x"] * tasks, criteria=["y"] * criteria)
        self.attempt(sender, data)

    @rule(author=names, data=data_of_steps, seconds=st.integers(0, 20))
    def step(self, author: str, data: EventData, seconds: int) -> None:
        """Try a step."""
        self.now_s += seconds
        self.attempt(author, data)

    @rule(author=names, is_right=st.booleans())
    def approve(self, author: str, is_right: bool) -> None:
        """Try to approve the current version or a wrong one."""
        self.attempt(author, kinds.HandoffApproved(version=self.version if is_right else WRONG_VERSION))

    @rule(author=names, is_last=st.booleans(), is_done=st.booleans())
    def judge(self, author: str, is_last: bool, is_done: bool) -> None:
        """Try to verify the last or the first result, or to request changes of it."""
        ids = [event.id for event in self.history if isinstance(event.data, kinds.HandoffCompleted)] or [NO_EVENT]
        result = compute_result(self.version, ids[-1 if is_last else 0])
        if is_done:
            self.attempt(author, kinds.HandoffVerified(result=result))
        else:
            self.attempt(author, kinds.HandoffChangesRequested(result=result, reasons=["more"]))

    @rule(author=names, reviewer=st.none() | names, hands_over=st.booleans())
    def amend(self, author: str, reviewer: str | None, hands_over: bool) -> None:
        """Try to amend the handoff's reviewer and nothing else."""
        if self.history:
            content = msgspec.structs.asdict(self.history[0].data) | {"reviewer": reviewer}
            self.attempt(author, kinds.HandoffAmended(**content, hands_over=hands_over))

    @rule()
    def do_the_next_thing(self) -> None:
        """Do the next step of the protocol as the agent whose turn it is: otherwise late states would be rare."""
        if self.state is None:
            return
        steps: dict[str, list[tuple[str, EventData]]] = {
            "pending": [(self.state.reviewer, kinds.HandoffApproved(version=self.version))],
            "approved": [(self.state.receiver, kinds.HandoffClaimed())],
            "blocked": [(self.state.receiver, kinds.HandoffUnblocked())],
            "in_progress": [
                *(
                    (self.state.receiver, kinds.HandoffCriterionChecked(position=position))
                    for position, mark in enumerate(self.state.criteria)
                    if mark != "checked"
                ),
                (self.state.receiver, kinds.HandoffCompleted()),
            ],
        }
        now_ms = fact("bob", kinds.HandoffClaimed(), at_s=self.now_s).accepted_ms
        lapsed = is_lapsed(self.state.status, self.state.lease, now_ms)
        for author, data in steps.get("approved" if lapsed else self.state.status, []):
            assert self.attempt(author, data)

    @property
    def version(self) -> str:
        """The current version, or ``WRONG_VERSION`` if there is no handoff."""
        return WRONG_VERSION if self.state is None else self.state.version

    def attempt(self, author: str, data: EventData) -> bool:
        """Try an event, and check its effect on the state; return whether it was accepted."""
        event = fact(author, data, at_s=self.now_s, index=len(self.history))
        before = self.state
        try:
            self.state = MACHINE.decide(before, event)
        except Refused:
            return False
        self.history.append(event)
        status = None if before is None else before.status
        if status != self.state.status:
            assert self.state.status in LEADS_TO[status]
        # A hand-over of the review may be void, which only the ledger knows. So each agent that handed over the review
        # may still be the reviewer.
        reviewers = set() if before is None else {before.reviewer, *(handover.by for handover in before.handovers)}
        if isinstance(data, REVIEWS):
            assert author in reviewers
            assert author != self.state.receiver
        if isinstance(data, kinds.HandoffApproved):
            # The sender may approve only a second time: the rules about keys may ask for a second approval, and a
            # handoff whose claim has expired is approved again.
            is_approved = status == "approved" or is_lapsed(status, before.lease, event.accepted_ms)
            assert author != self.state.sender or is_approved
            assert data.version == self.state.version
        if isinstance(data, kinds.HandoffCompleted):
            assert {*self.state.criteria} <= MET
        if isinstance(data, (kinds.HandoffVerified, kinds.HandoffChangesRequested)):
            assert before is not None
            assert data.result == before.result != ""
        if isinstance(data, kinds.HandoffAmended):
            assert before is not None
            assert author in (reviewers if data.hands_over else {self.sender})
            assert not data.hands_over or (self.state.status == "pending" and data.reviewer not in (None, self.sender))
        if isinstance(data, (kinds.HandoffTaskChecked, kinds.HandoffCriterionChecked, kinds.HandoffCriterionWaived)):
            assert self.state != before
        if before is not None and before.status in FINAL:
            # A final state changes only by a second verification, which the rules about keys may ask for.
            assert msgspec.structs.replace(self.state, verification=before.verification) == before
        return True

    @invariant()
    def work_was_approved_before_it_began(self) -> None:
        """A reviewer approved every handoff before work on it began, unless its sender is its own reviewer."""
        if self.state is None or self.state.status in ("pending", "rejected", "cancelled"):
            return
        set_at = max(at for at, event in enumerate(self.history) if isinstance(event.data, kinds.HandoffContent))
        approvals = [event.author for event in self.history[set_at:] if isinstance(event.data, kinds.HandoffApproved)]
        # A hand-over of the review may be void, which only the ledger knows. Then the earlier reviewer is still the
        # reviewer.
        reviewers = {self.state.reviewer, *(made.by for made in self.state.handovers)}
        assert set(approvals) <= reviewers
        assert approvals or self.state.reviewer == self.state.sender

    @invariant()
    def reviewer_is_nobody_who_works(self) -> None:
        """The receiver is never the reviewer; the sender is only if the handoff names no reviewer."""
        if self.state is not None:
            assert self.state.reviewer != self.state.receiver
            if self.state.reviewer == self.state.sender:
                contents = [event.data for event in self.history if isinstance(event.data, kinds.HandoffContent)]
                assert contents[-1].reviewer is None

    @invariant()
    def history_alone_gives_the_state(self) -> None:
        """Replaying the accepted events gives the same state: nothing is stored elsewhere."""
        state: HandoffState | None = None
        for event in self.history:
            state = MACHINE.decide(state, event)
        assert state == self.state


TestHandoffMachine = HandoffMachine.TestCase
TestHandoffMachine.settings = settings(stateful_step_count=30, deadline=None)
