#!/usr/bin/env python3
"""How many ledgers, nodes and disks so many events a day need: a calculation, and a simulation of the queues.

    python deploy/scaling.py                                  the table of scaling.md
    python deploy/scaling.py --events-per-day 2e6 --ledgers 40 --nodes 3 --replicas 3 --json

It needs Python alone, and nothing of Deedbook, so that one plans with it before anything is installed. What a
submission costs comes from ``measured.json`` beside it, which `python -m tests.bench scaling --json` writes on your
machine.

The simulation is of one processor: submissions arrive at random with bursts (a Poisson process whose rate switches,
seeded), are checked one after the other (a ledger has one sequencer, and Python one interpreter lock), and then wait
for their ledger's writer, which takes all that wait into one synced transaction. How long a transaction takes is drawn
from what was measured of single submissions. `make bench` (group ``scaling``) compares it with the real thing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

MEASURED: Final = Path(__file__).with_name("measured.json")
DAY_S: Final = 86_400
BURST_SHARE: Final = 0.1
BURST_S: Final = 2.0
BUSY_MAX: Final = 0.6
"""How busy a processor may be in a burst: above it waiting grows faster than the load."""

SCENES: Final = (
    {"events_per_day": 1e4, "ledgers": 1, "nodes": 1, "replicas": 1},
    {"events_per_day": 1e6, "ledgers": 10, "nodes": 1, "replicas": 1},
    {"events_per_day": 1e6, "ledgers": 10, "nodes": 3, "replicas": 3},
    {"events_per_day": 1e9, "ledgers": 10_000, "nodes": 0, "replicas": 3},
)
"""What the page shows; 0 nodes: as many as are needed."""


class Costs(NamedTuple):
    """What one submission of one event costs, measured: seconds, and bytes beside what they are of."""

    checked_s: float
    """Of a processor, until it waits for its transaction."""

    alone_s: list[float]
    """From asking to the answer with nothing else to do: a hundred quantiles."""

    followed_s: float
    """Of a follower's processor."""

    replicated_s: float
    """How much longer a transaction takes that a majority of three servers must hold first; without the wire."""

    log_bytes: float
    stream_bytes: float
    views_bytes: float
    views_rows: float
    request_bytes: float
    answer_bytes: float
    node_memory_bytes: float


class Load(NamedTuple):
    """What is asked of it, and of what machines."""

    events_per_day: float = 1e6
    ledgers: int = 10
    nodes: int = 0
    replicas: int = 1
    cores: int = 4
    peak: float = 3.0
    batch: int = 1
    days: int = 365
    readers: int = 3
    wire_ms: float = 0.5
    memory_gb: float = 64.0
    disk_tb: float = 16.0
    seed: int = 1


def arrivals(rate: float, peak: float, seconds: float, seed: int) -> list[float]:
    """Return when submissions arrive: ``rate`` a second on average, ``peak`` times that for a tenth of the time."""
    chance, times, now, is_burst = random.Random(seed), list[float](), 0.0, False
    low = rate * (1 - BURST_SHARE * peak) / (1 - BURST_SHARE)
    while now < seconds:
        length = chance.expovariate(1 / BURST_S) * (1 if is_burst else (1 - BURST_SHARE) / BURST_SHARE)
        present, end = (peak * rate if is_burst else low), now + length
        while present > 0 and (now := now + chance.expovariate(present)) < min(end, seconds):
            times.append(now)
        now, is_burst = end, not is_burst
    return times


def simulate(times: list[float], costs: Costs, ledgers: int, seed: int, *, more_s: float = 0.0) -> list[float]:
    """Return how long each submission waits for its answer, on one processor that serves so many ledgers.

    ``more_s`` is what each transaction takes besides, for replicas.
    """
    chance, free, waits = random.Random(seed), 0.0, list[float]()
    checked: dict[int, deque[tuple[float, float]]] = {}
    for arrived in times:
        free = max(free, arrived) + costs.checked_s
        checked.setdefault(chance.randrange(ledgers), deque()).append((free, arrived))
    for queue in checked.values():
        now = 0.0
        while queue:
            begun = max(now, queue[0][0])
            now = begun + more_s + max(0.0, chance.choice(costs.alone_s) - costs.checked_s)
            while queue and queue[0][0] <= begun:
                waits.append(now - queue.popleft()[1])
    return waits


