#!/usr/bin/env python3
"""Calculates the ledgers, nodes and disks for a number of events a day, and simulates the queues.

    python deploy/scaling.py                                  the table of scaling.md
    python deploy/scaling.py --events-per-day 2e6 --ledgers 40 --nodes 3 --replicas 3 --json

The program needs only Python, so you can plan before you install Deedbook. The costs of a submission come from
``measured.json`` beside it; `python -m tests.bench scaling --json` measures them on your machine.

The simulation has one processor. Submissions arrive at random with bursts (a seeded Poisson process whose rate
switches). They are checked one after the other, because a ledger has one sequencer and Python one interpreter lock.
Then they wait for the writer of their ledger, which takes all waiting ones into one synced transaction. The duration
of a transaction is drawn from the measured single submissions. `make bench` (group ``scaling``) compares the
simulation with real submissions.
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
"""The largest busy share of a processor in a burst. Above it, waiting grows faster than the load."""

EXAMPLES: Final = (
    {"events_per_day": 1e4, "ledgers": 1, "nodes": 1, "replicas": 1},
    {"events_per_day": 1e6, "ledgers": 10, "nodes": 1, "replicas": 1},
    {"events_per_day": 1e6, "ledgers": 10, "nodes": 3, "replicas": 3},
    {"events_per_day": 1e9, "ledgers": 10_000, "nodes": 0, "replicas": 3},
)
"""The columns of the table in scaling.md. 0 nodes: as many as needed."""


class Costs(NamedTuple):
    """The measured costs of a submission of one event, in seconds and bytes."""

    checked_s: float
    """Processor time until the submission waits for its transaction."""

    alone_s: list[float]
    """Time from request to answer on an idle machine: a hundred quantiles."""

    followed_s: float
    """Processor time of a follower."""

    replicated_s: float
    """Additional time of a transaction that waits for a majority of three servers, without the network."""

    log_bytes: float
    stream_bytes: float
    views_bytes: float
    views_rows: float
    request_bytes: float
    answer_bytes: float
    node_memory_bytes: float


class Load(NamedTuple):
    """The expected load and the machines: the options of the command line."""

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
    """Return the arrival times (seconds): ``rate`` a second on average, ``peak`` times that for a tenth of the time."""
    generator, times, now, is_burst = random.Random(seed), list[float](), 0.0, False
    low = rate * (1 - BURST_SHARE * peak) / (1 - BURST_SHARE)
    while now < seconds:
        length = generator.expovariate(1 / BURST_S) * (1 if is_burst else (1 - BURST_SHARE) / BURST_SHARE)
        current, end = (peak * rate if is_burst else low), now + length
        while current > 0 and (now := now + generator.expovariate(current)) < min(end, seconds):
            times.append(now)
        now, is_burst = end, not is_burst
    return times


def simulate(times: list[float], costs: Costs, ledgers: int, seed: int, *, more_s: float = 0.0) -> list[float]:
    """Return the time (seconds) from arrival to answer of each submission, on one processor for these ledgers.

    ``more_s`` is the additional time of each transaction for replicas.
    """
    generator, free, waits = random.Random(seed), 0.0, list[float]()
    checked: dict[int, deque[tuple[float, float]]] = {}
    for arrived in times:
        free = max(free, arrived) + costs.checked_s
        checked.setdefault(generator.randrange(ledgers), deque()).append((free, arrived))
    for queue in checked.values():
        now = 0.0
        while queue:
            begun = max(now, queue[0][0])
            now = begun + more_s + max(0.0, generator.choice(costs.alone_s) - costs.checked_s)
            while queue and queue[0][0] <= begun:
                waits.append(now - queue.popleft()[1])
    return waits


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that is not below a ``share`` of all values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def plan(load: Load, costs: Costs) -> dict[str, Any]:
    """Return the plan for a load. Raises ValueError: a ledger gets too many events, or the nodes are too few."""
    mean = load.events_per_day / DAY_S / load.batch
    followed_s = (load.replicas - 1) * costs.followed_s * load.batch
    per_event_s = costs.checked_s + followed_s
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
    busy_of_ledger = mean / load.ledgers * load.peak * costs.checked_s
    if busy_of_ledger > BUSY_MAX:
        least = math.ceil(mean * load.peak * costs.checked_s / BUSY_MAX)
        raise ValueError(
            f"the sequencer of a ledger would be {busy_of_ledger:.0%} busy in a burst: use at least {least} ledgers"
        )
    if nodes < load.replicas:
        raise ValueError(f"{load.replicas} replicas need at least {load.replicas} nodes")
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
    """Return the costs in a file: a JSON object of ``Costs``, or the bench's output. Raises ValueError: neither."""
    document = json.loads(path.read_text("utf-8"))
    rows = document.get("rows", []) if isinstance(document, dict) else []
    figures = next((row["figures"] for row in rows if row.get("figures")), document)
    try:
        return Costs(**figures)
    except TypeError as error:
        raise ValueError(f"{path} contains no costs: `python -m tests.bench scaling --json` writes them") from error


