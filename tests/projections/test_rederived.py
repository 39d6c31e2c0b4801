"""Re-derivations: which other agents came to the same conclusion, and why one of them may not be independent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from building import Ledger

from deedbook.consumers.reasoning.snapshots.act import act_on
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.reasoning import CheckedTree, Counts, ReasoningValidated
from deedbook.projections.answers import checked
from deedbook.projections.answers.reader import Reader

TASK = "Is the secret leaked?"
CONCLUSION = "Rotate the JWT secret immediately"
OWN = ["JWT_SECRET is read from the environment", "Everything in the environment is logged"]
OTHER = ["The log of 4 May holds the line JWT_SECRET=…", "The log server is open to 40 people"]


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(local_client, ledger.settings()) as made:
        yield made


def reason(
    ledger: Ledger,
    by: str,
    name: str,
    contents: list[str],
    *,
    conclusion: str = CONCLUSION,
    task: str = TASK,
    session: str = "",
    domain: str = "security",
) -> None:
    """Let an agent record and conclude a reasoning with these steps."""
    stream = f"reasoning/{name}"
    ledger.emit(by, stream, reasoning.ReasoningStarted(task=task, domain=domain, session=session))
    steps = [
        reasoning.Step(number, "assumption" if text.startswith("Perhaps") else "observation", text)
        for number, text in enumerate(contents, 1)
    ]
    if steps:
        ledger.emit(by, stream, reasoning.ReasoningExtended(steps=steps))
    conclude(ledger, by, name, len(steps) + 1, conclusion)


def conclude(ledger: Ledger, by: str, name: str, number: int, conclusion: str) -> None:
    step = reasoning.Step(number, "conclusion", conclusion)
    links = {number: [*range(1, number)]} if number > 1 else {}
    ledger.emit(by, f"reasoning/{name}", reasoning.ReasoningExtended(steps=[step], dependencies=links))
    ledger.emit(by, f"reasoning/{name}", reasoning.ReasoningConcluded(conclusion=conclusion))


def validate(ledger: Ledger, reader: Reader, by: str, name: str, *, passed: bool) -> None:
    ref = reader.answer("reasoning.show", {"id": name})["ref"]
    known = {"evidence": 1, "evidence_ok": int(passed), "issues": int(not passed)}
    counts = Counts(**(dict.fromkeys(Counts.__struct_fields__, 0) | known))
    issues = [] if passed else [reasoning.Issue("EVIDENCE_GONE", "Evidence gone: api/auth.py:23")]
    lists: dict[str, Any] = {"issues": issues, "evidence": [], "assumptions": [], "inferences": []}
    tree, signer = CheckedTree(type="folder"), {"validator_name": "deedbook-validator", "validator_version": "1"}
    report = ReasoningValidated(reasoning_ref=ref, passed=passed, tree=tree, counts=counts, **lists, **signer)
    ledger.emit(by, f"reasoning/{name}", report)


def settle(ledger: Ledger, by: str, name: str, *, holds: bool) -> None:
    data = reasoning.AssumptionSettled(step=1, holds=holds, how="looked it up")
    ledger.emit(by, f"reasoning/{name}", data)


def named(reader: Reader, name: str = "own") -> list[tuple[str, str, str]]:
    rows = reader.answer("validations.latest", {"id": name})["rederived"]
    return [(row["by"], row["reasoning_id"], row["doubt"]) for row in rows]


def test_another_agent_who_reaches_the_same_conclusion_is_named_on_both_sides(ledger: Ledger, reader: Reader) -> None:
    reason(ledger, "alice", "own", OWN)
    reason(ledger, "bob", "again", OTHER, conclusion="rotate the JWT  secret immediately.", task="Look for leaks")
    reason(ledger, "rita", "wrong", OTHER, conclusion="Do not rotate the JWT secret immediately")
    assert named(reader) == [("bob", "again", "")]
    assert named(reader, "again") == [("alice", "own", "")]
    ref = reader.answer("reasoning.show", {"id": "again"})["ref"]
    text = f"not validated; rederived by bob in {ref[7:19]}"
    assert reader.answer("validations.latest", {"id": "own"})["text"] == text


CASES: dict[str, tuple[Callable[[Ledger, Reader], None], list[str]]] = {
    "the author again is nobody else": (lambda ledger, _: reason(ledger, "alice", "again", OTHER), []),
    "another conclusion": (
        lambda ledger, _: reason(ledger, "bob", "again", OTHER, conclusion="All is well, we say"),
        [],
    ),
    "it is not concluded": (lambda ledger, _: _reopened(ledger), []),
    "a shared session": (
        lambda ledger, _: reason(ledger, "bob", "again", OTHER, session="s1"),
        ["both belong to the session s1"],
    ),
    "a copied step": (
        lambda ledger, _: reason(ledger, "bob", "again", [*OTHER, f"{OWN[1].lower()}."]),
        ["its step 3 has the same words"],
    ),
    "nothing but the conclusion": (
        lambda ledger, _: reason(ledger, "bob", "again", []),
        ["it has no step but its conclusion"],
    ),
    "it rests on what was refuted": (lambda ledger, _: _refuted(ledger), ["it rests on a refuted assumption"]),
    "its author had found it wrong": (
        lambda ledger, reader: (
            validate(ledger, reader, "bob", "own", passed=False),
            reason(ledger, "bob", "again", OTHER),
        )[-1],
        ["bob had examined that of alice before"],
    ),
    "a key was stolen": (lambda ledger, _: _stolen(ledger), ["reports a key behind that of bob as compromised"]),
}


def _reopened(ledger: Ledger) -> None:
    reason(ledger, "bob", "again", OTHER)
    more = reasoning.ReasoningExtended(steps=[reasoning.Step(9, "observation", "One more thing")])
    ledger.emit("bob", "reasoning/again", more)


def _refuted(ledger: Ledger) -> None:
    reason(ledger, "bob", "again", ["Perhaps the logs are open", *OTHER])
    settle(ledger, "rita", "again", holds=False)


def _stolen(ledger: Ledger) -> None:
    reason(ledger, "bob", "again", OTHER)
    ledger.emit("root", "agent/bob", KeyCompromised(key=ledger.keys["bob"].public.hex(), since=1))


@pytest.mark.parametrize("case", CASES)
def test_why_a_reasoning_is_not_independent(ledger: Ledger, reader: Reader, case: str) -> None:
    given, expected = CASES[case]
    reason(ledger, "alice", "own", OWN, session="s1")
    given(ledger, reader)
    doubts = [doubt for _, _, doubt in named(reader)]
    assert len(doubts) == len(expected)
    assert all(part in doubt for part, doubt in zip(expected, doubts, strict=True))
    assert "rederived" not in reader.answer("validations.latest", {"id": "own"})["text"]


def test_who_examines_afterwards_remains_independent(ledger: Ledger, reader: Reader) -> None:
    reason(ledger, "alice", "own", OWN)
    reason(ledger, "bob", "again", OTHER)
    validate(ledger, reader, "bob", "own", passed=False)
    validate(ledger, reader, "alice", "again", passed=False)
    assert named(reader) == [("bob", "again", "")]


def test_a_short_conclusion_counts_only_for_the_same_task(ledger: Ledger, reader: Reader) -> None:
    reason(ledger, "alice", "own", OWN, conclusion="Yes.")
    reason(ledger, "bob", "again", OTHER, conclusion="yes", task="Is the door open?")
    assert named(reader) == []
    reason(ledger, "rita", "third", OTHER, conclusion="yes", task="is the secret leaked?")
    assert named(reader) == [("rita", "third", "")]


def test_a_rederivation_opens_no_gate_and_is_a_reason_beside_the_human(ledger: Ledger, reader: Reader) -> None:
    reason(ledger, "alice", "own", OWN)
    validate(ledger, reader, "rita", "own", passed=False)
    before = act_on(reader.answer, "own")
    reason(ledger, "bob", "again", OTHER)
    validate(ledger, reader, "rita", "again", passed=True)
    after = act_on(reader.answer, "own")
    ref = reader.answer("reasoning.show", {"id": "again"})["ref"][7:19]
    way = f"rederived by bob in {ref}: it opens no gate here; act on it by its own (`snapshot receive {ref}`)."
    assert (after.action, after.may_act, after.graph) == (before.action, before.may_act, after.graph)
    assert after.action == "human_review_required"
    assert [reason for reason in after.reasons if reason not in before.reasons] == [way]
    assert act_on(reader.answer, ref).action == "act_on_full"
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as client:
        entries = checked.ask(client, "validations.latest", {"id": "own"})
    assert entries["rederived"] == reader.answer("validations.latest", {"id": "own"})["rederived"]
    assert entries["rederived"]
