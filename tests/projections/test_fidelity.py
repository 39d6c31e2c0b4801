"""The fidelity metric: the content it rewards, the tricks it resists, and its vetoes."""

from __future__ import annotations

import json
import random
from statistics import mean
from typing import Any

import pytest
from graphs import CHINESE, audit_graph, audit_json, chain, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st

from deedbook.projections.briefs.anchors import anchors, evidence_location
from deedbook.projections.briefs.critical import concluding_steps, critical_numbers, critical_units
from deedbook.projections.briefs.fidelity import BRIEF_MAX, WEIGHTS, band_of, combine, measure
from deedbook.projections.briefs.index import index_graph
from deedbook.projections.briefs.text import clauses, content_of, content_words, count_sentences, one_line, words
from deedbook.projections.briefs.vetoes import negation_scopes
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep

GRAPHS = [audit_graph(), chain(9), chain(30), graph(CHINESE)]
LATIN_GRAPHS = GRAPHS[:3]


def key_texts(memory: ReasoningMemory) -> list[str]:
    return [unit.text for unit in critical_units(memory, critical_numbers(memory))]


def verbatim(memory: ReasoningMemory) -> str:
    evidence = [evidence_location(text) for step in memory.steps for text in step.evidence]
    return "\n".join([*key_texts(memory), *evidence])


def rarest_words(memory: ReasoningMemory, text: str) -> str:
    index = index_graph(memory)
    tokens = [word for word in words(text) if content_of([word, "zebra"]) != ["zebra"]] or words(text)
    ranked = sorted(range(len(tokens)), key=lambda place: -index.weight_of(content_of([tokens[place]])[0]))
    kept = sorted(ranked[: max(1, int(0.6 * len(tokens)))])
    return " ".join(tokens[place] for place in kept)


# Critical steps


def test_critical_steps_are_what_the_conclusion_rests_on_and_open_assumptions() -> None:
    assert critical_numbers(audit_graph()) == {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12}
    assert critical_numbers(graph(CHINESE)) == {1, 2, 3, 4, 6}


def test_validated_assumption_off_the_path_is_not_critical() -> None:
    values = json.loads(json.dumps(CHINESE))
    values["dependencies"] = {"3": [1, 2], "6": [3]}
    assert 4 in critical_numbers(graph(values))
    values["steps"][3]["needs_validation"] = False
    assert 4 not in critical_numbers(graph(values))


def test_limitation_that_repeats_an_assumption_counts_once() -> None:
    # The audit's two limitations repeat assumptions in other words; the added limitation does not.
    memory = graph(audit_json() | {"known_limitations": [*audit_json()["known_limitations"], "Staging was not read"]})
    limitations = [unit.text for unit in critical_units(memory, critical_numbers(memory)) if unit.kind == "limitation"]
    assert limitations == ["Staging was not read"]


def test_limitation_that_contradicts_an_assumption_is_a_fact_of_its_own() -> None:
    memory = graph(audit_json() | {"known_limitations": ["Assumption unvalidated: Logs are encrypted"]})
    units = critical_units(memory, critical_numbers(memory))
    assert [unit.text for unit in units if unit.kind == "limitation"] == memory.known_limitations


def test_graph_without_dependencies_gives_no_ground_to_drop_a_step() -> None:
    assert critical_numbers(graph(audit_json() | {"dependencies": {}})) == set(range(1, 13))


def test_last_step_that_is_no_assumption_concludes_where_nothing_says_which() -> None:
    kinds = ("observation", "inference", "assumption")
    steps = [ReasoningStep(number, kind, f"Step {number}") for number, kind in enumerate(kinds, 1)]
    for some, concluding in ((steps, 2), (steps[2:], 3)):
        memory = ReasoningMemory("", "", "t", "So", some)
        assert [step.step_number for step in concluding_steps(memory)] == [concluding]


def test_conclusion_that_names_no_premise_makes_every_inference_critical() -> None:
    values = audit_json()
    del values["dependencies"]["12"]
    assert critical_numbers(graph(values)) == {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}


# Words


def test_words_join_inflections_and_split_chinese_into_bigrams() -> None:
    assert content_words("Logs aren't encrypted") == content_words("log: not encryption")
    assert content_words("日志没有加密") == ["日志", "志没", "没有", "有加", "加密"]