def format_number(value: float, unit: str = "") -> str:
    """Return a number with three digits, and k, M, G, T or P before its unit."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


def table(plans: list[dict[str, Any]]) -> str:
    """Return the plans as a Markdown table, one column for each."""
    lines = {
        "events a day": lambda plan: format_number(plan["events_per_day"]),
        "ledgers, each with one server process": lambda plan: f"{plan['ledgers']:,}",
        "nodes × processors, replicas": lambda plan: f"{plan['nodes']} × {plan['cores']}, R{plan['replicas']}",
        "nodes needed for a year, limited by": lambda plan: f"{plan['nodes_needed']}, {plan['bound_by']}",
        "events a second, mean (bursts)": lambda plan: (
            f"{format_number(plan['events_per_s'])} ({format_number(plan['events_per_s'] * plan['peak'])})"
        ),
        "busy share of processors, mean (bursts)": lambda plan: f"{plan['busy']:.1%} ({plan['busy_in_bursts']:.1%})",
        "answer time, p50 / p99": lambda plan: f"{plan['p50_ms']:.1f} / {plan['p99_ms']:.1f} ms",
        "disk of a node for a day": lambda plan: format_number(plan["disk_per_node_and_day_bytes"], "B"),
        "disk of a node for a year": lambda plan: format_number(plan["disk_per_node_and_day_bytes"] * 365, "B"),
        "memory of a node": lambda plan: format_number(plan["memory_per_node_bytes"], "B"),
        "network of all nodes": lambda plan: format_number(plan["network_bytes_per_s"], "B/s"),
        "streams; servers": lambda plan: f"{plan['streams']:,}; {plan['servers']:,}",
        "rows of views in a year": lambda plan: format_number(plan["views_rows"] / plan["days"] * 365),
    }
    rows = [f"| {name} | " + " | ".join(cell(plan) for plan in plans) + " |" for name, cell in lines.items()]
    return "\n".join([rows[0], "|" + "---|" * (len(plans) + 1), *rows[1:]])


def main() -> None:
    """Print the table or the JSON of the plans."""
    parser = argparse.ArgumentParser(
        description="Calculate the machines for a number of events a day.", epilog="See deploy/scaling.md."
    )
    for name, value in Load._field_defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default: {value:g}")
    parser.add_argument(
        "--measured", type=Path, default=MEASURED, help="the costs of a submission (default: measured.json)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = vars(parser.parse_args())
    measured, is_json = arguments.pop("measured"), arguments.pop("json")
    options = {name: value for name, value in arguments.items() if value is not None}
    for name, value in options.items():
        if value < (0 if name in {"nodes", "readers", "wire_ms", "seed"} else 1) or not math.isfinite(value):
            parser.error(f"--{name.replace('_', '-')} {value:g} is out of range")
    if (
        options.get("peak", 1) * BURST_SHARE > 1
        or options.get("replicas", 1) not in {1, 3}
        or options.get("events_per_day", 1) > 1e12
    ):
        parser.error("--peak must be at most 10, --replicas 1 or 3, --events-per-day at most 1e12")
    try:
        costs = read_costs(measured)
        plans = [plan(Load(**example), costs) for example in ([options] if options else EXAMPLES)]
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(json.dumps({"plans": plans}) if is_json else table(plans))


if __name__ == "__main__":
    sys.exit(main())
