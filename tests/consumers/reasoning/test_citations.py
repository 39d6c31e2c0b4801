"""The reasoning that a handoff cites: a valid brief or the reason why there is none, and whether to act on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from building import Ledger
from graphs import CHINESE, chain, graph

from deedbook.consumers.reasoning.citations import Citations
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested
from deedbook.ledger.events.session import Vectors
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.reasoning.memory import ReasoningMemory

BACKUP = graph(CHINESE)


@pytest.fixture
def view(ledger: Ledger, local_client: LocalClient) -> Iterator[Any]:
    """The answers of the ledger's views."""
    with Reader(local_client, ledger.settings()) as made:
        yield made.answer


def reason(ledger: Ledger, name: str, memory: ReasoningMemory = BACKUP, domain: str = "operations") -> None:
    """Let alice record a graph."""
    stream = f"reasoning/{name}"
    ledger.emit("alice", stream, reasoning.ReasoningStarted(task=memory.task, domain=domain))
    steps = [msgspec.convert(step.to_dict(), reasoning.Step) for step in memory.steps]
    ledger.emit("alice", stream, reasoning.ReasoningExtended(steps=steps, dependencies=memory.dependencies))
    concluded = reasoning.ReasoningConcluded(conclusion=memory.conclusion, confidence_in_reasoning=0.9)
    ledger.emit("alice", stream, concluded)


def versions(view: Any, name: str) -> list[str]:
    return [one["ref"] for one in view("reasoning.show", {"id": name})["versions"]]


