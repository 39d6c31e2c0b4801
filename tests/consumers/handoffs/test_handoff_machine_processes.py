"""Random agents in two processes on one ledger: no illegal state, and gate, view, rebuilt view and audit agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faults import times
from handoff_chronicle import Step
from handoff_contest import Contest, Process
from handoff_moves import OTHERS, ROUTER, Moves
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

sides = st.integers(0, 1)


class TwoProcesses(RuleBasedStateMachine):
    """Hypothesis mixes the rules; within a rule chance decides, by a seed that the output names.

    No test can choose which of two processes comes first. If hypothesis drew the later steps, it could not repeat them.
    """

    def __init__(self, processes: tuple[Process, Process]) -> None:
        super().__init__()
        self.contest = Contest(processes)

    @initialize(chance=st.randoms(use_true_random=True), behind_s=st.sampled_from([0, 7]))
    def begin(self, chance: Random, behind_s: int) -> None:
        """Register agents with random roles, and let alice hand over three things correctly, one of them by a file.

        The clock of the second process may be behind that of the first.
        """
        self.moves = Moves(self.contest.known, chance)
        self.contest.begin({name: self.moves.roles() for name in OTHERS} | {ROUTER: ["service"]}, behind_s)
        for name, on in (("h0", []), ("h1", ["h0"]), ("h2", ["h1", "h0"])):
            self.attempt(0, self.moves.opening(name, on))
        self.attempt(1, self.moves.brought_in("h3"))

    @rule(side=sides, times=st.integers(1, 6))
    def somebody_does_something(self, side: int, times: int) -> None:
        """Try some steps of one handoff; meanwhile time passes, and roles and keys come and go."""
        name = self.moves.movable()
        for _ in range(times):
            self.meanwhile(side)
            self.attempt(side, self.moves.step(name))

    @rule(side=sides)
    def somebody_tries_anything(self, side: int) -> None:
        """Create or import between any two, or try a step in whatever state."""
        self.meanwhile(side)
        self.attempt(side, self.moves.new())
        self.attempt(side, self.moves.step(self.moves.name(), to_the_rules=1))

    @rule(side=sides, times=st.integers(1, 2))
    def go_on(self, side: int, times: int) -> None:
        """Let the agent whose turn it is do the next step of the protocol."""
        name = self.moves.movable()
        for _ in range(times):
            self.go_on_with(side, name)

    def go_on_with(self, side: int, name: str) -> None:
        """Let the agent whose turn it is do the next step of this handoff."""
        for step in self.moves.next_steps(name):
            self.attempt(side, step)

    @rule()
    def two_do_something_at_once(self) -> None:
        """Both processes get a step of the same handoff at the same time."""
        name = self.moves.movable()
        self.attempt_both(self.moves.step(name), self.moves.step(name))

    @rule()
    def both_claim(self) -> None:
        """The receiver claims from both processes at the same time: one wins, and the other is refused."""
        name = self.moves.movable()
        handoff = self.contest.known.handoffs.get(name)
        if handoff is None or handoff.status == "pending":
            self.go_on_with(0, name)
        elif handoff.receiver:
            step = Step(handoff.receiver, "handoff.claimed", name, {})
            codes = self.attempt_both(step, step)
            assert codes.count(None) <= 1
            assert None not in codes or "ALREADY_CLAIMED" in codes

    def meanwhile(self, side: int) -> None:
        """Let time pass now and then, so that leases run out; grant or revoke a role, or a key."""
        if self.moves.is_one_of(4):
            self.contest.now_ms += self.moves.chance.choice([1000, 10_000, 30_000])
        if self.moves.is_one_of(8):
            self.attempt(side, self.moves.authority())

    def attempt(self, side: int, step: Step) -> None:
        """Let one process try a step."""
        self.contest.attempt(side, step)
        self.remember()

    def attempt_both(self, *steps: Step) -> list[str | None]:
        """Let both processes try at once; return the codes of their refusals."""
        codes = self.contest.attempt_both(*steps)
        self.remember()
        return codes

    def remember(self) -> None:
        """Store every version, so that later steps can try to approve versions that are outdated."""
        self.moves.versions |= dict.fromkeys(one.version for one in self.contest.known.handoffs.values())

    @invariant()
    def gate_and_view_agree(self) -> None:
        """Look at every handoff after every step."""
        self.contest.look()

    def teardown(self) -> None:
        """Look at the whole log, and close it."""
        try:
            self.contest.end()
        finally:
            self.contest.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[tuple[Process, Process]]:
    """Two processes that serve all examples, one ledger after the other."""
    both = (Process(), Process())
    yield both
    for process in both:
        process.close()


def test_handoffs_of_two_processes_never_leave_the_protocol(processes: tuple[Process, Process]) -> None:
    run_state_machine_as_test(
        lambda: TwoProcesses(processes),
        settings=settings(
            max_examples=times(2, 8),
            stateful_step_count=40,
            deadline=None,
            # Shrinking runs hundreds of examples, each with its own ledger. So a failure is printed as it was found.
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