def test_anchors_are_numbers_paths_identifiers_and_hashes() -> None:
    text = "see api/auth.py:23, and/or JWT_SECRET in logs/ for 30 days, 1,200.50 or HS256 as 0f3a5c7e9b1d"
    assert anchors(text) == {
        "api/auth.py:23",
        "JWT_SECRET",
        "logs/",
        "30",
        "1200.5",
        "HS256",
        "0f3a5c7e9b1d",
    }


def test_clauses_end_at_marks_brackets_and_newlines_but_not_inside_paths() -> None:
    assert clauses("A b. C [x.py:3]; d\ne 7.5。f") == ["A b", "C", "x.py:3", "d", "e 7.5", "f"]
    assert count_sentences("One. Two? 三。four") == 4


def test_any_white_space_and_control_characters_become_one_space() -> None:
    assert one_line(" a \n\u2028\x00\t b\r\n") == "a b"


# Honest text


@pytest.mark.parametrize("memory", GRAPHS)
def test_verbatim_key_facts_reach_the_most_a_brief_can(memory: ReasoningMemory) -> None:
    fidelity = measure(memory, verbatim(memory))
    assert (fidelity.value, fidelity.band, fidelity.vetoes) == (BRIEF_MAX, "high", [])


@pytest.mark.parametrize("memory", GRAPHS)
def test_only_the_graph_itself_is_lossless(memory: ReasoningMemory) -> None:
    whole = json.dumps(memory.to_dict(), ensure_ascii=False)
    assert measure(memory, f"FULL REASONING: {whole}").band == "lossless"
    other = whole.replace('"confidence": 1.0', '"confidence": 0.5').replace('"confidence": 0.9,', '"confidence": 0.8,')
    assert measure(memory, other).value < 1


def test_fidelity_grows_with_each_fact_kept() -> None:
    memory = chain(9)
    texts = key_texts(memory)
    values = [measure(memory, "\n".join(texts[:kept])).value for kept in range(len(texts) + 1)]
    assert values == sorted(values)
    assert not values[0]


def test_light_rewording_keeps_most_and_synonyms_little() -> None:
    memory = chain(9)
    reworded = "\n".join(text.replace(" after ", " already after ") for text in key_texts(memory))
    foreign = "\n".join("Something somewhere broke down" for _ in key_texts(memory))
    assert measure(memory, reworded).value > 0.8
    assert measure(memory, foreign).value < 0.2


def test_parts_that_a_graph_lacks_are_left_out_of_the_sum() -> None:
    steps = [{"step": 1, "type": "conclusion", "content": "Bananas grow in bunches"}]
    memory = graph({"task": "t", "conclusion": "Bananas grow in bunches", "steps": steps})
    nothing = measure(memory, "")
    assert (nothing.value, nothing.A, nothing.E) == (0.0, None, None)
    assert measure(memory, "Bananas grow in bunches").value == BRIEF_MAX


def test_value_can_be_recomputed_from_the_published_parts() -> None:
    fidelity = measure(audit_graph(), "JWT secret stored in environment variable [api/auth.py:23].")
    assert fidelity.weights == WEIGHTS
    assert fidelity.value == combine({"R": fidelity.R, "A": fidelity.A, "E": fidelity.E}, fidelity.cap)
    assert band_of(fidelity.value) == fidelity.band


def test_bands_begin_at_their_figures() -> None:
    assert [band_of(value) for value in (1.0, 0.99, 0.90, 0.89, 0.75, 0.74)] == [
        "lossless",
        "high",
        "high",
        "medium",
        "medium",
        "low",
    ]


# Gaming


def test_texts_that_only_look_complete_score_low() -> None:
    # These texts have many of the right words, but do not express the graph's content.
    scores: dict[str, list[float]] = {}
    for memory in LATIN_GRAPHS:
        texts = key_texts(memory)
        attacks = {
            "sorted": " ".join(sorted(word for text in texts for word in words(text))),
            "anchors": " ".join(sorted(anchors(verbatim(memory)))),
            "rarest": "\n".join(rarest_words(memory, text) for text in texts),
            "conclusion": "\n".join([memory.conclusion] * 12),
            "other": verbatim(graph(CHINESE)),
            "empty": "",
        }
        for name, text in attacks.items():
            scores.setdefault(name, []).append(measure(memory, text).value)

    assert {name: mean(values) for name, values in scores.items() if mean(values) > 0.40} == {}


