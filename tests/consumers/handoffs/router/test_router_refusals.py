"""A step that cannot be routed becomes a dead letter with its reason. A wrong file stops no chain that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from routed_ledger import content

from deedbook.consumers.handoffs.router.chains_file import ChainsFile
from deedbook.consumers.handoffs.router.worker import RouterWorker
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from routed_ledger import Routed

TWO_STEPS = b"""
[[chain]]
name = "pair"
when = "handoff.verified"
where = {to = "minimax"}
[[chain.then]]
to = "nobody"
title = "One"
[[chain.then]]
to = "claude"
title = "Two"
"""


def test_refused_step_is_a_dead_letter_and_the_others_are_made(routed: Routed) -> None:
    routed.write(TWO_STEPS)
    router = routed.router()
    routed.verify("t1", to="minimax")
    routed.route(router)
    assert [content(one).to for one in routed.made()] == ["claude"]
    (reason,) = routed.letters()
    assert reason.startswith("chain pair, step 1: AGENT_UNKNOWN: there is no agent nobody")
    routed.verify("t2", to="minimax")
    routed.route(router)
    assert [content(one).to for one in routed.made()] == ["claude"] * 2


def test_dead_letter_is_routed_when_its_reason_is_gone(routed: Routed) -> None:
    routed.write(TWO_STEPS)
    router = routed.router()
    routed.verify("t1", to="minimax")
    cause = routed.size - 1
    routed.route(router)
    router.retry(cause)
    assert len(routed.letters()) == 1
    routed.ledger.register("nobody")
    router.retry(cause)
    assert routed.letters() == []
    assert [content(one).to for one in routed.made()] == ["claude", "nobody"]
    with pytest.raises(Refused, match="not a dead letter"):
        router.retry(cause)


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ('{to = "claude", title = "t", reviewer = "alice"}', "NOT_AUTHORIZED"),
        ('{to = "claude", title = "t", reviewer = "claude"}', "SELF_APPROVAL"),
        ('{to = "{title}", title = "t"}', "INVALID_FIELD"),
        ('{to = "rita", title = "t"}', "REVIEWER_REQUIRED"),
    ],
)
def test_what_the_gate_refuses_is_kept_with_its_code(routed: Routed, then: str, code: str) -> None:
    routed.write(f'[[chain]]\nname = "c"\nwhen = "handoff.verified"\nthen = {then}\n'.encode())
    router = routed.router()
    routed.verify("t1", title="No Name")
    routed.route(router)
    (reason,) = routed.letters()
    assert reason.startswith(f"chain c, step 1: {code}: ")


def test_dead_letter_is_not_forgotten_because_the_file_is_broken(routed: Routed) -> None:
    routed.write(TWO_STEPS)
    router = routed.router()
    routed.verify("t1", to="minimax")
    cause = routed.size - 1
    routed.route(router)
    routed.write(b"[[chain]")
    with pytest.raises(Refused, match="not TOML"):
        RouterWorker(router._author, routed.reader.answer, routed.store, ChainsFile(routed.file)).retry(cause)
    assert len(routed.letters()) == 1


def test_broken_file_is_kept_aside_and_the_chains_before_it_go_on(routed: Routed) -> None:
    router = routed.router()
    routed.write(b"[[chain]\n")
    routed.verify("t1", to="minimax", title="Tests")
    routed.route(router)
    assert [one.name for one in routed.made()] == ["t1-validate-1"]


def test_router_that_never_saw_a_right_file_waits_and_loses_nothing(routed: Routed) -> None:
    routed.router()
    story = routed.file.read_bytes()
    routed.write(b"[[chain]\n")
    routed.verify("t1", to="minimax", title="Tests")
    routed.ledger.approve("t2", routed.ledger.hand_over("t2"))
    router = routed.router()
    assert routed.made() == []
    assert routed.announced() == ["t2"]
    routed.write(story)
    routed.route(router)
    assert [one.name for one in routed.made()] == ["t1-validate-1"]
