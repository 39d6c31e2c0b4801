"""Calibration: the verdict on changes of knowledge and uncertainty, and a session's assessments in its report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reporting import AFTER, BEFORE

from deedbook.projections.reports.calibration import (
    VECTOR_NAMES,
    AssessmentPair,
    assessment_pair,
    bias_of,
    compare,
    deltas_of,
    label_of_bias,
    overall_of,
)
from deedbook.projections.reports.trends import bias_text

UNIT = st.floats(0.0, 1.0).map(lambda value: round(value, 4))
VECTORS = st.dictionaries(st.sampled_from(VECTOR_NAMES), UNIT)


def assessed(*phases, vectors=None):
    """Return assessments of the phases, in order, numbered by their position."""
    return [{"phase": phase, "vectors": vectors or {"know": 0.5}, "place": place} for place, phase in enumerate(phases)]


def test_the_example_table_keeps_its_four_deltas_and_is_well_calibrated():
    compared = compare(BEFORE, AFTER, given_before=0.683, given_after=0.896)
    assert compared.deltas == {
        "know": 0.25,
        "do": 0.05,
        "context": 0.1,
        "uncertainty": -0.45,
        "overall_confidence": 0.213,
    }
    assert compared.calibration_status == "well_calibrated"
    assert compared[1:4] == (
        0.683,
        0.896,
        True,
    )


def test_overall_confidence_is_the_mean_over_vectors_of_both_sides_with_uncertainty_turned_round():
    before = {"know": 0.4, "uncertainty": 0.6, "do": 0.0}
    after = {"know": 0.8, "uncertainty": 0.2, "clarity": 1.0}
    compared = compare(before, after)
    assert compared[1:4] == (
        0.4,
        0.8,
        False,
    )
    assert compared.deltas["overall_confidence"] == 0.4


def test_one_value_of_the_author_is_not_compared_with_a_mean():
    compared = compare({"know": 0.4}, {"know": 0.8}, given_after=0.99)
    assert compared[1:4] == (
        0.4,
        0.8,
        False,
    )


@pytest.mark.parametrize(("before", "after"), [(None, AFTER), (BEFORE, None), ({}, AFTER), ({"know": 0.1}, {"do": 1})])
def test_a_missing_side_gives_no_delta_no_overall_and_no_label(before, after):
    compared = compare(before, after)
    assert compared.deltas == {}
    assert compared[1:3] == (None, None)
    assert compared.calibration_status == "not_assessable"


@pytest.mark.parametrize(
    ("know", "uncertainty", "expected"),
    [
        (0.25, -0.45, "well_calibrated"),  # the example table: exactly .20 apart
        (0.25, -0.4501, "overconfident"),
        (0.10, -0.50, "overconfident"),  # uncertainty fell much more than knowledge grew
        (0.50, -0.10, "underconfident"),
        (0.45, -0.25, "well_calibrated"),
        (0.4501, -0.25, "underconfident"),
        (-0.30, -0.10, "overconfident"),  # the agent knows less, and is more certain
        (0.30, 0.10, "underconfident"),  # the agent knows more, and is less certain
        (0.0, 0.0, "well_calibrated"),
        (0.30, -0.13, "well_calibrated"),  # between .15 and .20
        (None, -0.4, "not_assessable"),
        (0.4, None, "not_assessable"),
    ],
)
def test_the_label_points_the_right_way_and_its_limits_are_the_designs(know, uncertainty, expected):
    assert label_of_bias(bias_of(know, uncertainty)) == expected


@given(VECTORS, VECTORS)
def test_deltas_turn_round_with_their_sides(before, after):
    forth, back = deltas_of(before, after), deltas_of(after, before)
    assert set(forth) == before.keys() & after.keys()
    assert {name: -delta for name, delta in forth.items()} == back
    assert all(abs(delta) <= 1 and round(delta, 4) == delta for delta in forth.values())


@given(VECTORS, VECTORS)
def test_overall_confidence_lies_between_0_and_1_and_ignores_one_sided_vectors(before, after):
    both = before.keys() & after.keys()
    means = overall_of(before, after)
    assert means == overall_of({name: before[name] for name in both}, {name: after[name] for name in both})
    assert all(mean is None or 0 <= mean <= 1 for mean in means)


@given(UNIT, UNIT)
def test_labels_are_symmetric_and_agree_with_the_bias_and_its_sentence(grown, fallen):
    opposite = {"overconfident": "underconfident", "underconfident": "overconfident"}
    bias = bias_of(grown, -fallen)
    found = label_of_bias(bias)
    assert label_of_bias(bias_of(fallen, -grown)) == opposite.get(found, found)
    assert (found == "overconfident") <= (fallen > grown)
    assert (found == "underconfident") <= (grown > fallen)
    text = bias_text(bias)
    assert ("overconfident" in text, "underconfident" in text) == (found == "overconfident", found == "underconfident")
    assert text.startswith("Uncertainty fell by" if bias < 0 else "Knowledge grew")


@pytest.mark.parametrize(
    ("phases", "preflight", "postflight", "expected"),
    [
        (["PREFLIGHT", "CHECK", "POSTFLIGHT"], 0, 2, "complete"),
        (["PREFLIGHT", "POSTFLIGHT", "PREFLIGHT", "POSTFLIGHT"], 2, 3, "complete"),
        (["PREFLIGHT", "PREFLIGHT", "POSTFLIGHT"], 1, 2, "complete"),
        (["PREFLIGHT", "POSTFLIGHT", "PREFLIGHT"], 0, 1, "complete"),
        (["PREFLIGHT", "CHECK"], 0, None, "investigation"),
        (["PREFLIGHT", "ACT"], 0, None, "preflight_only"),
        (["POSTFLIGHT"], None, 0, "planning"),
        (["POSTFLIGHT", "PREFLIGHT"], None, 0, "planning"),
        (["CHECK"], None, None, "planning"),
        ([], None, None, "planning"),
    ],
)
def test_the_last_postflight_is_compared_with_the_preflight_before_it(phases, preflight, postflight, expected):
    ends = assessment_pair(assessed(*phases))
    places = [None if one is None else one["place"] for one in (ends.preflight, ends.postflight)]
    assert (places, ends.report_type) == ([preflight, postflight], expected)


def test_an_assessment_without_vectors_counts_only_where_there_is_no_other():
    opened = [{"phase": "PREFLIGHT", "vectors": {}, "place": 9}]
    assert assessment_pair(assessed("PREFLIGHT") + opened).preflight["place"] == 0
    assert assessment_pair(opened).preflight["place"] == 9
    assert (
        assessment_pair([*assessed("PREFLIGHT", "POSTFLIGHT"), opened[0] | {"phase": "POSTFLIGHT"}]).postflight["place"]
        == 1
    )


def test_a_postflight_alone_makes_a_planning_report():
    assert AssessmentPair(None, {}, has_check=True).report_type == "planning"
