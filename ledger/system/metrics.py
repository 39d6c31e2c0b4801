"""Metrics that a node collects while it works: totals, levels, durations and sizes.

Any thread may count; one call costs about a microsecond. Every name, with its unit in the form of Prometheus, is in
``METRIC_DEFINITIONS``. This module knows nothing of the page that publishes the metrics (`/metrics` of
``consumers.interfaces.web``).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from typing import Final, Literal, NamedTuple

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_EVENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class MetricDefinition(NamedTuple):
    """The definition of one metric. ``label`` is the name of its label, if any; ``bounds`` are those of a histogram."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""
    bounds: tuple[float, ...] = ()


METRIC_DEFINITIONS: Final = {
    "submissions": MetricDefinition("counter", "Submissions that came over the bus"),
    "reads": MetricDefinition("counter", "Reads that came over the bus"),
    "events_accepted": MetricDefinition("counter", "Events that were accepted, each time they were submitted"),
    "refusals": MetricDefinition("counter", "Submissions that were refused, by error code", "code"),
    "submit_seconds": MetricDefinition("histogram", "Seconds from a submission to its answer, synced", bounds=SECONDS),
    "commit_seconds": MetricDefinition(
        "histogram", "Seconds of one synced transaction, including its decisions", bounds=SECONDS
    ),
    "commit_events": MetricDefinition("histogram", "Events submitted in one transaction", bounds=_EVENTS),
    "requests_shed": MetricDefinition(
        "counter", "Requests that were dropped or answered BUSY because too many waited", "queue"
    ),
    "subscriptions_closed": MetricDefinition(
        "counter", "Times that an agent sent too much, and its subscription was closed for a while", "queue"
    ),
    "task_failures": MetricDefinition("counter", "Times that a task of the node failed and was started again", "task"),
    "publish_conflicts": MetricDefinition("counter", "Times that another node was first, and this one decided again"),
    "stream_faults": MetricDefinition("counter", "Times that damage was found in the log stream"),
    "stream_generation": MetricDefinition("gauge", "The generation of the log stream"),
    "scrub_timestamp_seconds": MetricDefinition("gauge", "When the whole stream was last compared with the log"),
    "checkpoint_timestamp_seconds": MetricDefinition("gauge", "When the last checkpoint was published"),
    "witness_entries": MetricDefinition("gauge", "Entries in the last checkpoint that a witness cosigned", "witness"),
    "witness_failures": MetricDefinition("counter", "Times that a witness did not cosign", "witness"),
}


class Metrics:
    """The metrics of one process. A name that is not in ``METRIC_DEFINITIONS`` is a bug: KeyError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, defaultdict[str, float]] = {name: defaultdict(float) for name in METRIC_DEFINITIONS}
        self._bucket_counts = {
            name: [0] * (len(definition.bounds) + 1)
            for name, definition in METRIC_DEFINITIONS.items()
            if definition.bounds
        }

    def count(self, name: str, label: str = "", by: float = 1) -> None:
        """Add ``by`` to a total."""
        with self._lock:
            self._values[name][label] += by

    def put(self, name: str, value: float, label: str = "") -> None:
        """Set a level."""
        with self._lock:
            self._values[name][label] = value

    def observe(self, name: str, *values: float) -> None:
        """Add values to a histogram, and to its sum."""
        bounds, counts = METRIC_DEFINITIONS[name].bounds, self._bucket_counts[name]
        with self._lock:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            self._values[name][""] += sum(values)

    def values(self, name: str) -> dict[str, float]:
        """Return totals, levels or a histogram's sum, by label. Before the first count, a metric without label is 0."""
        with self._lock:
            return dict(self._values[name]) or ({} if METRIC_DEFINITIONS[name].label else {"": 0.0})

    def bucket_counts(self, name: str) -> list[int]:
        """Return how many values of a histogram are between each bound and the one before, and above the last."""
        with self._lock:
            return list(self._bucket_counts[name])
