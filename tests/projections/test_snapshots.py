"""Snapshots: their fields, prompts within their budgets, and a context that names its source."""

from __future__ import annotations

import re
from typing import Any

import pytest
from given import fact
from graphs import CHINESE, audit_graph, chain, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.reasoning.snapshots.take import assemble
from deedbook.ledger.errors import Refused
from deedbook.projections.briefs.embedding import best_embedder
from deedbook.projections.briefs.prompt import LEVEL_TOKENS, TransferLevel
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reasoning.answers import PayloadSizes, ReasoningPayload
from deedbook.projections.reasoning.delta import Size, write_full
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref
from deedbook.projections.snapshots.fold import VIEW as SNAPSHOT_VIEW
from deedbook.projections.snapshots.snapshot import (
    CONTEXT_TOKENS_MAX,
    SNAPSHOT_TOKENS_MAX,
    EnhancedEpistemicSnapshot,
    derive_context,
    render_snapshot,
    snapshot_of,
    to_context_prompt,
)
from deedbook.projections.snapshots.vectors import read_vectors


def session(**changed: Any) -> dict[str, Any]:
    """Return a session in the form of an answer of ``sessions.show``."""
    empty: dict[str, Any] = {"id": "s1", "task": "", "summary": "", "updated_index": 7, "assessments": []}
    return empty | {"findings": [], "unknowns": [], "dead_ends": []} | changed


def finding(text: str, index: int = 0, impact: float | None = None) -> dict[str, Any]:
    """Return a finding in the form of an answer of ``sessions.show``."""
    return {"finding": text, "evidence": [], "impact": impact, "event_index": index}


class Answers:
    """A double of a reader, which answers queries about one graph and one session."""

    def __init__(self, memory: ReasoningMemory | None = None, shown: dict[str, Any] | None = None) -> None:
        self.memory, self.shown = memory, shown

    def __call__(self, query: str, _: dict[str, Any]) -> dict[str, Any]:
        if query == "sessions.show":
            assert self.shown is not None
            return self.shown
        assert self.memory is not None
        answer: dict[str, Any] = {"ref": compute_reasoning_ref(self.memory), "reasoning_id": "r"}
        if query == "reasoning.fetch":
            return ReasoningPayload(
                **answer,
                version=1,
                base=None,
                sent_as="full",
                payload=write_full(self.memory),
                sizes=PayloadSizes(full=Size(9, 3)),
                tokenizer="none",
                exact=False,
            ).to_dict()
        return answer | {"domain": "operations", "event_index": 3}


def taken(memory: ReasoningMemory, context: str | None = None) -> EnhancedEpistemicSnapshot:
    """Return a snapshot of a graph."""
    data, _ = assemble(Answers(memory), reasoning="r", context=context)
    return snapshot_of(data, snapshot_id="x")


# Budgets


@given(odd_graphs(), st.text(max_size=400))
def test_no_prompt_of_any_level_exceeds_its_budget(memory: ReasoningMemory, context: str) -> None:
    snapshot = taken(memory, context)
    for level, (_, most) in LEVEL_TOKENS.items():
        prompt = snapshot.to_context_prompt(level)
        assert prompt.tokens == count_tokens(prompt.prompt) <= most
        assert to_context_prompt(snapshot, level, 50).tokens <= 50
    assert render_snapshot(snapshot).tokens <= SNAPSHOT_TOKENS_MAX == 900


@pytest.mark.parametrize("context", ["word " * 3000, "很长的背景说明" * 600])
@pytest.mark.parametrize("memory", [audit_graph(), graph(CHINESE), chain(60)], ids=["audit", "chinese", "chain"])
def test_whole_snapshot_stays_within_900_tokens_and_keeps_its_reasoning(memory: ReasoningMemory, context: str) -> None:
    rendered = render_snapshot(taken(memory, context))
    assert rendered.tokens <= 900
    assert rendered.shortened == ["CONTEXT"]
    assert "REASONING BRIEF: " in rendered.prompt
    assert "REASONING BRIEF" not in rendered.dropped
    assert count_tokens(rendered.prompt.splitlines()[0]) <= CONTEXT_TOKENS_MAX


