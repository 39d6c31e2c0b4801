"""Chains that can feed each other are named, and those that could multiply by themselves are refused."""

from __future__ import annotations

import pytest
from chain_files import STORY

from consumers.handoffs.router.chains import advise, check_breadth, described, find_loops, handoffs_at_once_max
from consumers.handoffs.router.chains_file import read_chains
from ledger.errors import Refused


def written(*chains: tuple[str, str, str, str]) -> bytes:
    """Return a file of chains given as name, when, where and to."""
    return "\n".join(
        f'[[chain]]\nname = "{name}"\nwhen = "{when}"\nwhere = {{{where}}}\nthen = {{to = "{to}", title = "T: {{id}}"}}'
        for name, when, where, to in chains
    ).encode()


@pytest.mark.parametrize(
    ("chains", "loops"),
    [
        ([("a", "handoff.verified", 'to = "x"', "y")], []),
        ([("a", "handoff.verified", 'to = "x"', "x")], [("a", "a")]),
        ([("a", "handoff.verified", 'to = "x"', "{from}")], [("a", "a")]),
        ([("a", "handoff.verified", 'to = "x", from = "alice"', "x")], []),
        ([("a", "handoff.verified", 'chain = ""', "x")], []),
        ([("a", "handoff.verified", 'title = "Lost*"', "x")], []),
        ([("a", "handoff.verified", 'title = ["Lost*", "T: *"]', "x")], [("a", "a")]),
        ([("a", "handoff.verified", 'title = "*bus"', "x")], [("a", "a")]),
        ([("a", "handoff.verified", 'to = "x"', "y"), ("b", "handoff.completed", 'to = "y"', "x")], [("a", "b", "a")]),
        ([("a", "handoff.verified", 'to = "x"', "y"), ("b", "handoff.verified", 'to = "y"', "z")], []),
    ],
)
def test_loops_are_found(chains: list[tuple[str, str, str, str]], loops: list[tuple[str, ...]]) -> None:
    assert find_loops(read_chains(written(*chains))) == loops


def test_chains_of_the_story_feed_each_other_and_no_one_themselves() -> None:
    assert find_loops(read_chains(STORY)) == []


@pytest.mark.parametrize(
    ("steps", "hops", "passes"), [(1, 64, True), (2, 8, True), (2, 9, False), (4, 4, True), (5, 5, False)]
)
def test_breadth_that_the_router_makes_by_itself_is_bounded(steps: int, hops: int, passes: bool) -> None:
    then = ",".join(['{to = "b", title = "t"}'] * steps)
    text = f'[[chain]]\nname = "c"\nwhen = "handoff.created"\nhops_max = {hops}\nthen = [{then}]\n'
    assert passes is (sum(steps**hop for hop in range(1, hops + 1)) <= handoffs_at_once_max)
    if passes:
        check_breadth(read_chains(text.encode()))
        return
    with pytest.raises(Refused) as refused:
        read_chains(text.encode())
    assert refused.value.code == "TOO_LARGE"


def test_breadth_behind_an_approval_is_not_the_routers_own() -> None:
    then = ",".join(['{to = "b", title = "t"}'] * 8)
    text = f'[[chain]]\nname = "c"\nwhen = "handoff.verified"\nthen = [{then}]\n'
    (chain,) = read_chains(text.encode())
    assert sum(len(chain.steps) ** hop for hop in range(1, chain.hops_max + 1)) > handoffs_at_once_max
    with pytest.raises(Refused) as refused:
        read_chains(text.replace("verified", "created").encode())
    assert refused.value.code == "TOO_LARGE"


def test_check_warns_of_agents_that_will_not_do() -> None:
    agents = {"minimax": frozenset({"agent"}), "gemini": frozenset({"agent"}), "rita": frozenset({"reviewer"})}
    chains = read_chains(STORY)
    assert advise(chains, agents, "rita") == ["chain validate, step 1: there is no agent claude"]
    assert advise(chains, None, "rita") == []
    assert "chain optimize, step 1: minimax is neither reviewer nor human" in advise(chains, agents, "minimax")
    assert len([one for one in advise(chains, None, None) if "names no reviewer" in one]) == 2
    assert any("review his own work" in one for one in advise(chains, None, "gemini"))


def test_loop_is_warned_of_with_its_bound() -> None:
    chains = read_chains(written(("a", "handoff.verified", 'to = "x"', "x")))
    (warning,) = advise(chains, None, "rita")
    assert warning == "loop: a → a can go on by itself; it stops after 8 hops"


def test_chain_is_described_as_its_file_says_it() -> None:
    shown = described(read_chains(STORY)[0])
    assert shown["then"][0]["title"] == "Validate: {title}"
    assert shown["then"][0]["unlock_at"] == "verified"
    assert shown["where"] == {"to": ["minimax"], "title": ["Tests*"]}
