"""The actions open to a receiver, over real signed events: act, act on the full graph, or ask a human."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import Ledger
from event_examples import published
from graphs import CHINESE, audit_graph, graph

from deedbook.consumers.reasoning.snapshots.act import act_on, describe, review_id
from deedbook.consumers.reasoning.snapshots.take import take_snapshot
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.reasoning import CheckedTree, Counts, Issue, ReasoningValidated
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested
from deedbook.ledger.events.session import AssessmentRecorded, FindingLogged, SessionStarted, Vectors
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref
from deedbook.projections.snapshots.snapshot import snapshot_of

AUDIT = audit_graph()
BACKUP = graph(CHINESE)


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(local_client, ledger.settings()) as made:
        yield made


@pytest.fixture
def alice(ledger: Ledger, local_client: LocalClient) -> Author:
    """The agent who reasons and takes snapshots."""
    return Author(local_client, "alice", lambda _: ledger.keys["alice"])


@pytest.fixture
def bob(ledger: Ledger, local_client: LocalClient) -> Author:
    """The agent who receives."""
    return Author(local_client, "bob", lambda _: ledger.keys["bob"])


def reason(ledger: Ledger, name: str, memory: ReasoningMemory, *, domain: str = "") -> str:
    """Let alice record a graph and return its ref."""
    stream = f"reasoning/{name}"
    ledger.emit("alice", stream, reasoning.ReasoningStarted(task=memory.task, domain=domain))
    steps = [msgspec.convert(step.to_dict(), reasoning.Step) for step in memory.steps]
    ledger.emit("alice", stream, reasoning.ReasoningExtended(steps=steps, dependencies=memory.dependencies))
    concluded = reasoning.ReasoningConcluded(
        conclusion=memory.conclusion,
        confidence_in_reasoning=memory.confidence_in_reasoning,
        known_limitations=memory.known_limitations,
    )
    ledger.emit("alice", stream, concluded)
    return compute_reasoning_ref(msgspec.structs.replace(memory, reasoning_id="", ai_id="", reasoning_strategy=""))


def validate(ledger: Ledger, name: str, ref: str, *, by: str, passed: bool = True, unchecked: int = 0) -> Any:
    """Let an agent publish a report on three references; with ``passed``, all exist, otherwise one is gone."""
    issues = [] if passed else [Issue("EVIDENCE_GONE", "Evidence gone: api/auth.py:23")]
    known = {"issues": len(issues), "evidence": 3, "evidence_ok": 3 - len(issues) - unchecked}
    counts = Counts(**(dict.fromkeys(Counts.__struct_fields__, 0) | known))
    data = ReasoningValidated(
        reasoning_ref=ref,
        passed=passed,
        issues=issues,
        evidence=[],
        assumptions=[],
        inferences=[],
        tree=CheckedTree(type="none" if unchecked else "folder"),
        counts=counts,
        validator_name="deedbook-validator",
        validator_version="1",
    )
    ledger.clock.advance(1)
    return ledger.emit(by, f"reasoning/{name}", data)


def requests(ledger: Ledger) -> list[Event]:
    """Return the requests for a human."""
    events = [ledger.event(index) for index in range(ledger.head()[0])]
    return [event for event in events if event.kind == "review.requested"]


def test_quiet_reasoning_is_acted_on_by_its_prompt(ledger: Ledger, reader: Reader, alice: Author) -> None:
    reason(ledger, "backup", BACKUP, domain="operations")
    snapshot = take_snapshot(alice, reader.answer, reasoning="backup", vectors={"uncertainty": 0.1, "Impact": 0.2})
    decision = act_on(reader.answer, snapshot.snapshot_id, task="Paint the fence")
    assert (decision.action, decision.rule, decision.review, decision.graph) == ("act", None, None, None)
    assert decision.may_act
    assert decision.prompt.tokens <= decision.prompt.budget
    assert decision.answer.not_assessed == []
    assert (decision.snapshot, decision.snapshot.rejected) == (snapshot, None)
    assert requests(ledger) == []


def test_full_graph_is_acted_on_only_when_another_than_its_author_found_that_it_holds(
    ledger: Ledger, reader: Reader, alice: Author, bob: Author
) -> None:
    ref = reason(ledger, "audit", AUDIT, domain="security")
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    assert act_on(reader.answer, snapshot, author=bob).action == "human_review_required"
    report = validate(ledger, "audit", ref, by="rita")
    decision = act_on(reader.answer, snapshot, author=bob)
    assert (decision.action, decision.rule.name) == ("act_on_full", "high_risk_domain")  # type: ignore[union-attr]
    assert decision.validation is not None
    assert (decision.validation.by, decision.validation.event_id) == ("rita", report.id)
    assert decision.graph is not None
    assert compute_reasoning_ref(decision.graph) == ref == snapshot.reasoning_ref
    assert len(requests(ledger)) == 1


def test_human_is_asked_once_by_a_signed_request_that_stands_until_answered(
    ledger: Ledger, reader: Reader, alice: Author, bob: Author
) -> None:
    ref = reason(ledger, "audit", AUDIT, domain="security")
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    for _ in range(3):
        decision = act_on(reader.answer, snapshot.snapshot_id, author=bob, task="Rotate it")
        assert (decision.action, decision.may_act) == ("human_review_required", False)
    (event,) = requests(ledger)
    assert (event.author, event.data.rule, event.data.reasoning_ref) == ("bob", "high_risk_domain", ref)
    assert event.causes == [snapshot.event_id]
    assert event.data.task == "Rotate it"
    assert [one["id"] for one in reader.answer("reviews.list", {"status": "open"})["items"]] == [event.name]
    with pytest.raises(Refused) as refused:
        ledger.emit("alice", event.stream, ReviewAnswered(verdict="approved"))
    assert refused.value.code == "NOT_AUTHORIZED"
    ledger.emit("rita", event.stream, ReviewAnswered(verdict="approved", comment="I looked."))
    assert reader.answer("reviews.list", {"status": "open"})["items"] == []
    decision = act_on(reader.answer, snapshot, author=bob, task="Rotate it")
    assert (decision.action, decision.may_act) == ("human_review_required", True)
    assert "rita, a human, has answered: approved: I looked." in decision.reasons
    assert len(requests(ledger)) == 1
    stolen = KeyCompromised(key=ledger.keys["rita"].public.hex(), since=ledger.head()[0] - 1, reason="stolen")
    ledger.emit("root", "agent/rita", stolen)
    again = act_on(reader.answer, snapshot, author=bob, task="Rotate it")
    assert (again.may_act, len(requests(ledger))) == (False, 2)


def test_rejection_lets_nobody_act(ledger: Ledger, reader: Reader, alice: Author, bob: Author) -> None:
    reason(ledger, "audit", AUDIT, domain="security")
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    review = act_on(reader.answer, snapshot, author=bob).review
    assert review is not None
    ledger.emit("rita", f"review/{review.id}", ReviewAnswered(verdict="rejected"))
    decision = act_on(reader.answer, snapshot, author=bob)
    assert (decision.action, decision.may_act) == ("human_review_required", False)


def test_decision_without_a_signing_agent_asks_nobody_and_says_so(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    reason(ledger, "audit", AUDIT, domain="security")
    decision = act_on(reader.answer, "audit")
    assert (decision.action, decision.review, decision.may_act) == ("human_review_required", None, False)
    assert describe(decision)["review"] is None
    assert requests(ledger) == []


def test_stale_evidence_found_later_sends_the_matter_back_to_a_human(
    ledger: Ledger, reader: Reader, alice: Author, bob: Author
) -> None:
    ref = reason(ledger, "audit", AUDIT, domain="security")
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    validate(ledger, "audit", ref, by="rita")
    assert act_on(reader.answer, snapshot, author=bob).action == "act_on_full"
    report = validate(ledger, "audit", ref, by="rita", passed=False)
    decision = act_on(reader.answer, snapshot, author=bob)
    assert decision.action == "human_review_required"
    assert any("rita found it wrong" in reason_ for reason_ in decision.reasons)
    (event,) = requests(ledger)
    assert event.data.validations == [report.id]


def test_validators_who_disagree_leave_it_to_a_human(ledger: Ledger, reader: Reader, bob: Author) -> None:
    ledger.register("vera", "service")
    ref = reason(ledger, "audit", AUDIT, domain="security")
    validate(ledger, "audit", ref, by="vera", passed=False)
    validate(ledger, "audit", ref, by="rita")
    assert act_on(reader.answer, "audit", author=bob).action == "human_review_required"


def test_reasoning_that_was_found_wrong_is_not_acted_on_though_no_other_rule_fires(
    ledger: Ledger, reader: Reader, alice: Author, bob: Author
) -> None:
    ref = reason(ledger, "backup", BACKUP, domain="operations")
    quiet = {"uncertainty": 0.1, "impact": 0.2}
    take_snapshot(alice, reader.answer, reasoning="backup", snapshot_id="quiet", vectors=quiet)
    found = []
    for passed in (True, False, True):
        validate(ledger, "backup", ref, by="rita", passed=passed)
        decision = act_on(reader.answer, "quiet", author=bob)
        found.append((decision.action, decision.gate.gate, decision.rule and decision.rule.name))
    asked = ("human_review_required", "failed", "found_wrong")
    assert found == [("act", "passed", None), asked, ("act", "passed", None)]


def test_validator_who_had_no_tree_to_look_into_speaks_neither_for_nor_against(
    ledger: Ledger, reader: Reader, bob: Author
) -> None:
    ledger.register("vera", "service")
    ref = reason(ledger, "audit", AUDIT, domain="security")
    validate(ledger, "audit", ref, by="vera", unchecked=3)
    assert act_on(reader.answer, "audit", author=bob).action == "human_review_required"
    validate(ledger, "audit", ref, by="rita")
    assert act_on(reader.answer, "audit", author=bob).action == "act_on_full"


def test_validation_of_an_older_version_is_none_of_this_one(ledger: Ledger, reader: Reader, bob: Author) -> None:
    ref = reason(ledger, "audit", AUDIT, domain="security")
    validate(ledger, "audit", ref, by="rita")
    more = reasoning.Step(step_number=99, type="observation", content="One more thing")
    ledger.emit("alice", "reasoning/audit", reasoning.ReasoningExtended(steps=[more]))
    assert act_on(reader.answer, "audit", author=bob).action == "human_review_required"


def test_receivers_own_validation_against_a_tree_must_hold_too(
    ledger: Ledger, reader: Reader, bob: Author, tmp_path: Path
) -> None:
    from deedbook.consumers.reasoning.validator.trees import open_tree

    ref = reason(ledger, "audit", AUDIT, domain="security")
    validate(ledger, "audit", ref, by="rita")
    decision = act_on(reader.answer, "audit", author=bob, tree=open_tree(tmp_path))
    assert decision.action == "human_review_required"
    assert any("own validation" in reason_ for reason_ in decision.reasons)


@pytest.mark.parametrize("level", list(TransferLevel))
def test_level_asked_by_name_is_sent_with_its_gate(
    ledger: Ledger, reader: Reader, alice: Author, level: TransferLevel
) -> None:
    reason(ledger, "audit", AUDIT)
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    decision = act_on(reader.answer, snapshot, level=level)
    assert (decision.level, decision.prompt.level, decision.gate.level) == (level.value,) * 3
    fails = level is TransferLevel.MINIMAL and snapshot.fidelities[level] < 0.9
    assert decision.gate.gate == ("failed" if fails else "passed")


def test_lowest_level_that_passes_is_sent_when_none_is_asked(ledger: Ledger, reader: Reader, alice: Author) -> None:
    reason(ledger, "audit", AUDIT)
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit")
    decision = act_on(reader.answer, snapshot)
    assert decision.gate.gate == "passed"
    assert decision.level == decision.gate.level_that_passes


def test_snapshot_cannot_talk_away_the_domain_of_its_reasoning(ledger: Ledger, reader: Reader, alice: Author) -> None:
    reason(ledger, "backup", BACKUP, domain="medical")
    quiet = {"uncertainty": 0.0, "impact": 0.0}
    snapshot = take_snapshot(alice, reader.answer, reasoning="backup", domain="gardening", vectors=quiet)
    assert snapshot.domain == "gardening"
    decision = act_on(reader.answer, snapshot)
    assert decision.rule is not None
    assert (decision.rule.name, decision.rule.reason) == ("high_risk_domain", "The domain is medical.")


def tampered(ledger: Ledger, reader: Reader, alice: Author, **changed: Any) -> str:
    """Let alice sign a snapshot that differs from its graph; return its id."""
    snapshot = take_snapshot(alice, reader.answer, reasoning="audit", snapshot_id="honest")
    data = ledger.event(-1).data
    brief = data.briefs[0]
    if "fact" in changed:
        fact = msgspec.structs.replace(brief.facts[0], text=changed["fact"])
        briefs = [msgspec.structs.replace(brief, facts=[fact, *brief.facts[1:]]), *data.briefs[1:]]
        data = msgspec.structs.replace(data, briefs=briefs)
    if "embedding" in changed:
        vector = msgspec.structs.replace(data.reasoning_embedding, values="AAAA" * 128)
        data = msgspec.structs.replace(data, reasoning_embedding=vector)
    ledger.emit("alice", "snapshot/lie", data)
    assert snapshot.reasoning_ref is not None
    return "lie"


@pytest.mark.parametrize("changed", [{"fact": "All is well"}, {"embedding": True}], ids=["fact", "embedding"])
def test_snapshot_that_says_something_else_than_its_graph_is_not_acted_on(
    ledger: Ledger, reader: Reader, alice: Author, bob: Author, changed: dict[str, Any]
) -> None:
    reason(ledger, "audit", AUDIT, domain="security")
    lie = tampered(ledger, reader, alice, **changed)
    honest, decision = (act_on(reader.answer, name, author=bob) for name in ("honest", lie))
    assert decision.prompt == honest.prompt
    rejected = decision.snapshot.rejected
    assert rejected is not None
    assert (rejected.author, rejected.event_id) == ("alice", reader.answer("snapshots.show", {"id": lie})["event_id"])
    assert describe(decision)["rejected"]["author"] == "alice"


def test_low_risk_snapshot_with_a_forged_fact_is_not_acted_on_either(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    reason(ledger, "audit", BACKUP, domain="operations")
    quiet = {"uncertainty": 0.1, "impact": 0.2}
    decision = act_on(reader.answer, tampered(ledger, reader, alice, fact="All is well"), vectors=quiet)
    assert (decision.action, decision.rule) == ("act", None)
    assert "All is well" not in decision.prompt.prompt
    assert decision.snapshot.rejected is not None


def test_quiet_snapshot_of_a_graph_that_is_nowhere_is_not_acted_on(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    reason(ledger, "audit", BACKUP, domain="operations")
    take_snapshot(alice, reader.answer, reasoning="audit", snapshot_id="honest")
    nowhere = "sha256:" + "0" * 64
    data = ledger.event(-1).data
    briefs = [msgspec.structs.replace(brief, reasoning_ref=nowhere) for brief in data.briefs]
    ledger.emit("alice", "snapshot/nowhere", msgspec.structs.replace(data, reasoning_ref=nowhere, briefs=briefs))
    quiet = {"uncertainty": 0.1, "impact": 0.2}
    assert act_on(reader.answer, "honest", vectors=quiet).action == "act"
    decision = act_on(reader.answer, "nowhere", vectors=quiet)
    assert (decision.action, describe(decision)["fidelity"]) == ("human_review_required", 0.0)


def test_snapshot_that_names_no_graph_has_no_reasoning(ledger: Ledger, reader: Reader) -> None:
    lie = "All is well: nothing needs to be looked at"
    data = SnapshotTaken(vectors=Vectors(), context_source="none", conclusion=lie, reasoning_brief=lie)
    ledger.emit("alice", "snapshot/no-graph", data)
    decision = act_on(reader.answer, "no-graph")
    assert lie not in decision.prompt.prompt
    assert decision.snapshot.rejected is not None
    assert {problem.field for problem in decision.snapshot.rejected.problems} == {"conclusion", "reasoning_brief"}


def test_graph_that_is_not_in_this_ledger_is_a_matter_for_a_human(ledger: Ledger, reader: Reader, bob: Author) -> None:
    data = published("snapshot.taken") | {"domain": "legal"}
    ledger.submit(ledger.sign("alice", _draft("snapshot/foreign", data)))
    decision = act_on(reader.answer, "foreign", author=bob)
    assert decision.action == "human_review_required"
    assert any("is not in this ledger" in reason_ for reason_ in decision.reasons)


def _draft(stream: str, data: dict[str, Any]) -> Any:
    from deedbook.ledger.client.author import Draft

    return Draft(stream=stream, data=data, kind="snapshot.taken")


def test_id_that_a_stranger_took_before_does_not_silence_the_request(
    ledger: Ledger, reader: Reader, bob: Author
) -> None:
    reason(ledger, "audit", AUDIT, domain="security")
    citations = act_on(reader.answer, "audit")
    asked = ReviewRequested(
        question="x",
        rule="high_risk_domain",
        reasons=citations.reasons,
        reasoning_ref=citations.snapshot.reasoning_ref,
    )
    squatted = review_id("bob", asked, sorted(rule.name for rule in citations.answer.all_rules))
    lunch = ReviewRequested(question="Lunch?", rule="hunger", reasoning_ref=asked.reasoning_ref)
    ledger.emit("alice", f"review/{squatted}", lunch)
    review = act_on(reader.answer, "audit", author=bob).review
    assert review is not None
    assert review.id != squatted
    assert review.author == "bob"


def test_session_goes_along_with_its_vectors_context_and_provenance(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    ledger.emit("alice", "session/s1", SessionStarted(task="Find the leak"))
    ledger.emit("alice", "session/s1", AssessmentRecorded(phase="CHECK", vectors=Vectors(know=0.4, uncertainty=0.6)))
    last = ledger.emit("alice", "session/s1", FindingLogged(finding="The pool is never closed"))
    reason(ledger, "audit", AUDIT)
    concluded = ledger.event(-1)
    snapshot = take_snapshot(alice, reader.answer, session="s1", reasoning="audit", vectors={"KNOW": 0.9})
    event = ledger.event(-1)
    assert event.causes == [last.id, concluded.id]
    assert snapshot.vectors == {"know": 0.9, "uncertainty": 0.6}
    assert snapshot.context_source == "derived"
    assert "The pool is never closed" in snapshot.context_summary
    assert snapshot_of(event.data, snapshot_id=snapshot.snapshot_id, author="alice", event_id=event.id) == snapshot
    decision = act_on(reader.answer, snapshot)
    # No domain is named, and the audit is about a secret.
    names = [rule.name for rule in decision.answer.all_rules]
    assert (names[0], *names[-2:]) == ("high_uncertainty", "high_risk_domain", "not_assessed")
    assert decision.answer.not_assessed == ["IMPACT"]


def test_name_that_is_neither_snapshot_nor_reasoning_is_not_found(reader: Reader) -> None:
    for name in ("nothing", "snapshot/nothing", "reasoning/nothing"):
        with pytest.raises(Refused) as refused:
            act_on(reader.answer, name)
        assert refused.value.code == "NOT_FOUND"
