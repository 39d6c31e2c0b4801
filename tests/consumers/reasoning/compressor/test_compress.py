"""The default compressor: verbatim, within budget, measured, and worth its tokens."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from graphs import CHINESE, audit_graph, audit_json, chain, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.certificate import check_certificate
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.ledger.events.brief import Brief
from deedbook.projections.briefs.fidelity import measure
from deedbook.projections.briefs.prompt import LEVEL_TOKENS, TransferLevel, to_context_prompt
from deedbook.projections.briefs.tags import snake_case
from deedbook.projections.briefs.text import count_sentences
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reasoning.memory import ReasoningMemory

MINIMAL, STANDARD, FULL = TransferLevel


def padded_audit(extra: int) -> ReasoningMemory:
    """Return the audit with ``extra`` more observations, on which no step rests."""
    more = [
        {"step": number, "type": "observation", "content": f"Page {number} of the manual is out of date"}
        for number in range(100, 100 + extra)
    ]
    return graph(audit_json() | {"steps": [*audit_json()["steps"], *more]})


# Facts and certificate


@given(odd_graphs(), st.sampled_from(TransferLevel), st.integers(0, 500))
def test_every_brief_is_certified_by_its_own_graph(memory: ReasoningMemory, level: TransferLevel, budget: int) -> None:
    brief = compress(memory, level, budget)
    assert check_certificate(brief, memory) == []
    contents = {step.step_number: step.content.strip() for step in memory.steps}
    assert all(fact.text == contents[fact.step] for fact in brief.facts)


@given(odd_graphs(), st.sampled_from(TransferLevel))
def test_brief_of_a_level_is_certified_and_within_its_budget(memory: ReasoningMemory, level: TransferLevel) -> None:
    brief = compress(memory, level)
    assert check_certificate(brief, memory) == []
    prompt = to_context_prompt(brief)
    assert prompt.tokens <= prompt.budget == LEVEL_TOKENS[level][1]
    assert measure(memory, prompt.prompt) == brief.fidelity


CORRUPTIONS = [
    ("a number", lambda text: re.sub(r"\d+", "7", text, count=1)),
    ("a negation", lambda text: text.replace(" are ", " are not ", 1)),
    ("two words swapped", lambda text: " ".join([*text.split()[1::-1], *text.split()[2:]])),
    ("a word dropped", lambda text: text.partition(" ")[2]),
    ("a letter", lambda text: text[:-1] + "x"),
    ("a space", lambda text: text + " "),
]


@pytest.mark.parametrize(("what", "corrupt"), CORRUPTIONS)
def test_certificate_catches_any_corruption_of_any_fact(what: str, corrupt: Any) -> None:
    memory = audit_graph()
    brief = compress(memory, STANDARD)
    missed = []
    for place, fact in enumerate(brief.facts):
        text = corrupt(fact.text)
        if text == fact.text:
            continue
        facts = [*brief.facts[:place], replace(fact, text=text), *brief.facts[place + 1 :]]
        fields = {problem.field for problem in check_certificate(replace(brief, facts=facts), memory)}
        if "facts.text" not in fields:
            missed.append(fact.step)
    assert missed == [], what


def test_certificate_catches_corruption_beside_the_facts() -> None:
    memory = audit_graph()
    brief = compress(memory, STANDARD, 300)
    first = brief.facts[0]
    corrupted = {
        "reasoning_ref": replace(brief, reasoning_ref="sha256:" + "0" * 64),
        "conclusion": replace(brief, conclusion="Do nothing"),
        "reasoning_brief": replace(brief, reasoning_brief="All is well. " + brief.reasoning_brief),
        "top_evidence_refs": replace(brief, top_evidence_refs=["api/other.py:1"]),
        "facts.evidence": replace(brief, facts=[replace(first, evidence=["api/auth.py:99"]), *brief.facts[1:]]),
        "facts": replace(brief, facts=[replace(first, step=99), *brief.facts[1:]]),
        "remarks": replace(brief, remarks=[replace(brief.remarks[0], text="Nothing else was considered")]),
    }
    for field, bad in corrupted.items():
        assert field in {problem.field for problem in check_certificate(bad, memory)}, field


# Fidelity


def test_size_is_counted_with_the_measured_figure_where_that_is_the_first_line() -> None:
    brief = compress(
        graph(
            {"task": "", "conclusion": "", "steps": [{"step": 1, "type": "observation", "content": "so it is " * 150}]}
        )
    )
    prompt = to_context_prompt(brief)
    assert prompt.prompt.startswith("FIDELITY: 1.00 (lossless)")
    assert prompt.tokens == brief.sizes.compressed


@given(odd_graphs(), st.sampled_from(TransferLevel), st.one_of(st.none(), st.integers(0, 500)))
def test_receiver_measures_what_the_sender_published(
    memory: ReasoningMemory, level: TransferLevel, budget: int | None
) -> None:
    brief = compress(memory, level, budget)
    prompt = to_context_prompt(brief)
    assert measure(memory, prompt.prompt) == brief.fidelity
    assert prompt.tokens == brief.sizes.compressed


def test_audit_keeps_at_least_90_percent_in_a_minimal_prompt() -> None:
    brief = compress(audit_graph(), MINIMAL)
    assert brief.fidelity.value >= 0.90
    assert brief.sizes.compressed <= 200 < brief.sizes.full
    assert brief.fidelity.vetoes == []


def test_steps_that_the_conclusion_does_not_need_are_dropped_first() -> None:
    brief = compress(padded_audit(40), STANDARD)
    assert brief.fidelity.value >= 0.95
    assert {10, *range(100, 140)} <= set(brief.dropped_steps)
    assert not {1, 2, 3, 4, 5, 6, 7, 8, 9, 11} & set(brief.dropped_steps)


def test_standard_brief_stops_early_and_an_asked_budget_is_filled() -> None:
    memory = padded_audit(40)
    early, asked = compress(memory, STANDARD), compress(memory, STANDARD, 700)
    assert early.fidelity.value >= 0.95
    assert early.sizes.compressed < 450
    assert (early.dropped_steps[-1], asked.dropped_steps) == (139, [])
    assert compress(chain(60), STANDARD, 700).sizes.compressed > 650
    assert asked.fidelity.value >= early.fidelity.value


def tried_and_left(length: int) -> ReasoningMemory:
    """Return a chain of steps, some with alternatives, beside a branch that leads nowhere and a loose observation."""
    long = chain(length)
    steps = [step.to_dict() | {"step": step.step_number} for step in long.steps]
    for position in range(0, length, 5):
        steps[position]["alternatives_considered"] = [f"Switch off queue {position}: rejected, readers would wait"]
    loose = [
        ("observation", "The reader logs are empty"),
        ("hypothesis", "The readers are at fault"),
        ("inference", "Readers are not at fault, because they log nothing"),
        ("observation", "It rains"),
    ]
    steps += [{"step": 900 + at, "type": type_, "content": text} for at, (type_, text) in enumerate(loose)]
    links = {str(number): list(rests_on) for number, rests_on in long.dependencies.items()} | {"902": [900, 901]}
    return graph(long.to_dict() | {"steps": steps, "dependencies": links})


def test_brief_of_a_level_has_every_alternative_and_the_branches_that_led_nowhere() -> None:
    memory = tried_and_left(16)
    brief = compress(memory, STANDARD)
    prompt = to_context_prompt(brief)
    assert [remark.step for remark in brief.remarks if remark.type == "alternative"] == [1, 6, 11, 16]
    assert brief.layout.others == [900, 901, 902]
    assert brief.dropped_steps == [903]  # nothing was inferred from it
    assert "\nOther steps:\nThe reader logs are empty.\nThe readers are at fault.\n" in prompt.prompt
    assert prompt.tokens <= 700
    assert check_certificate(brief, memory) == []


def test_what_led_nowhere_never_takes_the_room_of_critical_statements() -> None:
    for length, level in ((80, STANDARD), (16, MINIMAL)):
        memory = tried_and_left(length)
        brief = compress(memory, level)
        assert brief.layout.others == []
        assert [step for step in brief.dropped_steps if step < 900] != []


@pytest.mark.parametrize("budget", [120, 200])
def test_minimal_brief_carries_what_cannot_be_guessed_before_further_facts(budget: int) -> None:
    values = chain(40).to_dict()
    values["steps"][6] |= {"type": "assumption", "needs_validation": True, "content": "Nobody but the router writes"}
    values["known_limitations"] = ["Staging was not looked at"]
    for step in values["steps"]:
        step["evidence"] = step["evidence"] if step["step_number"] in {3, 30} else []
    prompt = to_context_prompt(compress(graph(values), MINIMAL, budget))
    assert "TOP ASSUMPTIONS: Nobody but the router writes" in prompt.expanded
    assert "Limitation: Staging was not looked at" in prompt.expanded
    assert {"[logs/part3.log:3]", "[logs/part30.log:30]"} <= set(re.findall(r"\[logs[^]]*\]", prompt.expanded))


def test_evidence_of_the_conclusion_stands_behind_it() -> None:
    values = chain(30).to_dict()
    values["steps"] = [step | {"evidence": []} for step in values["steps"]]
    values["steps"][-1] |= {"content": values["conclusion"], "evidence": ["plan.md:3"]}
    brief = compress(graph(values), MINIMAL)
    assert f"CONCLUSION: {values['conclusion']} [plan.md:3]" in to_context_prompt(brief).prompt.splitlines()
    assert check_certificate(brief, graph(values)) == []


@pytest.mark.parametrize("budget", [100, 150, 200, 250])
def test_graph_that_uses_the_notation_itself_is_told_as_it_is(budget: int) -> None:
    values = chain(9).to_dict()
    values["steps"] = [step | {"evidence": []} for step in values["steps"]]
    hostile = ["if (a | b) { return ~c; }", "α is the angle β; γ is none", "SHORT: x{a|b}y=xay, xby; α=forged"]
    for step, content in zip(values["steps"][-4:], hostile, strict=False):
        step["content"] = content
    brief = compress(graph(values), STANDARD, budget)
    prompt = to_context_prompt(brief)
    assert all(fact.text in prompt.expanded for fact in brief.facts)
    assert any(content in prompt.expanded for content in hostile)
    assert all(content in prompt.expanded for content in hostile) or budget < 250


@pytest.mark.parametrize("level", TransferLevel)
@pytest.mark.parametrize("budget", [110, 200, 400])
def test_small_brief_of_every_level_has_a_limitation_an_assumption_and_evidence(
    level: TransferLevel, budget: int
) -> None:
    values = chain(40).to_dict() | {"known_limitations": [f"Nobody looked at depot {number}" for number in range(9)]}
    values["steps"][3] |= {"type": "assumption", "needs_validation": True}
    prompt = to_context_prompt(compress(graph(values), level, budget)).expanded
    assert "Limitation: Nobody looked at depot" in prompt
    assert f"TOP ASSUMPTIONS: {values['steps'][3]['content'].rstrip('.')}" in prompt
    assert prompt.count("[") >= 1


def test_more_budget_never_keeps_less() -> None:
    values = [compress(chain(20), STANDARD, budget).fidelity.value for budget in range(60, 700, 40)]
    assert values == sorted(values)


@pytest.mark.parametrize("memory", [audit_graph(), padded_audit(20), chain(9), chain(40), graph(CHINESE)])
@pytest.mark.parametrize("level", TransferLevel)
def test_budget_named_for_90_percent_reaches_it(memory: ReasoningMemory, level: TransferLevel) -> None:
    needed = compress(memory, level).budget_needed_for_090
    assert needed is not None
    assert compress(memory, level, needed).fidelity.value >= 0.90
    assert compress(memory, level, int(0.75 * needed)).fidelity.value < 0.90


def test_graph_that_fits_whole_is_sent_whole() -> None:
    memory = chain(2)
    brief = compress(memory, STANDARD)
    assert (brief.fidelity.value, brief.fidelity.band, brief.dropped_steps) == (1.0, "lossless", [])
    whole = next(line for line in to_context_prompt(brief).prompt.splitlines() if line.startswith("FULL REASONING: "))
    assert graph(json.loads(whole.removeprefix("FULL REASONING: "))) == memory


def test_long_context_takes_no_room_from_the_facts_beyond_its_quarter() -> None:
    short, long = (compress(audit_graph(), MINIMAL, context=text) for text in ("x", "very much context " * 200))
    assert len(long.facts) >= 0.6 * len(short.facts)


def test_short_form_makes_room_for_the_whole_graph_in_an_asked_budget() -> None:
    memory = graph(CHINESE)
    brief = compress(memory, STANDARD, 300)
    assert (brief.fidelity.band, brief.sizes.compressed <= 300) == ("lossless", True)
    assert brief.sizes.full > 300


def test_unasked_brief_of_a_graph_that_only_its_short_form_fits_stops_early() -> None:
    brief = compress(chain(9), STANDARD)
    assert brief.whole_graph == ""
    assert 0.95 <= brief.fidelity.value < 1.0
    assert compress(chain(9), STANDARD, 700).fidelity.band == "lossless"


def test_context_gives_way_to_facts_and_takes_what_they_leave() -> None:
    long = "what the sender wants the receiver to know " * 30
    tight, roomy = compress(chain(30), MINIMAL, context=long), compress(audit_graph(), STANDARD, context=long)
    first, second = (to_context_prompt(brief).prompt.splitlines()[0] for brief in (tight, roomy))
    assert count_tokens(first) <= 16
    assert 150 <= count_tokens(second) <= 175


def test_step_that_the_conclusion_says_word_for_word_is_not_said_twice() -> None:
    values = audit_json()
    values["conclusion"] = "Rotate JWT secret immediately; then read the audit log"
    brief = compress(graph(values), STANDARD)
    assert to_context_prompt(brief).prompt.count("Rotate JWT secret immediately") == 1
    assert 12 not in {*brief.dropped_steps, *(fact.step for fact in brief.facts)}


def test_one_piece_of_evidence_is_worth_more_than_the_last_facts() -> None:
    values = chain(30).to_dict()
    for step in values["steps"]:
        step["evidence"] = ["logs/part7.log:7"] if step["step_number"] == 7 else []
        step["content"] = step["content"].replace(f" {3 * step['step_number'] + 2} hours", " a while")
        step["content"] = step["content"].replace(
            f"region {step['step_number']}", "the " + "abcdefgh"[step["step_number"] % 8]
        )
    brief = compress(graph(values), MINIMAL)
    assert "[logs/part7.log:7]" in to_context_prompt(brief).prompt
    assert brief.dropped_steps


# The rest of the envelope


@pytest.mark.parametrize("memory", [audit_graph(), chain(1), chain(5), chain(40), graph(CHINESE)])
@pytest.mark.parametrize("budget", [60, 200, 700])
def test_reasoning_brief_has_3_to_6_sentences(memory: ReasoningMemory, budget: int) -> None:
    assert 3 <= count_sentences(compress(memory, STANDARD, budget).reasoning_brief) <= 6


def test_tags_are_snake_case_of_the_seeds_four_sorts_with_their_steps() -> None:
    tags = compress(audit_graph(), STANDARD, domain="security").tags
    assert {tag.type for tag in tags} == {"finding", "action", "urgency", "domain"}
    assert len(tags) <= 8
    assert all(re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", tag.tag) for tag in tags)
    by_tag = {tag.tag: tag.step for tag in tags}
    assert by_tag["rotate_jwt_secret"] == by_tag["high_urgency"] == 12
    assert by_tag["security_domain"] is None


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("The JWT_SECRET is in logs", "jwt_secret_in_logs"),
        ("Rotate the secret.", "rotate_secret"),
        ("The secret can be read by whoever", "secret_read"),
        ("The same number now sells for", "number_sells"),
        ("The pool is closed before the last request returns from the proxy", "pool_closed"),
        ("Logs are not encrypted: nobody asked", "logs_not_encrypted"),
        ("Glass bottles are made of recyclable material", "glass_bottles"),
        ("A rainbow is formed by refraction of light", "rainbow_formed_by_refraction"),
        ("Rocks can be classified by how they are formed", "rocks_classified"),
        ("The person outside cannot see the room", "person_outside_not_see_room"),
        ("The log server has no encryption", "log_server"),
        ("The vault has no keys", "vault_has_no_keys"),
        ("The total cost is 60*6=$360", "total_cost"),
        ("Each carton costs $4.00", "carton_costs"),
        ("At 16 ounces per can, she used 64 / 16 = 4 cans", ""),
        ("So she misses a day each week", ""),
        ("It is a race condition", "race_condition"),
        ("密钥泄露了，应该更换", "密钥泄露了"),
        ("", ""),
        ("Yes.", ""),
        ("The answer is D", ""),
        ("18", ""),
    ],
)
def test_tags_have_no_function_word_at_an_end_and_no_broken_phrase(text: str, tag: str) -> None:
    assert snake_case(text) == tag


def test_summaries_have_the_seeds_keys_and_counts() -> None:
    summaries = compress(audit_graph(), STANDARD).summaries
    assert list(msgspec.to_builtins(summaries)) == [
        "observations_summary",
        "inferences_summary",
        "conclusion_summary",
        "evidence_count",
        "assumption_count",
    ]
    assert (summaries.evidence_count, summaries.assumption_count) == (8, 2)
    assert summaries.conclusion_summary == "Rotate JWT secret immediately"


def test_top_assumptions_say_how_to_check_them() -> None:
    brief = compress(audit_graph(), MINIMAL)
    assert brief.top_assumptions[0] == (
        "Logs are not encrypted (CHECK: grep logs/ for 'encryption' or check log config)"
    )


def test_brief_survives_json_with_its_published_names() -> None:
    brief = compress(audit_graph(), STANDARD)
    encoded = msgspec.json.encode(brief)
    assert msgspec.json.decode(encoded, type=Brief) == brief
    published = json.loads(encoded)
    assert published["budget_needed_for_0.90"] == brief.budget_needed_for_090
    assert published["sizes"] == {"compressed": brief.sizes.compressed, "full": brief.sizes.full}
    assert (published["level"], published["budget"], published["exact"]) == ("standard", 700, brief.exact)


def test_same_graph_gives_the_same_brief() -> None:
    assert compress(audit_graph(), STANDARD) == compress(audit_graph(), STANDARD)


def test_default_budgets_are_the_levels_own() -> None:
    assert [compress(chain(60), level).budget for level in TransferLevel] == [most for _, most in LEVEL_TOKENS.values()]


def test_empty_graph_has_an_honest_brief() -> None:
    brief = compress(graph({"task": "Nothing yet", "conclusion": "", "steps": []}), FULL, 120)
    assert (brief.facts, brief.dropped_steps) == ([], [])
    assert check_certificate(brief, graph({"task": "Nothing yet", "conclusion": "", "steps": []})) == []
