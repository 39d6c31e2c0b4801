"""Prompts have their headings in order, never exceed the budget, and name every omission."""

from __future__ import annotations

import json
import re

import pytest
from graphs import CHINESE, audit_graph, chain, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.projections.briefs.prompt import (
    LEVEL_TOKENS,
    TransferLevel,
    cut_to_tokens,
    short_ref,
    to_context_prompt,
)
from deedbook.projections.briefs.sentences import HEADINGS, readable_text
from deedbook.projections.briefs.tokens import ESTIMATE_NAME, Tokenizer, count_tokens, estimate_tokens
from deedbook.projections.reasoning.memory import ReasoningMemory

MINIMAL = ["CONTEXT", "CONCLUSION", "TAGS", "TOP ASSUMPTIONS", "REASONING BRIEF"]
STANDARD = [*MINIMAL, "EVIDENCE", "FIDELITY"]


def headings_of(prompt: str) -> list[str]:
    return re.findall(rf"^({'|'.join(HEADINGS)}):", prompt, re.MULTILINE)


def test_levels_have_the_seeds_names_and_ranges() -> None:
    assert [level.value for level in TransferLevel] == ["minimal", "standard", "full"]
    assert LEVEL_TOKENS[TransferLevel.MINIMAL] == (60, 200)
    assert LEVEL_TOKENS[TransferLevel.STANDARD] == (200, 700)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (TransferLevel.STANDARD, STANDARD),
        (TransferLevel.FULL, [*STANDARD, "FULL REASONING"]),
    ],
)
def test_prompt_has_the_seeds_headings_in_the_seeds_order(level: TransferLevel, expected: list[str]) -> None:
    prompt = to_context_prompt(compress(audit_graph(), level, domain="security"))
    assert headings_of(prompt.prompt) == expected
    assert (prompt.dropped, prompt.shortened) == ([], [])


def test_minimal_prompt_names_the_sections_that_did_not_fit() -> None:
    brief = compress(audit_graph(), TransferLevel.MINIMAL)
    prompt = to_context_prompt(brief)
    assert prompt.tokens <= 200
    assert headings_of(prompt.prompt) == [name for name in MINIMAL if name not in prompt.dropped]
    assert prompt.dropped == ["TAGS"]
    assert brief.tags


def test_full_prompt_points_at_the_graph_by_a_short_ref_and_a_call_that_its_reader_has() -> None:
    brief = compress(audit_graph(), TransferLevel.FULL)
    assert to_context_prompt(brief).prompt.endswith(
        f"FULL REASONING: Available via reasoning_ref={short_ref(brief.reasoning_ref)}\n"
        f"Call: deed reasoning fetch {short_ref(brief.reasoning_ref)} (or the tool fetch_reasoning, level full)"
    )
    assert re.fullmatch("[0-9a-f]{12}", short_ref(brief.reasoning_ref))


def test_full_prompt_holds_the_graph_inline_on_request() -> None:
    memory = audit_graph()
    whole = json.dumps(memory.to_dict())
    prompt = to_context_prompt(compress(memory, TransferLevel.FULL), inline=whole)
    assert f"FULL REASONING: {whole}" in prompt.prompt
    assert prompt.tokens <= 3000


def test_every_level_stays_within_the_seeds_range_for_the_audit() -> None:
    for level, (least, most) in LEVEL_TOKENS.items():
        assert least <= to_context_prompt(compress(audit_graph(), level)).tokens <= most