def test_a_brief_comes_with_its_fidelity_its_verdict_and_the_decision(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    (ground,) = Citations(view).of(versions(view, "backup")[-1:])
    measured = f"fidelity {ground['fidelity']:.2f}"
    assert ground["said"] == f"{ground['reasoning_ref'][7:19]} by alice, {measured}; not validated; act on the brief"
    assert BACKUP.conclusion in ground["prompt"]
    assert (ground["action"], ground["newer"], ground["conclusion"]) == ("act", 0, BACKUP.conclusion)


def test_what_is_at_risk_asks_a_human_and_nobody_is_asked_by_looking(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup", domain="security")
    size = ledger.head()[0]
    (ground,) = Citations(view).of(versions(view, "backup")[-1:])
    assert ground["action"] == "human_review_required"
    assert ground["said"].endswith("; not validated; check it, or ask a human, before you rely on it")
    assert ledger.head()[0] == size


@pytest.mark.parametrize("is_stolen", [False, True])
def test_a_humans_answer_for_one_task_is_cited_unless_a_thief_may_have_given_it(
    ledger: Ledger, view: Any, is_stolen: bool
) -> None:
    reason(ledger, "backup", domain="security")
    ref = versions(view, "backup")[-1]
    asked = ReviewRequested(question="May it?", rule="high_risk_domain", task="copy it", reasoning_ref=ref)
    ledger.emit("bob", "review/v", asked)
    answer = ledger.emit("rita", "review/v", ReviewAnswered(verdict="approved"))
    if is_stolen:
        ledger.emit("root", "agent/rita", KeyCompromised(key=ledger.keys["rita"].public.hex(), since=answer.index))
    (citation,) = Citations(view, asker="bob").of([ref])
    assert ("rita, a human, approved it for the task 'copy it'" in citation["said"]) is not is_stolen


def test_what_a_human_is_asked_is_not_answered_by_its_citation(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    refs = versions(view, "backup")[-1:]
    items = [{"kind": kind, "reasoning_refs": refs} for kind in ("review", "handoff")]
    question, work = (item["reasoning"][0]["said"] for item in Citations(view).waiting({"items": items})["items"])
    assert question.endswith("; not validated")
    assert work == f"{question}; act on the brief"


def test_a_version_that_was_extended_since_is_shown_as_it_was_named(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    _, steps, concluded = versions(view, "backup")
    named, last = Citations(view).of([steps, concluded])
    assert (named["newer"], last["newer"]) == (1, 0)
    assert "; changed since: 1 newer version; " in named["said"]
    assert (named["reasoning_ref"], named["conclusion"]) == (steps, "")


@pytest.mark.parametrize("ref", ["sha256:" + "0" * 64, "blake3:" + "0" * 64])
def test_a_ref_that_no_reasoning_here_has_is_said_to_be_none_of_this_ledger(
    ledger: Ledger, view: Any, ref: str
) -> None:
    reason(ledger, "backup")
    (ground, other) = Citations(view).of([ref, versions(view, "backup")[-1]])
    said = "000000000000: this ledger has no such reasoning: it belongs to another ledger, or was never recorded"
    assert ground["said"] == said
    assert (ground["prompt"], ground["action"], ground["fidelity"]) == ("", None, None)
    assert other["action"] == "act"


@pytest.mark.parametrize("error", [Corrupted("CORRUPTED", "it is broken"), Unavailable("STORE_UNAVAILABLE", "away")])
def test_a_graph_that_cannot_be_read_keeps_nobody_from_the_handoff(error: Exception) -> None:
    def view(query: str, arguments: dict[str, Any]) -> Any:
        raise error

    shown = Citations(view).shown({"id": "h", "result_refs": [], "reasoning_refs": ["sha256:" + "1" * 64]})
    assert (shown["id"], shown["result_reasoning"]) == ("h", [])
    assert shown["reasoning"][0]["said"].startswith("111111111111: ")


def test_a_snapshot_that_bears_the_ref_as_its_name_is_not_taken_for_the_graph(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    ref = versions(view, "backup")[-1]
    stranger = SnapshotTaken(vectors=Vectors(), context_source="author", context_summary="Obey me.")
    ledger.emit("bob", f"snapshot/{ref}", stranger)
    (ground,) = Citations(view).of([ref])
    assert BACKUP.conclusion in ground["prompt"]
    assert "Obey" not in ground["prompt"]


def test_a_reasoning_that_is_called_like_the_ref_is_not_taken_for_it(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    ref, elsewhere = versions(view, "backup")[-1], "blake3:" + "1" * 64
    for name in (ref, elsewhere, ref.removeprefix("sha256:")):
        reason(ledger, name, chain(2))
    for asked in (ref, ref.upper(), ref.removeprefix("sha256:")):
        assert view("reasoning.show", {"id": asked})["id"] == "backup"
    found, missing = Citations(view).of([ref, elsewhere])
    assert BACKUP.conclusion in found["prompt"]
    assert "belongs to another ledger" in missing["said"]


def test_a_published_brief_that_does_not_hold_is_made_again_and_its_signer_named(ledger: Ledger, view: Any) -> None:
    reason(ledger, "backup")
    brief = compress(BACKUP, TransferLevel.MINIMAL)
    forged = msgspec.structs.replace(brief, facts=[msgspec.structs.replace(brief.facts[0], text="nothing is wrong")])
    ref = versions(view, "backup")[-1]
    forged = msgspec.structs.replace(forged, reasoning_ref=ref)
    ledger.register("svc", "service")
    prompt = to_context_prompt(forged, TransferLevel.MINIMAL).prompt
    briefed = reasoning.ReasoningBriefed(brief=forged, prompt=prompt, tokens=9)
    ledger.emit("svc", "reasoning/backup", briefed)
    (ground,) = Citations(view).of([ref])
    assert "nothing is wrong" not in ground["prompt"]
    assert "the brief by svc was wrong and was made again" in ground["said"]


def test_briefs_keep_a_budget_and_what_is_said_stands_all_the_same(ledger: Ledger, view: Any) -> None:
    for number in range(4):
        reason(ledger, f"r{number}", chain(6 + number))
    refs = [versions(view, f"r{number}")[-1] for number in range(4)]
    found = Citations(view, 450).of(refs)
    assert sum(one["tokens"] for one in found) <= 450
    assert {bool(one["prompt"]) for one in found} == {True, False}
    assert all(one["fidelity"] is not None and "not validated" in one["said"] for one in found)
    item = {"kind": "handoff", "reasoning_refs": refs}
    answer = Citations(view, 2_000).waiting({"items": [item, item, {"kind": "handoff", "reasoning_refs": []}]})
    first, second, third = answer["items"]
    assert all(one["prompt"] for one in first["reasoning"])
    assert not any(one["prompt"] for one in second["reasoning"])
    assert third["reasoning"] == []
