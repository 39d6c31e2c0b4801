"""The gates of briefs: when the full graph must be fetched, which levels pass, and which graphs may be acted on."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from deedbook.projections.briefs.gates import (
    check_level,
    check_verdict,
    choose_level,
    should_fetch_full_reasoning,
    verdict_age_max_s,
)
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot
from deedbook.projections.validations.answers import LatestVerdict, Outcome, Voice

QUIET: dict[str, Any] = {
    "fidelity": 0.92,
    "domain": "billing",
    "vectors": {"UNCERTAINTY": 0.2, "IMPACT": 0.3},
    "evidence_refs": ["api/invoice.py:4"],
}


def test_low_risk_snapshot_needs_no_fetch() -> None:
    answer = should_fetch_full_reasoning(**QUIET)
    assert (answer.fetch, answer.rule, answer.not_assessed) == (False, None, [])


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"domain": "security"}, "high_risk_domain"),
        ({"domain": " Medical "}, "high_risk_domain"),
        ({"domain": "legal"}, "high_risk_domain"),
        ({"vectors": {"uncertainty": 0.5, "impact": 0.1}}, "high_uncertainty"),
        ({"vectors": {"Uncertainty": 0.1, "Impact": 0.7}}, "high_impact"),
        ({"fidelity": 0.7499}, "low_fidelity"),
        ({"evidence_refs": ["env.example:12:JWT_SECRET=changeme"]}, "critical_evidence"),
        ({"evidence_refs": ["src/Credentials.ts:9"]}, "critical_evidence"),
    ],
)
def test_each_rule_of_the_seed_fires_by_name(change: dict[str, Any], rule: str) -> None:
    answer = should_fetch_full_reasoning(**(QUIET | change))
    assert answer.rule is not None
    assert (answer.rule.name, len(answer.all_rules)) == (rule, 1)
    assert answer.rule.reason


def test_reason_of_a_low_fidelity_does_not_round_it_up_to_the_threshold() -> None:
    (rule,) = should_fetch_full_reasoning(**(QUIET | {"fidelity": 0.7499})).all_rules
    assert rule.reason == "The fidelity is 0.74, below 0.75."


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": {"UNCERTAINTY": 0.49, "IMPACT": 0.69}},
        {"fidelity": 0.75},
        {"domain": None},
        {"domain": "securities"},
    ],
)
def test_values_beside_a_threshold_fire_nothing(change: dict[str, Any]) -> None:
    assert not should_fetch_full_reasoning(**(QUIET | change)).fetch


def test_first_rule_in_the_seeds_order_is_named_and_all_are_listed() -> None:
    answer = should_fetch_full_reasoning(
        fidelity=0.1, domain="legal", vectors={"IMPACT": 1.0}, evidence_refs=["a secret"]
    )
    names = [rule.name for rule in answer.all_rules]
    assert names == ["high_risk_domain", "high_impact", "low_fidelity", "critical_evidence"]
    assert answer.rule == answer.all_rules[0]


def test_vector_that_nobody_assessed_fires_nothing_and_is_named() -> None:
    answer = should_fetch_full_reasoning(**(QUIET | {"vectors": {"IMPACT": None}}))
    assert (answer.fetch, answer.not_assessed) == (False, ["UNCERTAINTY", "IMPACT"])


def test_lowest_level_that_passes_its_gate_is_chosen() -> None:
    minimal, standard = TransferLevel.MINIMAL, TransferLevel.STANDARD
    assert choose_level({minimal: 0.90, standard: 0.95}) is minimal
    assert choose_level({minimal: 0.899, standard: 0.95}) is standard
    assert choose_level({minimal: 0.5, standard: 0.749}) is TransferLevel.FULL


def test_level_asked_by_name_says_when_it_failed_and_what_would_pass() -> None:
    fidelities = {TransferLevel.MINIMAL: 0.8, TransferLevel.STANDARD: 0.96}
    answer = check_level(TransferLevel.MINIMAL, fidelities)
    assert (answer.gate, answer.level, answer.level_that_passes) == ("failed", "minimal", "standard")
    assert check_level(TransferLevel.STANDARD, fidelities).gate == "passed"
    assert check_level(TransferLevel.FULL, {TransferLevel.FULL: 0.2}).gate == "passed"


def test_step_down_that_loses_too_much_fails_even_above_the_minimum() -> None:
    inline = {TransferLevel.FULL: 1.0}
    answer = check_level(TransferLevel.STANDARD, inline | {TransferLevel.STANDARD: 0.80})
    assert (answer.gate, answer.level_that_passes) == ("failed", "full")
    assert check_level(TransferLevel.STANDARD, inline | {TransferLevel.STANDARD: 0.85}).gate == "passed"


NOW_MS: Final = 100 * 86_400_000


def verdict_of(*outcomes: Outcome, age_s: int = 60) -> LatestVerdict:
    """Return a verdict with one outcome for each validator, the latest first."""
    counted: Any = {
        "counted": "1 of 3 stand",
        "references": 3,
        "stand": 3,
        "assumptions_open": 0,
        "tree": "folder",
        "commit": "",
        "problems": ["gone"],
    }
    voices = [
        Voice(outcome=one, by=f"v{at}", at_ms=NOW_MS - 1000 * age_s, event_index=at, event_id="", text=one, **counted)
        for at, one in enumerate(outcomes)
    ]
    worst = next((one for one in ("failed", "passed", "unchecked") if one in outcomes), "none")
    return LatestVerdict(
        reasoning_ref="sha256:0",
        outcome=worst,  # type: ignore[arg-type]
        text="; but ".join(outcomes),
        latest=voices[0] if voices else None,
        differing=voices[1:],
    )


def test_reasoning_that_was_found_wrong_passes_no_gate_and_is_fetched() -> None:
    verdict = verdict_of("passed", "failed")
    gate = check_level(TransferLevel.FULL, {TransferLevel.STANDARD: 1.0}, verdict)
    assert (gate.gate, gate.level_that_passes, gate.reason) == (
        "failed",
        "",
        "v1 found it wrong (entry 1): 1 of 3 stand.",
    )
    assert [rule.name for rule in should_fetch_full_reasoning(verdict=verdict).all_rules] == ["found_wrong"]
    for quiet in (None, verdict_of(), verdict_of("unchecked"), verdict_of("passed", "unchecked")):
        assert not should_fetch_full_reasoning(verdict=quiet)
        assert check_level(TransferLevel.FULL, {}, quiet).gate == "passed"


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "No validation by another than its author has passed."),
        (verdict_of(), "No validation by another than its author has passed."),
        (verdict_of("unchecked"), "v0 could not check all of it (entry 0): 1 of 3 stand."),
        (verdict_of("passed", "failed"), "v1 found it wrong (entry 1): gone"),
        (verdict_of("passed", age_s=verdict_age_max_s + 1), "The validation by v0 (entry 0) is too old."),
    ],
)
def test_graph_is_acted_on_only_by_a_verdict_that_is_whole_undisputed_and_not_too_old(
    verdict: LatestVerdict | None, said: str
) -> None:
    assert check_verdict(verdict, NOW_MS)[1] == [said]
    for fine in (verdict_of("passed", age_s=verdict_age_max_s), verdict_of("unchecked", "passed")):
        passing, problems = check_verdict(fine, NOW_MS)
        assert (passing is not None, problems) == (True, [])


def test_a_bare_reasoning_about_which_nothing_is_known_is_held_as_a_snapshot_is():
    bare = EnhancedEpistemicSnapshot(snapshot_id="", reasoning_ref="sha256:" + "0" * 64, reasoning_fidelity=1.0)
    assert [rule.name for rule in should_fetch_full_reasoning(bare).all_rules] == ["not_assessed"]
    passed = LatestVerdict(reasoning_ref="sha256:" + "0" * 64, outcome="passed", text="")
    for known in ({"domain": "ops"}, {"vectors": {"impact": 0.1}}, {"verdict": passed}):
        assert not should_fetch_full_reasoning(bare, **known)
    assert should_fetch_full_reasoning(bare, verdict=replace(passed, outcome="unchecked"))
