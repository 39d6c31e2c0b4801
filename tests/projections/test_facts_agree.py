"""Lists of handoffs agree with answers that agents act on, for random histories and dependencies of handoffs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import pytest
from agreement import assert_agreement
from building import accepting, sent_back
from faults import chances, times

from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.authority import AgentRemoved, KeyCompromised
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.client.client import Client

HISTORIES: Final = 40
"""The histories of one ledger: so many handoffs, which depend on each other."""
STEPS: Final = 5
COMPARED: Final = 3


@pytest.fixture
def client(ledger: Ledger) -> Iterator[Client]:
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as made:
        yield made


def test_lists_show_what_changed_elsewhere(ledger: Ledger, client: Client) -> None:
    for name in ("carol", "dora"):
        ledger.register(name)
    ledger.approve("second", ledger.hand_over("second", depends_on=["first"]))
    ledger.approve("hers", ledger.hand_over("hers", to="dora"))
    assert_agreement(client)
    ledger.finish("first")
    assert_agreement(client)
    assert [row["id"] for row in client.view("handoffs.list", {"ready": True})["items"]] == ["hers", "second"]
    ledger.emit("root", "agent/dora", AgentRemoved(agent="dora", reason="gone"))
    assert_agreement(client)
    assert [row["id"] for row in client.view("handoffs.list", {"ready": True})["items"]] == ["second"]
    stolen = KeyCompromised(key=ledger.keys["rita"].public.hex(), since=1)
    ledger.emit("root", "agent/rita", stolen)
    assert_agreement(client)
    assert client.view("handoffs.list", {"ready": True})["total"] == 0


@pytest.mark.parametrize("chance", chances("histories", max(1, times(HISTORIES, 80) // HISTORIES)))
def test_facts_from_states_are_those_of_lists(ledger: Ledger, client: Client, chance: random.Random) -> None:
    for name in ("carol", "dora"):
        ledger.register(name)
    start = ledger.head()[0]
    names: list[str] = []
    for number in range(HISTORIES):
        with contextlib.suppress(Refused):  # refused if the agent was removed
            names.append(begin(ledger, chance, names, number))
        if number == HISTORIES // 4:
            ledger.register("erin")
            ledger.register("rolf", "reviewer")
        if number == HISTORIES * 3 // 4:
            ledger.emit("root", "agent/rolf", AgentRemoved(agent="rolf", reason="gone"))
        for _ in range(chance.randrange(2 * STEPS)):
            with contextlib.suppress(Refused):  # refused if it is another agent's turn
                go_on(ledger, chance, chance.choice(names[-8:]))
            ledger.clock.advance(chance.randrange(60))
        if number == HISTORIES * 2 // 3:
            ledger.emit("root", "agent/dora", AgentRemoved(agent="dora", reason="gone"))
        if number == HISTORIES * 4 // 5:
            stolen = KeyCompromised(key=ledger.keys["rita"].public.hex(), since=ledger.head()[0] // 2)
            ledger.emit("root", "agent/rita", stolen)
        if number in (HISTORIES // 2, HISTORIES * 2 // 3, HISTORIES * 4 // 5, HISTORIES - 1):
            assert sorted(assert_agreement(client)) == sorted(names)
    for index in chance.sample(range(start, ledger.head()[0]), COMPARED):
        assert_agreement(client, index)


def begin(ledger: Ledger, chance: random.Random, names: list[str], number: int) -> str:
    """Create or import a handoff, and return its id."""
    wanted = chance.sample(names, min(len(names), chance.randrange(3))) + ["missing"] * (chance.random() < 0.05)
    fields: dict[str, Any] = {
        "to": chance.choice(["bob", "carol", "dora"]),
        "depends_on": wanted,
        "unlock_at": chance.choice(["completed", "verified"]),
        "criteria": ["c"] * chance.randrange(2),
        "reviewer": "rolf" if HISTORIES // 4 < number < HISTORIES * 3 // 4 and chance.random() < 0.3 else "rita",
    }
    name = f"h{number}"
    if number % 9 == 8:
        ledger.emit("alice", f"handoff/{name}", imported(fields | {"to": chance.choice(["bob", "erin", "nobody"])}))
    else:
        ledger.hand_over(name, **fields)
    return name


def imported(fields: dict[str, Any]) -> RecordImported:
    """Return the record of a handoff file that claims to be approved."""
    return RecordImported(
        original="blake3:" + "7" * 64,
        source="h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "t", "reviewer": "rita", **fields},
        claimed_author="Kuro",
        claims={"status": "approved"},
    )


def go_on(ledger: Ledger, chance: random.Random, name: str) -> None:
    """Try a step of a handoff as the right agent; the gate refuses it if the handoff is in another state."""
    stream, state = f"handoff/{name}", ledger.handoff(name)
    content = {
        "title": "again",
        "to": state.receiver,
        "reviewer": state.reviewer,
        "depends_on": list(state.depends_on[:1]),
    }
    usual: list[tuple[str, Any]] = [
        (state.reviewer, kinds.HandoffApproved(version=state.version)),
        (state.receiver, kinds.HandoffClaimed(lease_seconds=chance.choice([None, 60, 2 * 86_400]))),
        (state.receiver, kinds.HandoffCriterionChecked(position=0)),
        (state.receiver, kinds.HandoffCompleted(summary="done")),
        (state.reviewer, chance.choice([accepting(state), sent_back(state, "no")])),
    ]
    rare: list[tuple[str, Any]] = [
        (state.receiver, kinds.HandoffBlocked(reason="no disk")),
        ("rita", kinds.HandoffUnblocked()),
        (state.receiver, kinds.HandoffReleased(reason="no time")),
        (state.receiver, kinds.HandoffWaiverAsked(position=0, reason="cannot")),
        ("rita", kinds.HandoffQuestionAsked(to=chance.choice(["alice", state.receiver]), question="why")),
        (state.receiver, kinds.HandoffQuestionAnswered(position=0, answer="so")),
        ("rita", kinds.HandoffQuestionSettled(position=0)),
        ("alice", kinds.HandoffAmended(**content)),
        ("alice", kinds.HandoffAmended(**content | {"reviewer": "rita"})),
        ("alice", kinds.HandoffCancelled(reason="no need")),
        ("alice", kinds.HandoffSuperseded(by="h0")),
    ]
    # Most steps are usual ones: otherwise no handoff would be completed.
    author, data = chance.choice(usual if chance.random() < 0.8 else rare)
    if author in ledger.keys:  # an imported handoff may name agents that are not registered
        ledger.emit(author, stream, data)
