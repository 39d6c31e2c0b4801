"""The premises of a step are found by its words, never form a cycle, and are marked with the manner of finding them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.sdk.thinking.extract import extract_reasoning
from deedbook.projections.reasoning.memory import check_graph

BOTH = {1: "reference", 2: "reference"}


def ways(thinking: str) -> dict[int, dict[int, str]]:
    return {number: dict(found) for number, found in extract_reasoning({"thinking": thinking}).ways.items()}


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        # Lines are sentences, and names that are computed with are premises.
        ("x = 2\ny = 3\nz = x + y = 5", {3: {1: "name", 2: "name"}}),
        ("x = 2\ny = 3\nz = x + y = 5\nso z is 5", {3: {1: "name", 2: "name"}, 4: {3: "name"}}),
        ("total = 7\ntotal = 8\nhalf = total / 2", {3: {2: "name"}}),  # the last value counts
        # Steps are named by their own number, or by their position if no step has a number.
        ("1. The disk is full.\n2. Backups go there.\n3. From (1) and (2), they fail.", {3: BOTH}),
        ("一、磁盘已满\n二、备份写入磁盘\n三、由步骤1和2可知备份失败", {3: BOTH}),
        ("The disk is full.\n\nBackups go there.\n\nSteps 1 and 2 mean that they fail.", {3: BOTH}),
        ("3. One.\n\n7. Two.\n\n9. Step 3 means that it stops.", {3: {1: "reference"}}),
        ("1. One.\n2. As step 9 says, it stops.", {}),  # there is no such step before it
        # Connectives.
        ("The disk is full.\n\nTherefore nothing is written.", {2: {1: "connective"}}),
        ("磁盘已满。\n\n因此无法写入。", {2: {1: "connective"}}),
        (
            "A fills.\n\nSo B waits.\n\nC is idle.\n\nThus D stops.\n\nIn conclusion, add room.",
            {2: {1: "connective"}, 4: {3: "connective"}, 5: {2: "connective", 4: "connective"}},
        ),
        # Figures, paths and names that occur again.
        (
            "JWT_SECRET is read in a/b/auth.py:23.\n\nNobody asked.\n\nThis means JWT_SECRET is known.",
            {3: {1: "name", 2: "connective"}},
        ),
        ("a = 1\n\nb = 2\n\nPerhaps a is too small.", {3: {1: "name"}}),
        # The weakest kind of link.
        ("It rains.\n\nPerhaps nobody cares.", {2: {1: "adjacent"}}),
        # Observations and assumptions have no premises, and neither has the first step.
        ("The login pool closes early.\n\nThe login pool has 5 places.\n\nAssume that the login pool is shared.", {}),
        ("So the login fails.", {}),
    ],
)
def test_links_and_how_they_were_found(thinking: str, expected: dict[int, dict[int, str]]) -> None:
    assert ways(thinking) == expected


def test_what_computes_or_names_a_step_is_an_inference_unless_it_says_otherwise() -> None:
    types = [step.type for step in extract_reasoning({"thinking": "x = 2\ny = x + 1\nObservation: w = x"}).memory.steps]
    assert types == ["observation", "inference", "observation"]


def test_wrapped_lines_are_one_sentence_and_indented_ones_too() -> None:
    wrapped = "The pool is closed before the last of the requests has come back from\nthe server, so it fails."
    assert [step.content for step in extract_reasoning({"thinking": wrapped}).memory.steps] == [wrapped]
    listed = "It has:\n    one\n    two"
    assert len(extract_reasoning({"thinking": listed}).memory.steps) == 1


_LINES = st.lists(
    st.sampled_from(
        [
            "x = 2",
            "y = x + 1",
            "So y is 3.",
            "From step 2 and (1), z.",
            "Perhaps auth.py:3 fails.",
            "1. One",
            "2) Two",
            "因此失败",
            "In conclusion, stop.",
            "Step 5 rests on step 7.",
            "",
            "x = y\ny = x",
            "(3) means (4)",
            "步骤9、步骤1",
        ]
    ),
    max_size=30,
)


@given(_LINES, _LINES)
def test_no_circle_comes_about_and_what_grew_keeps_its_links(lines: list[str], more: list[str]) -> None:
    if not "".join(lines).strip():
        return
    short = extract_reasoning({"thinking": "\n\n".join(lines) + "\n\n"})
    whole = extract_reasoning({"thinking": "\n\n".join([*lines, *more]) + "\n\n"})
    for found in (short, whole):
        check_graph(found.memory)
        assert all(step < number for number, rests_on in found.ways.items() for step in rests_on)
    if whole.memory.steps[: len(short.memory.steps)] == short.memory.steps and len(lines) > 1:
        kept = {number: found for number, found in whole.ways.items() if number <= len(short.memory.steps)}
        assert kept == short.ways
