"""Receiving reasoning: nothing is believed that can be computed, neither the graph nor the brief nor its fidelity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from graphs import audit_graph, audit_json, graph
from msgspec.structs import replace

from consumers.reasoning.compressor.compress import compress
from consumers.reasoning.compressor.transfer import describe, fetch, receive_brief, verify_brief
from ledger.errors import Corrupted, Refused
from ledger.events.brief import Brief
from projections.briefs.prompt import TransferLevel
from projections.reasoning.delta import write_full
from projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref

MEMORY = audit_graph()
REF = compute_reasoning_ref(MEMORY)
OTHER = graph(audit_json() | {"conclusion": "Leave everything as it is"})


class Server:
    """Answers view queries about one graph as a reader does; a test changes the answers."""

    def __init__(self, memory: ReasoningMemory = MEMORY, brief: Brief | None = None) -> None:
        self.full: dict[str, Any] = {
            "ref": compute_reasoning_ref(memory),
            "reasoning_id": "audit",
            "sent_as": "full",
            "payload": write_full(memory),
            "sizes": {},
        }
        self.shown = {"domain": "security_audit"}
        self.best = None if brief is None else {"data": {"brief": msgspec.to_builtins(brief)}}

    def __call__(self, query: str, _: dict[str, Any]) -> dict[str, Any]:
        if query == "reasoning.show":
            return self.shown
        if query == "reasoning.fetch":
            return self.full
        if self.best is None:
            raise Refused("NOT_FOUND", "no brief was published")
        return self.best


def unverified(action: Callable[[], object]) -> str:
    """Return why an action is refused as not verified."""
    with pytest.raises(Corrupted) as refused:
        action()
    assert refused.value.code == "VERIFICATION_FAILED"
    return refused.value.message


# Graphs


@pytest.mark.parametrize("asked", ["audit", "reasoning/audit", REF, REF[:24], REF[7:], REF[7:19], REF.upper()[7:]])
def test_graph_that_hashes_to_what_was_asked_for_is_taken(asked: str) -> None:
    fetched = fetch(Server(), asked)
    assert (fetched.ref, compute_reasoning_ref(fetched.memory)) == (REF, REF)


@pytest.mark.parametrize("asked", [REF, REF[:24], REF[7:], REF[7:19]])
def test_another_graph_than_was_asked_for_is_refused_however_consistent_it_is(asked: str) -> None:
    assert asked in unverified(lambda: fetch(Server(OTHER), asked))


@pytest.mark.parametrize("asked", ["audit", REF])
def test_changed_graph_is_refused(asked: str) -> None:
    server = Server()
    server.full["payload"] = server.full["payload"].replace("not", "now", 1)
    assert "hashes to" in unverified(lambda: fetch(server, asked))


def test_id_that_looks_like_a_ref_is_an_id() -> None:
    server = Server()
    server.full["reasoning_id"] = "deadbeefdeadbeef"
    assert fetch(server, "deadbeefdeadbeef").ref == REF


@pytest.mark.parametrize("answer", [{}, {"ref": REF}, {"ref": 7, "reasoning_id": "audit", "payload": "{}"}])
def test_answer_that_is_no_graph_is_refused(answer: dict[str, Any]) -> None:
    server = Server()
    server.full = answer
    unverified(lambda: fetch(server, REF))


# Briefs


def test_published_brief_is_taken_and_another_made_when_a_budget_is_asked_for() -> None:
    brief = compress(MEMORY, TransferLevel.MINIMAL, domain="security_audit")
    server = Server(brief=brief)
    assert receive_brief(server, REF, TransferLevel.MINIMAL).is_published
    made = receive_brief(server, REF, TransferLevel.MINIMAL, budget=120)
    assert (made.is_published, made.prompt.budget) == (False, 120)
    assert not receive_brief(Server(), REF, TransferLevel.MINIMAL).is_published
    verify_brief(receive_brief(server, REF, TransferLevel.MINIMAL).brief, fetch(server, REF))


def test_description_says_what_a_receiver_must_know() -> None:
    described = describe(receive_brief(Server(), REF, TransferLevel.MINIMAL))
    assert described["reasoning_ref"] == REF
    assert described["rule_fired"]["name"] == "critical_evidence"
    assert described["fetch_full"] is True
    assert described["published"] is False


def test_brief_that_is_none_is_refused() -> None:
    server = Server()
    server.best = {"data": {"brief": {"level": "minimal"}}}
    unverified(lambda: receive_brief(server, REF, TransferLevel.MINIMAL))


def tampered() -> dict[str, Brief]:
    """Return briefs that say something else than their graph, one lie each."""
    brief = compress(MEMORY, TransferLevel.MINIMAL)
    fact = brief.facts[0]
    return {
        "a fact's text": replace(brief, facts=[replace(fact, text=fact.text + " not"), *brief.facts[1:]]),
        "a step that is not there": replace(brief, facts=[replace(fact, step=99), *brief.facts[1:]]),
        "the conclusion": replace(brief, conclusion="All is well"),
        "another graph": replace(brief, reasoning_ref=compute_reasoning_ref(OTHER)),
        "the evidence": replace(brief, top_evidence_refs=["api/none.py:1"]),
        "the sentences": replace(brief, reasoning_brief="Nothing to see."),
        "the fidelity": replace(brief, fidelity=replace(brief.fidelity, value=0.99)),
        "a part of the fidelity": replace(brief, fidelity=replace(brief.fidelity, R=1.0, A=1.0)),
        "the weights": replace(brief, fidelity=replace(brief.fidelity, weights={"R": 1.0})),
    }


@pytest.mark.parametrize("lie", tampered())
def test_tampered_brief_is_refused(lie: str) -> None:
    server = Server(brief=tampered()[lie])
    received = receive_brief(server, REF, TransferLevel.MINIMAL)
    assert received.is_published
    unverified(lambda: verify_brief(received.brief, fetch(server, REF)))


def test_honest_brief_of_another_tokenizer_is_compared_by_its_facts() -> None:
    brief = replace(compress(MEMORY, TransferLevel.MINIMAL), tokenizer="another", exact=False)
    verify_brief(brief, fetch(Server(), REF))
    unverified(lambda: verify_brief(replace(brief, conclusion="All is well"), fetch(Server(), REF)))
