"""A budget is never overdrawn, and the greatest number that fits is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.sdk.tokens import Budget, cut_to_tokens, greatest
from deedbook.projections.briefs.tokens import count_tokens


def test_an_offer_is_taken_only_where_it_can_be_paid() -> None:
    budget = Budget(5)
    assert [budget.take(cost) for cost in (3, 3, 2, 1, 0)] == [True, False, True, False, True]
    assert budget.left == 0


@pytest.mark.parametrize("limit", [0, 1, 7, 40, 99, 100, 200])
def test_the_greatest_number_that_fits_is_found_and_the_lowest_is_unasked(limit: int) -> None:
    asked: list[int] = []
    assert greatest(1, 100, lambda number: asked.append(number) or number <= limit) == max(1, min(limit, 100))
    assert 1 not in asked


@given(st.text(), st.integers(8, 30))
def test_what_is_cut_costs_no_more_than_its_limit_or_is_the_mark_alone(text: str, limit: int) -> None:
    cut = cut_to_tokens(text, limit)
    assert count_tokens(cut) <= limit
    assert cut in {text, text.strip()} or "…" in cut
