"""Metrics are summed over threads, and histograms have the format of Prometheus."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from deedbook.ledger.system.metrics import METRIC_DEFINITIONS, Metrics


def test_a_value_falls_under_the_first_bound_that_is_not_below_it() -> None:
    metrics = Metrics()
    for value in (1, 2, 3, 1024, 5000):
        metrics.observe("commit_events", value)
    counts = metrics.bucket_counts("commit_events")
    bounds = METRIC_DEFINITIONS["commit_events"].bounds
    assert [counts[bounds.index(bound)] for bound in (1, 2, 4, 1024)] == [1, 1, 1, 1]
    assert (counts[-1], sum(counts), metrics.values("commit_events")) == (1, 5, {"": 6030})


def test_threads_that_count_at_once_lose_nothing() -> None:
    metrics = Metrics()

    def count(_: int) -> None:
        for _ in range(1000):
            metrics.count("refusals", "BUSY")
            metrics.observe("submit_seconds", 0.002)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert metrics.values("refusals") == {"BUSY": 4000}
    assert sum(metrics.bucket_counts("submit_seconds")) == 4000


def test_metric_without_counts_is_zero_or_with_a_label_has_no_values() -> None:
    metrics = Metrics()
    assert (metrics.values("submissions"), metrics.values("refusals")) == ({"": 0}, {})
    metrics.put("witness_entries", 7, "w1")
    assert metrics.values("witness_entries") == {"w1": 7}


def test_an_undeclared_name_is_an_error() -> None:
    for use in (lambda: Metrics().count("refusal"), lambda: Metrics().observe("submissions", 1)):
        with pytest.raises(KeyError):
            use()