def test_scrambled_facts_never_pass_as_faithful() -> None:
    shuffle = random.Random(7)
    values = []
    for memory in LATIN_GRAPHS:
        scrambled = [shuffle.sample(text.split(), len(text.split())) for text in key_texts(memory)]
        values.append(measure(memory, "\n".join(" ".join(tokens) for tokens in scrambled)).value)
    assert mean(values) <= 0.74


def test_labels_and_headings_do_not_count_as_kept_reasoning() -> None:
    memory = audit_graph()
    hidden = "TAGS: " + " ".join(key_texts(memory)) + "\nCONTEXT: " + " ".join(key_texts(memory))
    assert not measure(memory, hidden).value


# Vetoes


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("24 hours", "48 hours", "foreign_anchor"),
        ("up to 30 days", "up to 24 days", "number_changed"),
        ("every 5 minutes to a bucket that 14", "every 14 minutes to a bucket that 5", "number_changed"),
        ("Logs are not encrypted", "Logs are encrypted", "negation_changed"),
        ("Tokens are valid", "Tokens are never valid", "negation_changed"),
        ("api/auth.py:23", "api/auth.py:24", "foreign_anchor"),
        ("JWT_SECRET appears", "API_SECRET appears", "foreign_anchor"),
    ],
)
def test_changed_number_negation_or_anchor_caps_the_fidelity(before: str, after: str, rule: str) -> None:
    memory = audit_graph()
    text = verbatim(memory)
    assert before in text
    fidelity = measure(memory, text.replace(before, after))
    assert rule in {veto.rule for veto in fidelity.vetoes}
    assert fidelity.value <= 0.74


@pytest.mark.parametrize(
    ("before", "after", "is_veto"),
    [
        ("没有足够的空间", "有足够的空间", True),
        ("告警邮件不再发送", "告警邮件再发送", True),
        ("备份任务从", "备份任务非常准时,从", False),
    ],
)
def test_chinese_negation_is_compared_but_not_every_such_character_negates(
    before: str, after: str, *, is_veto: bool
) -> None:
    memory = graph(CHINESE)
    fidelity = measure(memory, verbatim(memory).replace(before, after))
    assert ("negation_changed" in {veto.rule for veto in fidelity.vetoes}) is is_veto


def test_negation_elsewhere_in_the_graph_excuses_none() -> None:
    values = json.loads(json.dumps(CHINESE)) | {"known_limitations": ["Nobody looked at valid sessions"]}
    values["steps"][0]["content"] = "Tokens stay valid for a month"
    memory = graph(values)
    changed = verbatim(memory).replace("stay valid", "stay not valid")
    assert [veto.rule for veto in measure(memory, changed).vetoes] == ["negation_changed"]


def test_one_negation_does_not_excuse_a_second() -> None:
    values = json.loads(json.dumps(CHINESE))
    values["steps"][0]["content"] = "Heat can cause the seedlings not to survive"
    memory = graph(values)
    changed = verbatim(memory).replace("can cause", "can not cause")
    assert "negation_changed" in {veto.rule for veto in measure(memory, changed).vetoes}


def test_word_of_a_path_negates_nothing() -> None:
    assert negation_scopes("Gardens stand outside (without/grow.md:38)", ()) == []
    assert negation_scopes("Gardens stand without walls", ()) == [frozenset({"wall"})]


def test_negating_prefix_equals_not() -> None:
    memory = audit_graph()
    text = verbatim(memory).replace("Logs are not encrypted", "Logs are unencrypted")
    assert measure(memory, text).vetoes == []


def test_clause_without_support_caps_at_89() -> None:
    memory = audit_graph()
    fidelity = measure(memory, verbatim(memory) + "\nThe auditors celebrated with excellent cake")
    assert [veto.rule for veto in fidelity.vetoes] == ["unsupported"]
    assert fidelity.value == 0.89


def test_two_facts_in_one_sentence_are_no_contradiction() -> None:
    memory = chain(9)
    texts = key_texts(memory)
    fused = [f"{texts[place]} and {texts[place + 1]}" for place in range(1, len(texts) - 1, 2)]
    assert measure(memory, "\n".join(fused)).vetoes == []


@given(odd_graphs(), st.text())
def test_any_text_can_be_measured_against_any_graph(memory: Any, text: str) -> None:
    fidelity = measure(memory, text)
    assert 0 <= fidelity.value <= 1
    assert fidelity == measure(memory, text)