@given(odd_graphs(), st.sampled_from(TransferLevel), st.integers(0, 400), st.text(max_size=300))
def test_no_prompt_exceeds_its_budget(memory: ReasoningMemory, level: TransferLevel, budget: int, context: str) -> None:
    brief = compress(memory, level, budget, context=context)
    prompt = to_context_prompt(brief)
    assert prompt.tokens == count_tokens(prompt.prompt) <= budget
    for other in TransferLevel:
        assert to_context_prompt(brief, other, budget // 2).tokens <= budget // 2


@given(odd_graphs())
def test_text_of_a_graph_cannot_forge_a_section(memory: ReasoningMemory) -> None:
    prompt = to_context_prompt(compress(memory, TransferLevel.STANDARD))
    found = headings_of(prompt.prompt)
    assert found == [heading for heading in HEADINGS if heading in found]


def test_budget_holds_by_the_estimate_where_the_exact_tokenizer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = Tokenizer(ESTIMATE_NAME, exact=False, count=estimate_tokens)
    for module in (
        "deedbook.projections.briefs.tokens",
        "deedbook.projections.briefs.prompt",
        "deedbook.consumers.reasoning.compressor.envelope",
    ):
        monkeypatch.setattr(f"{module}.tokenizer", lambda: estimate)
    for memory in (audit_graph(), chain(40), graph(CHINESE)):
        prompt = to_context_prompt(compress(memory, TransferLevel.MINIMAL))
        assert (prompt.exact, prompt.tokenizer) == (False, ESTIMATE_NAME)
        assert estimate_tokens(prompt.prompt) == prompt.tokens <= 200


def test_context_is_cut_at_a_word_to_a_quarter_of_the_budget() -> None:
    brief = compress(audit_graph(), TransferLevel.MINIMAL, 120, context="many words of context " * 60)
    prompt = to_context_prompt(brief)
    context = prompt.prompt.splitlines()[0]
    assert context.endswith(("many …", "words …", "of …", "context …"))
    assert count_tokens(context) <= 30
    assert prompt.shortened == ["CONTEXT"]


def test_cut_text_is_marked_and_within_its_limit() -> None:
    assert cut_to_tokens("short", 5) == "short"
    assert not cut_to_tokens("a long text that cannot fit", 1)
    assert cut_to_tokens("日志没有加密而且保留三十天", 6).endswith("…")


def test_prompt_that_loses_facts_names_their_section_and_states_no_fidelity() -> None:
    brief = compress(audit_graph(), TransferLevel.STANDARD)
    prompt = to_context_prompt(brief, TransferLevel.STANDARD, 150)
    assert {"REASONING BRIEF", "FIDELITY"} <= set(prompt.dropped)
    assert "FIDELITY" not in prompt.prompt


def test_stated_fidelity_is_never_rounded_up() -> None:
    brief = compress(audit_graph(), TransferLevel.STANDARD)
    lower = replace(brief, fidelity=replace(brief.fidelity, value=0.8999, band="medium"))
    assert "FIDELITY: 0.89 (medium)" in to_context_prompt(lower).prompt


def test_assumption_without_a_check_in_the_prompt_is_marked_and_the_mark_conveys_nothing() -> None:
    seen = {"step": 1, "type": "observation", "content": "The log is there"}
    assumed = {"step": 2, "type": "assumption", "content": "Nobody reads it", "needs_validation": True}
    drawn = {"step": 3, "type": "inference", "content": "So it is safe", "assumptions": ["The disk is sealed"]}
    values = {
        "task": "Is it safe?",
        "conclusion": "Keep it",
        "steps": [seen, assumed, drawn],
        "dependencies": {3: [1, 2]},
    }
    prompt = to_context_prompt(compress(graph(values), TransferLevel.STANDARD)).prompt
    assert "TOP ASSUMPTIONS: Nobody reads it (VERIFY)\nThe disk is sealed (VERIFY)\n" in prompt
    assert "VERIFY" not in readable_text(prompt)


def test_readable_text_leaves_out_what_conveys_no_reasoning() -> None:
    brief = compress(graph(CHINESE), TransferLevel.FULL, 200)
    readable = readable_text(to_context_prompt(brief).prompt)
    assert "备份没有足够的空间" in readable
    assert not any(word in readable for word in ("CONTEXT", "FIDELITY", "为什么", "reasoning_ref", "Limitation:"))


def test_nothing_fits_into_no_budget() -> None:
    prompt = to_context_prompt(compress(chain(3), TransferLevel.MINIMAL, 0))
    assert (prompt.prompt, prompt.tokens) == ("", 0)
    assert "CONCLUSION" in prompt.dropped