def test_prompt_shows_the_seeds_headings_in_order() -> None:
    snapshot = taken(audit_graph(), "API has JWT secret in logs")
    found = re.findall(r"^([A-Z ]+):", snapshot.to_context_prompt(TransferLevel.FULL).prompt, re.MULTILINE)
    assert found == [
        "CONTEXT",
        "CONCLUSION",
        "TAGS",
        "TOP ASSUMPTIONS",
        "REASONING BRIEF",
        "EVIDENCE",
        "FIDELITY",
        "FULL REASONING",
    ]


def test_snapshot_without_reasoning_shows_its_context_at_every_level() -> None:
    snapshot = EnhancedEpistemicSnapshot(snapshot_id="x", context_summary="Only words")
    for level in TransferLevel:
        prompt = snapshot.to_context_prompt(level)
        assert (prompt.prompt, prompt.level) == ("CONTEXT: Only words", level.value)


# The content of a snapshot


def test_snapshot_holds_every_field_that_the_seed_reads() -> None:
    memory = audit_graph()
    snapshot = taken(memory, "API has JWT secret in logs")
    assert snapshot.reasoning_ref == compute_reasoning_ref(memory)
    assert snapshot.conclusion == memory.conclusion.strip()
    assert 0 < snapshot.reasoning_fidelity <= 1  # type: ignore[operator]  # there is a reasoning
    assert snapshot.reasoning_size.keys() == {"compressed", "full"}
    assert len(snapshot.reasoning_embedding) == best_embedder().dim  # type: ignore[arg-type]  # there is a reasoning
    assert snapshot.reasoning_tags
    assert snapshot.top_assumptions
    assert snapshot.top_evidence_refs
    assert snapshot.domain == "operations"
    assert any("JWT_SECRET" in ref for ref in snapshot.evidence_refs)
    assert snapshot.evidence_count == len(snapshot.evidence_refs)


def test_secrets_come_first_where_not_all_evidence_fits() -> None:
    steps = [
        {"step": n, "type": "observation", "content": f"Part {n}", "evidence": [f"logs/{n}-{'x' * 200}.log:{n}"]}
        for n in range(1, 200)
    ]
    steps.append({"step": 200, "type": "observation", "content": "Last", "evidence": ["src/Credentials.ts:9"]})
    snapshot = taken(graph({"task": "t", "conclusion": "c", "steps": steps}))
    assert snapshot.evidence_refs[0] == "src/Credentials.ts:9"
    assert len(snapshot.evidence_refs) < snapshot.evidence_count == 200


def test_snapshot_too_large_for_an_entry_keeps_the_seeds_fields_with_a_fidelity_of_their_own() -> None:
    many = [f"logs/{'y' * 1800}{n}.log:{n}" for n in range(25)]
    steps = [{"step": 1, "type": "observation", "content": "The disk is full", "evidence": many}]
    memory = graph({"task": "t", "conclusion": "Delete the old exports", "steps": steps})
    snapshot = taken(memory)
    assert snapshot.briefs == []
    assert snapshot.reasoning_embedding is None
    prompt = snapshot.to_context_prompt(TransferLevel.STANDARD)
    assert "The disk is full" in prompt.prompt
    assert prompt.tokens <= 700
    assert snapshot.reasoning_fidelity is not None


def test_context_too_large_for_an_entry_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        assemble(Answers(), context="长" * 20_000)
    assert refused.value.code == "TOO_LARGE"


def test_snapshot_of_nothing_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        assemble(Answers(), context=" ")
    assert refused.value.code == "USAGE"


# Vectors


def test_vectors_are_those_assessed_last_and_replaced_by_given_ones_in_any_case() -> None:
    assessments = [{"vectors": {"know": 0.2, "do": 0.5}}, {"vectors": {"know": 0.6, "impact": 0.1}}]
    shown = session(task="t", assessments=assessments)
    data, causes = assemble(Answers(shown=shown), session="s1", vectors={"Impact": 0.9, "UNCERTAINTY": 0.3})
    assert snapshot_of(data, snapshot_id="x").vectors == {"do": 0.5, "impact": 0.9, "know": 0.6, "uncertainty": 0.3}
    assert (causes, data.session_id) == ([7], "s1")


