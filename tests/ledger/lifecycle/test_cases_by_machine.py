"""Each case of ``proto/cases``, decided by the state machines on a ledger in memory."""

from __future__ import annotations

import pytest
from machine_runner import MachineRunner
from rule_cases import Case, all_cases, id_of, play


@pytest.mark.parametrize("case", all_cases(), ids=id_of)
def test_machine_reaches_the_outcome(case: Case) -> None:
    outcome = play(case, MachineRunner())
    assert case.is_met_by(outcome), (case.then, outcome)
