"""The instant that an answer about the past names: an index or a time; and instants that are refused."""

from __future__ import annotations

import pytest
from view_ledger import ViewLedger

from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.reader import Reader


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger with records of every type; tests only read it."""
    with ViewLedger(tmp_path_factory.mktemp("instants") / ".deedbook") as made:
        made.fill()
        yield made


@pytest.fixture(scope="module")
def filled(ledger):
    with Reader(ledger.reads, ledger.settings()) as reader:
        yield reader


def moment(reader, at):
    return reader.answer("catalog.instant", {"at": at})


def test_index_means_the_state_after_that_entry(filled, ledger):
    for index in (0, 3, ledger.size - 1):
        assert moment(filled, index)["event_index"] == moment(filled, str(index))["event_index"] == index
        assert filled.answer("catalog.find", as_of=index)["total"] == index + 1


def test_time_means_the_last_entry_accepted_by_then(filled, ledger):
    times = [ledger.event(index).accepted_ms for index in range(ledger.size)]
    for at_ms in {times[0], times[5], times[5] + 1, times[-1]}:
        expected = max(index for index, accepted_ms in enumerate(times) if accepted_ms <= at_ms)
        found = moment(filled, clock_text(at_ms))
        assert found["event_index"] == expected
        assert found["now_ms"] == max(at_ms, times[expected])


def test_time_ahead_of_now_means_now(filled, ledger):
    found = moment(filled, "9999-12-31T23:59:59Z")
    assert found["event_index"] == ledger.size - 1
    assert found["now_ms"] < 250_000_000_000_000


@pytest.mark.parametrize("at", [-1, "-1", "", "soon", "1e3", "2026-13-01", "9" * 5000, "0001-01-01T00:00+10:00", True])
def test_what_is_neither_index_nor_time_is_refused(filled, at):
    with pytest.raises(Refused) as refused:
        filled.answer("catalog.find", as_of=at)
    assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize("beyond", [0, 1, 10**14])
def test_index_beyond_the_end_is_refused_and_the_last_one_named(filled, ledger, beyond):
    with pytest.raises(Refused) as refused:
        filled.answer("catalog.find", as_of=ledger.size + beyond)
    assert refused.value.code == "NOT_FOUND"
    assert f"its last entry is {ledger.size - 1}" in refused.value.message


def test_time_before_the_first_event_is_refused_and_the_first_one_named(filled, ledger):
    first_ms = ledger.event(0).accepted_ms
    with pytest.raises(Refused) as refused:
        filled.answer("catalog.find", as_of=clock_text(first_ms - 1))
    assert refused.value.code == "NOT_FOUND"
    assert clock_text(first_ms) in refused.value.message
