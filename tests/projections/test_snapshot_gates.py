"""The rules on a snapshot: each fires alone and names itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from projections.briefs.embedding import HASH_V1, Embedder, Embedding, embed_text
from projections.briefs.gates import check_level, should_fetch_full_reasoning
from projections.briefs.prompt import TransferLevel
from projections.snapshots.snapshot import EnhancedEpistemicSnapshot

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


def test_vectors_not_assessed_are_named_and_fire_nothing() -> None:
    answer = should_fetch_full_reasoning(replace(QUIET, vectors={"know": 0.1}))
    assert (bool(answer), answer.not_assessed) == (False, ["UNCERTAINTY", "IMPACT"])


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
