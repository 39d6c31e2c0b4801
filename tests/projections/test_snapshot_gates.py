"""The rules about a snapshot: each can fire alone, and the answer names it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from deedbook.projections.briefs.embedding import HASH_V1, Embedder, Embedding, embed_text
from deedbook.projections.briefs.gates import check_level, domain_implied, should_fetch_full_reasoning
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot

BRIEF = "The invoice job stalls at the third page. The page has a broken total."
REF = "sha256:" + "1" * 64
QUIET = EnhancedEpistemicSnapshot(
    snapshot_id="quiet",
    vectors={"UNCERTAINTY": 0.2, "impact": 0.3},
    reasoning_brief=BRIEF,
    reasoning_embedding=embed_text(BRIEF),
    reasoning_ref=REF,
    reasoning_fidelity=0.92,
    domain="billing",
    evidence_refs=["api/invoice.py:4"],
    level=TransferLevel.STANDARD,
)
ABOUT_IT = "Repair the broken total on the third page of the invoice job"


def test_quiet_snapshot_is_enough_by_the_seeds_own_call() -> None:
    answer = should_fetch_full_reasoning(QUIET)
    assert not answer
    assert (answer.rule, answer.not_assessed, answer.similarity) == (None, [], None)


@pytest.mark.parametrize(
    ("change", "task", "rule"),
    [
        ({"domain": "Security"}, None, "high_risk_domain"),
        ({"vectors": {"Uncertainty": 0.5, "IMPACT": 0.0}}, None, "high_uncertainty"),
        ({"vectors": {"uncertainty": 0.0, "iMpAcT": 0.7}}, None, "high_impact"),
        ({"reasoning_fidelity": 0.74}, None, "low_fidelity"),
        ({"evidence_refs": ["env.example:12:JWT_SECRET=changeme"]}, None, "critical_evidence"),
        ({}, ABOUT_IT, "task_similarity"),
    ],
)
def test_each_rule_fires_alone_and_names_itself(change: dict[str, Any], task: str | None, rule: str) -> None:
    answer = should_fetch_full_reasoning(replace(QUIET, **change), task=task)
    assert answer
    assert [one.name for one in answer.all_rules] == [rule]


def test_similarity_is_told_and_fires_only_above_the_calibrated_threshold() -> None:
    far = should_fetch_full_reasoning(QUIET, task="Paint the office green")
    assert not far
    assert far.similarity is not None
    assert far.similarity < HASH_V1.threshold
    near = should_fetch_full_reasoning(QUIET, task=ABOUT_IT)
    assert near.similarity is not None
    assert near.similarity > HASH_V1.threshold


@pytest.mark.parametrize("task", [None, "", " \n"])
def test_similarity_without_a_task_is_not_known(task: str | None) -> None:
    assert should_fetch_full_reasoning(QUIET, task=task).similarity is None


def test_vector_of_another_embedder_fires_nothing_and_is_named() -> None:
    foreign = Embedding(embed_text(ABOUT_IT), Embedder("minilm", "2", 384, 0.8))
    answer = should_fetch_full_reasoning(replace(QUIET, reasoning_embedding=foreign), task=ABOUT_IT)
    assert not answer
    assert answer.similarity is None
    assert "minilm" in answer.not_compared


def test_snapshot_that_nobody_assessed_asks_for_the_full_graph() -> None:
    answer = should_fetch_full_reasoning(replace(QUIET, vectors={"know": 0.1}))
    assert [rule.name for rule in answer.all_rules] == ["not_assessed"]
    assert answer.not_assessed == ["UNCERTAINTY", "IMPACT"]
    half = should_fetch_full_reasoning(replace(QUIET, vectors={"Impact": 0.1}))
    assert half.rule is not None
    assert half.rule.reason == "Nobody assessed UNCERTAINTY."
    for silent in (replace(QUIET, vectors={}, reasoning_ref=None), replace(QUIET, vectors={}, snapshot_id="")):
        assert not should_fetch_full_reasoning(silent)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("JWT_SECRET stands in the log", "security"),
        ("Passwords are not encrypted", "security"),
        ("日志里有密码", "security"),
        ("The dosage is too high", "medical"),
        ("给病人的药物", "medical"),
        ("The plaintiff may sue", "legal"),
        ("A token is made of the user", ""),
        ("The button is blue", ""),
        ("", ""),
    ],
)
def test_words_give_the_domain_that_nobody_named(text: str, domain: str) -> None:
    assert domain_implied(text) == domain
    snapshot = replace(QUIET, domain=" ", conclusion=text, reasoning_brief="", context_summary="")
    rule = should_fetch_full_reasoning(snapshot).rule
    assert (rule is not None and rule.name) == ("high_risk_domain" if domain else False)
    assert not should_fetch_full_reasoning(replace(snapshot, domain="operations"))


def test_snapshot_without_reasoning_has_no_fidelity_that_could_be_low() -> None:
    assert not should_fetch_full_reasoning(EnhancedEpistemicSnapshot(snapshot_id="x", context_summary="c"))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"reasoning_fidelity": math.nan}, "low_fidelity"),
        ({"vectors": {"uncertainty": math.nan, "impact": 0.0}}, "high_uncertainty"),
    ],
)
def test_what_is_no_number_never_passes_for_a_good_one(change: dict[str, Any], rule: str) -> None:
    answer = should_fetch_full_reasoning(replace(QUIET, **change))
    assert [one.name for one in answer.all_rules] == [rule]


def test_level_that_was_not_measured_does_not_pass() -> None:
    answer = check_level(TransferLevel.MINIMAL, {TransferLevel.STANDARD: 0.9})
    assert (answer.gate, answer.level_that_passes) == ("failed", "standard")
    assert "not measured" in answer.reason
