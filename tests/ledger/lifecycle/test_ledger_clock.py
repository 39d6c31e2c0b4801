"""The functions of the ledger's clock: the time of the next entry, refused settings, the clock in force at an entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.clock import Span, check_set, clock_text, is_jump, ledger_now, next_ms
from deedbook.ledger.limits import clock_backward_max_ms, clock_forward_max_ms, clock_max_ms

LAST = 1_800_000_000_000
MOMENTS = st.integers(0, clock_max_ms)


@given(last=MOMENTS, system=MOMENTS)
def test_next_entry_is_never_before_the_last_and_never_far_after_it(last: int, system: int) -> None:
    if not -clock_backward_max_ms <= system - last <= clock_forward_max_ms:
        with pytest.raises(Refused):
            next_ms(last, system)
        return
    given_ms = next_ms(last, system)
    assert given_ms == ledger_now(last, system) == max(last, system)
    assert not is_jump(last, given_ms)


@pytest.mark.parametrize(
    ("distance", "is_taken"),
    [
        (clock_forward_max_ms, True),
        (clock_forward_max_ms + 1, False),
        (-clock_backward_max_ms, True),
        (-clock_backward_max_ms - 1, False),
    ],
)
def test_bounds_are_thirty_days_ahead_and_one_behind(distance: int, is_taken: bool) -> None:
    if is_taken:
        assert next_ms(LAST, LAST + distance) == max(LAST, LAST + distance)
        return
    with pytest.raises(Refused) as refused:
        next_ms(LAST, LAST + distance)
    assert refused.value.code == "CLOCK_JUMPED"
    assert "deed clock set --as root" in refused.value.message


@pytest.mark.parametrize("system", [-1, -(10**15), clock_max_ms + 1, 10**20])
@pytest.mark.parametrize("last", [None, LAST])
def test_time_outside_the_years_that_dates_have_is_refused_even_for_the_first_entry(
    last: int | None, system: int
) -> None:
    with pytest.raises(Refused) as refused:
        next_ms(last, system)
    assert (refused.value.code, refused.value.recoverable) == ("CLOCK_JUMPED", False)


def test_first_entry_has_the_systems_time() -> None:
    assert (next_ms(None, 0), next_ms(None, clock_max_ms)) == (0, clock_max_ms)
    assert (clock_text(0), clock_text(clock_max_ms)) == ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")


@pytest.mark.parametrize(("set_ms", "system"), [(LAST, LAST + clock_backward_max_ms + 1), (-5, 0), (0, -5)])
def test_root_cannot_set_a_time_that_the_machine_does_not_share(set_ms: int, system: int) -> None:
    check_set(LAST, LAST - clock_backward_max_ms)
    with pytest.raises(Refused) as refused:
        check_set(set_ms, system)
    assert refused.value.code == "CLOCK_JUMPED"


def test_span_holds_from_when_it_was_granted_until_it_ends() -> None:
    span = Span(100, 200)
    assert [span.holds(now) for now in (99, 100, 199, 200)] == [False, True, True, False]
