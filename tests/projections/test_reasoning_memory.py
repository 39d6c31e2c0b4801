"""The graph of a reasoning, and the ref that is its hash."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest
from graphs import AUDIT_FILE, CHINESE, audit_graph, audit_json, chain, graph, odd_graphs
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.projections.reasoning.memory import compute_reasoning_ref, memory_from_dict

SMALL: dict[str, Any] = {
    "task": "t",
    "conclusion": "c",
    "steps": [{"step": 1, "type": "observation", "content": "a"}, {"step": 2, "type": "conclusion", "content": "c"}],
    "dependencies": {"2": [1]},
}


def small(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALL), **changes}


def first_step(**changes: Any) -> dict[str, Any]:
    return small(steps=[SMALL["steps"][0] | changes, SMALL["steps"][1]])


def refusal_of(values: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        memory_from_dict(values)
    return caught.value


def test_ref_is_the_sha256_of_the_seeds_sorted_ascii_dump() -> None:
    # The hashed form of a graph includes the defaults, but no optional fields. It is written by hand below.
    memory = graph(SMALL)
    step: dict[str, Any] = {
        "alternatives_considered": [],
        "assumptions": [],
        "confidence": 1.0,
        "evidence": [],
        "premises": [],
        "reasoning_type": "",
    }
    by_hand = {
        "ai_id": "",
        "conclusion": "c",
        "confidence_in_reasoning": 1.0,
        "dependencies": {2: [1]},
        "known_limitations": [],
        "reasoning_id": "",
        "reasoning_strategy": "",
        "steps": [
            step | {"content": "a", "step_number": 1, "type": "observation"},
            step | {"content": "c", "step_number": 2, "type": "conclusion"},
        ],
        "task": "t",
    }
    dumped = json.dumps(by_hand, sort_keys=True, ensure_ascii=True).encode()
    assert compute_reasoning_ref(memory) == f"sha256:{hashlib.sha256(dumped).hexdigest()}"


def test_dependencies_are_hashed_in_the_order_of_their_numbers() -> None:
    memory = chain(12)
    dumped = json.dumps(memory.to_dict(), sort_keys=True)
    assert dumped.index('"2": [1]') < dumped.index('"10": [9]')


@given(odd_graphs())
def test_ref_survives_a_json_round_trip(memory: Any) -> None:
    again = graph(json.loads(json.dumps(memory.to_dict())))
    assert again == memory
    assert compute_reasoning_ref(again) == compute_reasoning_ref(memory)


def test_ref_does_not_depend_on_reasoning_id_or_domain() -> None:
    memory = audit_graph()
    named = replace(memory, reasoning_id=compute_reasoning_ref(memory))
    other, unmapped = memory_from_dict(audit_json() | {"domain": "security"})
    assert compute_reasoning_ref(named) == compute_reasoning_ref(other) == compute_reasoning_ref(memory)
    assert unmapped == {"domain": "security"}


def test_ref_changes_with_every_optional_field_that_is_given() -> None:
    # "needs_validation: false" is a statement, so its ref differs from that of a missing field.
    given_fields: list[dict[str, Any]] = [
        {},
        {"needs_validation": False},
        {"validation_method": "m"},
        {"evidence_digests": ["", "0123456789abcdef"]},
        {"conclusion": "so"},
    ]
    assert len({compute_reasoning_ref(graph(first_step(**fields))) for fields in given_fields}) == 5


def test_absent_optional_fields_stay_absent() -> None:
    step = graph(SMALL).steps[0]
    assert step.needs_validation is UNSET
    assert "needs_validation" not in step.to_dict()


def test_seed_spellings_are_read_as_the_dataclass_names() -> None:
    spelled = first_step(evidence_refs=["api/auth.py:23"])
    named = small(steps=[{**SMALL["steps"][0], "evidence": ["api/auth.py:23"]}, SMALL["steps"][1]])
    named["steps"][0]["step_number"] = named["steps"][0].pop("step")
    assert graph(spelled) == graph(named)


def test_unknown_fields_are_kept_aside_with_their_path() -> None:
    _, unmapped = memory_from_dict(first_step(colour="red") | {"mood": "calm"})
    assert unmapped == {"steps[0].colour": "red", "mood": "calm"}


def test_audit_holds_the_seeds_first_three_steps_word_for_word() -> None:
    first, second, third = audit_graph().steps[:3]
    assert first.evidence == [
        "api/auth.py:23:const SECRET = process.env.JWT_SECRET",
        "env.example:12:JWT_SECRET=changeme",
    ]
    assert (second.content, second.conclusion) == (
        "Environment variables are logged in our system",
        "JWT_SECRET appears in logs",
    )
    assert (third.needs_validation, third.validation_method) == (
        True,
        "grep logs/ for 'encryption' or check log config",
    )


def test_evidence_of_the_audit_stands_on_the_cited_lines() -> None:
    for step in audit_graph().steps:
        for evidence in step.evidence:
            path, line, text = evidence.split(":", 2)
            lines = (AUDIT_FILE.parent / "sample_project" / path).read_text(encoding="utf-8").splitlines()
            assert lines[int(line) - 1].strip() == text


def test_chinese_graph_is_hashed_as_ascii() -> None:
    assert compute_reasoning_ref(graph(CHINESE)).startswith("sha256:")


@pytest.mark.parametrize(
    ("values", "code", "field"),
    [
        ([], "INVALID_FORMAT", ""),
        (small(steps="x"), "INVALID_FIELD", "steps"),
        (small(steps=[1]), "INVALID_FORMAT", "steps[0]"),
        ({"task": "t", "steps": []}, "INVALID_FIELD", "conclusion"),
        (first_step(type="guess"), "INVALID_FIELD", "steps[0].type"),
        (first_step(reasoning_type="magic"), "INVALID_FIELD", "steps[0].reasoning_type"),
        (first_step(confidence=float("nan")), "INVALID_FIELD", "steps[0].confidence"),
        (first_step(confidence=10**400), "INVALID_FIELD", "steps[0].confidence"),
        (first_step(confidence=True), "INVALID_FIELD", "steps[0].confidence"),
        (first_step(content="\ud800"), "INVALID_FIELD", "steps[0].content"),
        (first_step(evidence=["a", 2]), "INVALID_FIELD", "steps[0].evidence[1]"),
        (first_step(needs_validation="yes"), "INVALID_FIELD", "steps[0].needs_validation"),
        (first_step(step_number=3), "INVALID_FIELD", "steps[0].step_number"),
        (first_step(step=2), "STEP_CONFLICT", "steps[1].step_number"),
        (small(dependencies={"02": [1]}), "INVALID_FIELD", "dependencies.02"),
        (small(dependencies={"2": [1], 2: [1]}), "STEP_CONFLICT", "dependencies.2"),
        (small(dependencies={"2": [7]}), "STEP_CONFLICT", "dependencies.2"),
        (small(dependencies={"7": [1]}), "STEP_CONFLICT", "dependencies.7"),
        (small(dependencies={"2": ["1"]}), "INVALID_FIELD", "dependencies.2"),
        (small(dependencies={"1": [2], "2": [1]}), "STEP_CONFLICT", "dependencies"),
    ],
)
def test_malformed_graph_is_refused_with_the_field_named(values: Any, code: str, field: str) -> None:
    refusal = refusal_of(values)
    assert (refusal.code, refusal.details["field"]) == (code, field)


def test_cycle_is_named() -> None:
    assert "1 → 2 → 1" in refusal_of(small(dependencies={"1": [2], "2": [1]})).message
