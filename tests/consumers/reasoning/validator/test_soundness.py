"""Structure: the validator names the faults of graphs that no ledger would admit, and never crashes on them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from graphs import CHINESE, chain, graph, odd_graphs
from hypothesis import given
from msgspec.structs import replace

from deedbook.consumers.reasoning.validator.validator import ReasoningValidator, check_inference, check_structure
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep


def step(number: int, kind: str = "inference", confidence: float = 0.9, **fields: object) -> ReasoningStep:
    return ReasoningStep(number, kind, f"Step {number} says this", confidence=confidence, **fields)  # type: ignore[arg-type]


def memory(
    *steps: ReasoningStep, dependencies: dict[int, list[int]] | None = None, **fields: object
) -> ReasoningMemory:
    known = {"reasoning_id": "", "ai_id": "", "task": "t", "conclusion": "So", "confidence_in_reasoning": 0.9}
    return ReasoningMemory(steps=list(steps), dependencies=dependencies or {}, **(known | fields))  # type: ignore[arg-type]


SEEN = step(1, "observation", evidence=["a.py:1"])
GUESS = step(2, "hypothesis")
END = step(3, "conclusion")
SOUND = memory(SEEN, step(2), END, dependencies={2: [1], 3: [2]})


def codes(reasoning: ReasoningMemory) -> set[str]:
    report = ReasoningValidator().validate(reasoning)
    assert report.passed is (not report.issues)
    report.to_event(whole="sha256:" + "0" * 64) if report.reasoning_ref else None
    return {issue.code for issue in report.issues}


def test_sound_graph_has_no_issue_though_its_evidence_was_not_looked_up() -> None:
    assert codes(SOUND) == set()
    counts = ReasoningValidator().validate(SOUND).counts()
    assert (counts.issues, counts.evidence, counts.evidence_ok) == (0, 1, 0)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (memory(), {"GRAPH_EMPTY"}),
        (replace(SOUND, steps=[SEEN, step(2), step(2), END]), {"STEP_REPEATED"}),
        (replace(SOUND, steps=[SEEN, step(2), step(0, "observation"), END]), {"STEP_NUMBER_INVALID"}),
        (replace(SOUND, steps=[SEEN, step(2), step(-5, "observation"), END]), {"STEP_NUMBER_INVALID"}),
        (replace(SOUND, steps=[SEEN, step(2), step(10**9, "observation"), END]), {"STEP_NUMBER_INVALID"}),
        (replace(SOUND, dependencies={2: [1], 3: [2, 99]}), {"DEPENDENCY_DANGLING"}),
        (replace(SOUND, dependencies={2: [1], 3: [2], 99: [1]}), {"DEPENDENCY_DANGLING"}),
        (replace(SOUND, dependencies={2: [1, 3], 3: [2]}), {"DEPENDENCY_CYCLE"}),
        (replace(SOUND, dependencies={2: [1, 2], 3: [2]}), {"DEPENDENCY_CYCLE"}),
        (replace(SOUND, steps=[SEEN, replace(step(2), content=" \n"), END]), {"CONTENT_EMPTY", "INFERENCE_UNSOUND"}),
        (replace(SOUND, steps=[replace(SEEN, confidence=math.nan), step(2), END]), {"CONFIDENCE_INVALID"}),
        (replace(SOUND, steps=[replace(SEEN, confidence=math.inf), step(2), END]), {"CONFIDENCE_INVALID"}),
        (replace(SOUND, steps=[SEEN, step(2, confidence=-0.1), END]), {"CONFIDENCE_INVALID", "INFERENCE_UNSOUND"}),
        (replace(SOUND, confidence_in_reasoning=math.nan), {"CONFIDENCE_INVALID"}),
        (replace(SOUND, confidence_in_reasoning=1.01), {"CONFIDENCE_INVALID"}),
        (replace(SOUND, steps=[SEEN, step(2, confidence=0.5), END]), {"INFERENCE_UNSOUND"}),
        (replace(SOUND, steps=[SEEN, step(2), step(3, "conclusion", 0.7)]), {"CONFIDENCE_ABOVE_PREMISES"}),
        (replace(SOUND, conclusion=" "), {"CONCLUSION_MISSING"}),
        (replace(SOUND, steps=[replace(SEEN, evidence=[]), step(2), END]), set()),
        (
            replace(SOUND, steps=[replace(SEEN, evidence=[]), END], dependencies={}, conclusion="no step says it"),
            set(),
        ),
        # A step at the default confidence carries no more than its weakest premise.
        (replace(SOUND, steps=[replace(SEEN, confidence=0.1), step(2, confidence=1.0), END]), {"INFERENCE_UNSOUND"}),
        (
            replace(SOUND, steps=[replace(SEEN, confidence=0.1), step(2, confidence=1.0), step(3, "conclusion", 1.0)]),
            {"CONFIDENCE_ABOVE_PREMISES"},
        ),
        (replace(SOUND, dependencies={2: [1]}), set()),  # its conclusion is unlinked
        (replace(SOUND, dependencies={3: [2]}), set()),
        (replace(SOUND, steps=[SEEN, GUESS, END], dependencies={3: [2]}), {"CONCLUSION_UNREACHABLE"}),
        (replace(SOUND, steps=[END], dependencies={}), {"CONCLUSION_UNREACHABLE"}),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(broken: ReasoningMemory, expected: set[str]) -> None:
    assert codes(broken) == expected


def test_conclusion_without_links_beside_linked_steps_is_unlinked_and_no_fault() -> None:
    report = ReasoningValidator().validate(replace(SOUND, dependencies={2: [1]}))
    assert (report.passed, report.counts().inferences_unlinked) == (True, 1)


def test_confidence_may_exceed_its_weakest_premise_by_the_tolerance_only() -> None:
    weak, strong = step(1, "observation", 0.8), step(2, "observation", 0.99)
    assert check_inference(step(3, confidence=0.9), [weak, strong]).status == "sound"
    assert check_inference(step(3, confidence=0.9002), [strong, weak]).status == "unsound"
    assert (
        check_inference(step(3, confidence=0.8), [step(1, confidence=0.7)]).status == "sound"
    )  # 0.8 - 0.7 > 0.1 in floats


def test_confidence_in_the_whole_that_was_not_stated_exceeds_nothing() -> None:
    doubtful = replace(SOUND, steps=[SEEN, step(2), step(3, "conclusion", 0.7)])
    assert codes(replace(doubtful, confidence_in_reasoning=1.0)) == set()
    assert codes(replace(doubtful, confidence_in_reasoning=0.99)) == {"CONFIDENCE_ABOVE_PREMISES"}


def test_check_of_an_inference_is_structural_and_says_so() -> None:
    found = check_inference(step(2), [SEEN])
    assert (found.status, found.method, found.opinion) == ("sound", "structural", None)
    assert check_inference(step(2), []).status == "unlinked"
    assert check_inference(step(2, premises=["All tests passed"]), []).status == "sound"


def test_premise_that_names_a_place_counts_as_evidence_and_is_looked_up() -> None:
    named = step(1, premises=["All are logged (verified in config/logging.yaml:45)"])
    report = ReasoningValidator().validate(memory(named, step(3, "conclusion"), dependencies={3: [1]}))
    assert [(check.step, check.reference) for check in report.evidence] == [(1, "config/logging.yaml:45")]
    assert [check.status for check in report.evidence] == ["not_checked"]


def test_circle_of_2000_steps_is_found_and_named_briefly() -> None:
    ring = {second: [first] for first, second in pairwise(range(1, 2001))} | {1: [2000]}
    (issue,) = check_structure(memory(*(step(number) for number in range(1, 2001)), dependencies=ring))[:1]
    assert issue.code == "DEPENDENCY_CYCLE"
    assert len(issue.message) <= 300


def test_chain_of_2000_steps_is_validated_and_its_report_fits_into_an_event() -> None:
    report = ReasoningValidator().validate(chain(2000))
    data = report.to_event()
    assert (data.counts.steps, data.counts.evidence, data.counts.inferences_sound) == (2001, 2000, 2001)
    assert data.omitted > 3000


@pytest.mark.parametrize(
    "text",
    [
        "x" * 50_000,
        "日志没有加密, the logs are not encrypted",
        "a\x00b\x1b[31m\x7f",
        "\u202egnp.exe\u2066",
        "🙂" * 9_000,
    ],
)
def test_odd_content_is_cut_where_it_is_quoted_and_breaks_nothing(text: str) -> None:
    odd = replace(SEEN, content=text, evidence=[text], assumptions=[text])
    report = ReasoningValidator().validate(replace(SOUND, steps=[odd, step(2), END], conclusion=text))
    data = report.to_event()
    assert all(len(check.reference) <= 300 for check in data.evidence)
    assert [check.status for check in data.evidence] == ["malformed"]
    assert "EVIDENCE_MALFORMED" in {issue.code for issue in data.issues}


def test_half_a_surrogate_pair_never_reaches_an_event() -> None:
    report = ReasoningValidator().validate(
        replace(SOUND, steps=[replace(SEEN, evidence=["a\ud800.py:1"]), step(2), END])
    )
    assert report.evidence[0].reference == "a\ufffd.py:1"


@given(odd_graphs())
def test_every_graph_gets_a_report_and_twice_the_same(reasoning: ReasoningMemory) -> None:
    first, second = (ReasoningValidator().validate(reasoning).to_dict() for _ in range(2))
    assert first == second
    assert first["passed"] is (first["issues"] == [])


def test_chinese_graph_is_validated() -> None:
    report = ReasoningValidator().validate(graph(CHINESE))
    assert [check.reference for check in report.evidence] == ["logs/disk.log:14"]
    assert (report.passed, report.evidence[0].status) == (True, "not_checked")
