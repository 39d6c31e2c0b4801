"""The check of a file of chains warns of agents that are unknown, may not review, or would review their own work."""

from __future__ import annotations

from chain_files import STORY

from deedbook.consumers.handoffs.router.chains import advise
from deedbook.consumers.handoffs.router.chains_file import read_chains


def test_check_warns_of_agents_that_will_not_do() -> None:
    agents = {"minimax": frozenset({"agent"}), "gemini": frozenset({"agent"}), "rita": frozenset({"reviewer"})}
    chains = read_chains(STORY)
    assert advise(chains, agents, "rita") == ["chain validate, step 1: there is no agent claude"]
    assert advise(chains, None, "rita") == []
    assert "chain optimize, step 1: minimax has neither the role reviewer nor the role human" in advise(
        chains, agents, "minimax"
    )
    assert len([one for one in advise(chains, None, None) if "names no reviewer" in one]) == 2
    assert any("review their own work" in one for one in advise(chains, None, "gemini"))