def quantile(values: list[float], share: float) -> float:
    """Return the value that ``share`` of all are not above."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def plan(load: Load, costs: Costs) -> dict[str, Any]:
    """Return what a load needs. Raises ValueError: it fits no number of nodes."""
    mean = load.events_per_day / DAY_S / load.batch
    followed = (load.replicas - 1) * costs.followed_s * load.batch
    per_event_s = costs.checked_s + followed
    stored = (costs.log_bytes + costs.stream_bytes + costs.views_bytes) * load.events_per_day * load.replicas
    memory = costs.node_memory_bytes * load.ledgers * load.replicas
    bounds = {
        "processors": mean * load.peak * per_event_s / BUSY_MAX / load.cores,
        "memory": memory / load.memory_gb / 1e9,
        "disk": stored * load.days / load.disk_tb / 1e12,
        "replicas": float(load.replicas),
    }
    bound = max(bounds, key=lambda name: bounds[name])
    needed = math.ceil(bounds[bound])
    nodes = load.nodes or needed
    of_ledger = mean / load.ledgers * load.peak * costs.checked_s
    if of_ledger > BUSY_MAX:
        least = math.ceil(mean * load.peak * costs.checked_s / BUSY_MAX)
        raise ValueError(
            f"a ledger has one sequencer, which would be {of_ledger:.0%} busy in a burst: {least} ledgers at least"
        )
    if nodes < load.replicas:
        raise ValueError(f"{load.replicas} replicas need as many nodes")
    processors = nodes * load.cores
    shared = max(1, round(load.ledgers / processors))
    rate = mean * shared / load.ledgers
    seconds = min(max(60.0, 20_000 / rate), 200_000.0)
    more_s = 0.0 if load.replicas == 1 else costs.replicated_s + load.wire_ms / 1000
    waits = simulate(arrivals(rate, load.peak, seconds, load.seed), costs, shared, load.seed, more_s=more_s)
    per_day = stored / nodes
    wire = (
        load.events_per_day
        / DAY_S
        * (costs.request_bytes + costs.answer_bytes + costs.stream_bytes * (load.replicas - 1 + load.readers))
    )
    return {
        **load._asdict(),
        "nodes": nodes,
        "nodes_needed": needed,
        "bound_by": bound,
        "submissions_per_s": mean,
        "events_per_s": load.events_per_day / DAY_S,
        "busy": mean * per_event_s / processors,
        "busy_in_bursts": mean * load.peak * per_event_s / processors,
        "p50_ms": 1000 * quantile(waits, 0.5),
        "p99_ms": 1000 * quantile(waits, 0.99),
        "simulated": len(waits),
        "disk_per_node_and_day_bytes": per_day,
        "disk_per_node_bytes": per_day * load.days,
        "memory_per_node_bytes": memory / nodes,
        "streams": load.ledgers,
        "servers": load.ledgers * load.replicas,
        "views_rows": costs.views_rows * load.events_per_day * load.days,
        "network_bytes_per_s": wire,
    }


def read_costs(path: Path) -> Costs:
    """Return what was measured: a file of costs, or what the bench printed. Raises ValueError: it is neither."""
    document = json.loads(path.read_text("utf-8"))
    rows = document.get("rows", []) if isinstance(document, dict) else []
    given = next((row["figures"] for row in rows if row.get("figures")), document)
    try:
        return Costs(**given)
    except TypeError as error:
        raise ValueError(f"{path} holds no costs: `python -m tests.bench scaling --json` writes them") from error


def shown(value: float, unit: str = "") -> str:
    """Return a number with three digits, and K, M, G, T before its unit."""
    for sign, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {sign}{unit}"
    return f"{value:.3g} {unit}".strip()


def table(plans: list[dict[str, Any]]) -> str:
    """Return plans as a table of Markdown, one a column."""
    lines = {
        "events a day": lambda one: shown(one["events_per_day"]),
        "ledgers, of which one server process each": lambda one: f"{one['ledgers']:,}",
        "nodes × processors, replicas": lambda one: f"{one['nodes']} × {one['cores']}, R{one['replicas']}",
        "nodes needed for a year, because of": lambda one: f"{one['nodes_needed']}, {one['bound_by']}",
        "events a second, mean (bursts)": lambda one: (
            f"{shown(one['events_per_s'])} ({shown(one['events_per_s'] * one['peak'])})"
        ),
        "processors busy, mean (bursts)": lambda one: f"{one['busy']:.1%} ({one['busy_in_bursts']:.1%})",
        "an answer, p50 / p99": lambda one: f"{one['p50_ms']:.1f} / {one['p99_ms']:.1f} ms",
        "disk a node and day": lambda one: shown(one["disk_per_node_and_day_bytes"], "B"),
        "disk a node and year": lambda one: shown(one["disk_per_node_and_day_bytes"] * 365, "B"),
        "memory a node": lambda one: shown(one["memory_per_node_bytes"], "B"),
        "network, all together": lambda one: shown(one["network_bytes_per_s"], "B/s"),
        "streams; servers": lambda one: f"{one['streams']:,}; {one['servers']:,}",
        "rows of views in a year": lambda one: shown(one["views_rows"] / one["days"] * 365),
    }
    rows = [f"| {name} | " + " | ".join(text(one) for one in plans) + " |" for name, text in lines.items()]
    return "\n".join([rows[0], "|" + "---|" * (len(plans) + 1), *rows[1:]])


def main() -> None:
    """Print what the arguments ask for."""
    parser = argparse.ArgumentParser(description="What so many events a day need.", epilog="See deploy/scaling.md.")
    for name, value in Load._field_defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default: {value:g}")
    parser.add_argument(
        "--measured", type=Path, default=MEASURED, help="what a submission costs (default: measured.json)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked = vars(parser.parse_args())
    measured, is_json = asked.pop("measured"), asked.pop("json")
    given = {name: value for name, value in asked.items() if value is not None}
    for name, value in given.items():
        if value < (0 if name in {"nodes", "readers", "wire_ms", "seed"} else 1) or not math.isfinite(value):
            parser.error(f"--{name.replace('_', '-')} {value:g} makes no sense")
    if (
        given.get("peak", 1) * BURST_SHARE > 1
        or given.get("replicas", 1) not in {1, 3}
        or given.get("events_per_day", 1) > 1e12
    ):
        parser.error("--peak is at most 10, --replicas 1 or 3, --events-per-day at most 1e12")
    try:
        costs = read_costs(measured)
        plans = [plan(Load(**scene), costs) for scene in ([given] if given else SCENES)]
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(json.dumps({"plans": plans}) if is_json else table(plans))


if __name__ == "__main__":
    sys.exit(main())