def test_vectors_are_looked_up_in_any_case_and_one_not_assessed_is_not_there() -> None:
    snapshot = EnhancedEpistemicSnapshot(snapshot_id="x", vectors={"Uncertainty": 0.5})
    assert snapshot.vectors["UNCERTAINTY"] == snapshot.vectors["uncertainty"] == 0.5
    assert "IMPACT" not in snapshot.vectors
    with pytest.raises(KeyError):
        snapshot.vectors["IMPACT"]


@pytest.mark.parametrize(
    "given_",
    [{"hope": 0.5}, {"know": 1.5}, {"know": float("nan")}, {"know": "0.5"}, {"know": True}, {"KNOW": 0.1, "know": 0.2}],
)
def test_vectors_that_are_none_are_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        read_vectors(given_)
    assert refused.value.code == "INVALID_FIELD"


# The context


def test_derived_context_says_what_weighs_most_first() -> None:
    shown = session(
        task="Find the leak",
        summary="Found it",
        findings=[finding("minor", 1, 0.1), finding("older", 2), finding("newer", 3), finding("major", 4, 0.9)],
        unknowns=[{"unknown": "Who opens it", "impact": None, "event_index": 5}],
        dead_ends=[{"approach": "Restarting", "why_failed": "it comes back", "impact": None, "event_index": 6}],
    )
    assert derive_context(shown) == (
        "Task: Find the leak. Result: Found it. Found: major. Found: minor. Found: newer. Found: older. "
        "Open: Who opens it. Dead end: Restarting (it comes back)."
    )


def test_derived_context_has_the_sessions_task_and_what_was_reasoned_about() -> None:
    shown = session(task="Refactor billing")
    assert (
        derive_context(shown, task="Why two roundings?")
        == "Task: Refactor billing. Reasoning about: Why two roundings?"
    )
    assert derive_context(shown, task="Refactor billing") == "Task: Refactor billing."
    assert derive_context(None, task="Why?") == "Task: Why?"


@pytest.mark.parametrize("text", ["The pool of region is never closed again ", "连接池从未关闭而且一直在增长"])
def test_derived_context_stays_within_500_tokens_and_counts_what_is_left_out(text: str) -> None:
    shown = session(task=text * 40, summary=text * 40, findings=[finding(f"{text}{n}", n) for n in range(1000)])
    context = derive_context(shown)
    assert 400 < count_tokens(context) <= CONTEXT_TOKENS_MAX == 500
    assert re.search(r"And \d+ more\.$", context)


@given(st.lists(st.text(max_size=300), max_size=40), st.text(max_size=600))
def test_derived_context_never_exceeds_500_tokens(texts: list[str], task: str) -> None:
    shown = session(task=task, findings=[finding(text, n) for n, text in enumerate(texts)])
    assert count_tokens(derive_context(shown)) <= CONTEXT_TOKENS_MAX


@pytest.mark.parametrize(
    ("context", "source", "told"),
    [
        ("Mine", "author", "Mine"),
        (None, "derived", "Task: Find the leak."),
        (" ", "derived", "Task: Find the leak."),
    ],
)
def test_snapshot_says_whether_its_context_is_the_authors(context: str | None, source: str, told: str) -> None:
    data, _ = assemble(Answers(shown=session(task="Find the leak")), session="s1", context=context)
    assert (data.context_source, data.context_summary) == (source, told)


def test_session_that_says_nothing_has_no_context() -> None:
    data, _ = assemble(Answers(shown=session()), session="s1")
    assert (data.context_source, data.context_summary) == ("none", "")


# The view


def test_row_of_a_snapshot_is_written_once_with_all_that_was_signed() -> None:
    from folding import rows_of

    data, _ = assemble(Answers(audit_graph()), reasoning="r", context="c")
    event = fact("alice", data, stream="snapshot/a41f", index=9)
    (row,) = rows_of(SNAPSHOT_VIEW, "a41f", [event])["snapshots"]
    assert (row["id"], row["event_index"], row["author"]) == ("a41f", 9, "alice")
    assert (row["reasoning_ref"], row["context_source"]) == (compute_reasoning_ref(audit_graph()), "author")
