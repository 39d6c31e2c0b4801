"""``make bench`` measures speeds as ratios: ours to a named baseline's, in the same run. Some ratios have a budget.

    python -m tests.bench                     all groups
    python -m tests.bench append audit        these groups
    python -m tests.bench --json --rounds 7
    python -m tests.bench --smoke             one small round of every group: only shows that it finishes

``DEEDBOOK_BENCH_LARGE=1000000`` makes the group ``growth`` append to a log of a million events instead of 200,000,
``postgres`` query views of a million instead of 100,000, and ``audit`` verify a million instead of 98,304. Progress
goes to stderr, the table to stdout. The exit code is 0, whatever the ratios are: this is a measurement, not a test.
Files are made in the folder for temporary files (``TMPDIR``), which should be on a disk: in memory a sync is free.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from nacl.signing import SigningKey

sys.path.insert(0, str(Path(__file__).parents[1]))  # the helpers of the tests import each other by their bare names

from tests.bench.pairs import Bench, Row, rate
from tests.bench.rivals import CORES, verify_all

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS: Final = {
    "append": "appending",
    "parts": "parts",
    "growth": "growth",
    "disk": "disk",
    "audit": "auditing",
    "fold": "folding",
    "past": "pasts",
    "postgres": "shared_views",
    "delivery": "delivery",
    "nodes": "nodes",
    "writers": "writers",
    "floods": "floods",
    "seal": "sealing",
    "cli": "starting",
    "pages": "pages",
    "web": "web",
    "judging": "judging",
    "acting": "acting",
    "handoffs": "handoffs_large",
    "reports": "reports",
    "thinking": "thinking",
    "peers": "peers",
    "report_quality": "report_quality",
    "briefs": "briefing",
    "brief_quality": "brief_quality.table",
}
HEADER: Final = ("row", "ratio", "min–max", "budget", "", "to", "note")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Budgets as ratios.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs to measure for each row (default: 5)")
    parser.add_argument("--smoke", action="store_true", help="one small round of each, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.groups if name not in GROUPS]
    if unknown or asked.rounds < 1:
        parser.error(f"there is no group {unknown[0]!r}" if unknown else "at least one round is needed")
    if asked.smoke:
        os.environ["DEEDBOOK_BENCH_SMOKE"] = "1"  # before the groups are imported, because they read it
    started = time.perf_counter()
    noise = spread()
    found = [row for name in asked.groups or GROUPS for row in measure(name, 1 if asked.smoke else asked.rounds)]
    machine = {
        "cores": CORES,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "noise": round(noise, 3),
        "seconds": round(time.perf_counter() - started),
    }
    if asked.json:
        print(msgspec.json.encode({"machine": machine, "rows": [row.to_dict() for row in found]}).decode())
        return
    print_rows(found)
    print_times(found)
    print()
    print(
        f"{CORES} cores ({processor()}), Python {machine['python']}, load {machine['load']}, "
        f"{machine['seconds']} s in all; "
        f"before it began, one and the same loop took up to {noise:.2f} × its shortest time. "
        "ok and short compare the median with the budget."
    )


def measure(name: str, rounds: int) -> list[Row]:
    """Return the rows of a group, measured in a temporary folder."""
    sys.stderr.write(f"{name}\n")
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        # The benchmark leaves the user's own trust store alone, and deletes its own one with the folder.
        os.environ |= {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_STATE_HOME": f"{folder}/state"}
        return list(import_module(f"tests.bench.{GROUPS[name]}").rows(Bench(Path(folder), rounds)))


def spread() -> float:
    """Return the ratio of the slowest to the fastest of ten equal loops: it shows how busy the machine is."""
    key = SigningKey(bytes(32))
    signed = [(bytes(key.sign(b"the same message")), bytes(key.verify_key))] * 500
    rates = [rate(len(signed), lambda: verify_all(signed)) for _ in range(10)]
    return max(rates) / min(rates)


def print_rows(found: Sequence[Row]) -> None:
    """Print the table."""
    _print_columns([HEADER, *(_cells(row) for row in found)])


def print_times(found: Sequence[Row]) -> None:
    """Print the milliseconds of each tool for each job, for the rows that have them."""
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for figures in (row.figures for row in found if row.figures and "ms" in row.figures):
        line = times.setdefault((figures["job"], f"{figures['items']:,}"), {})
        for tool, ms in figures["ms"].items():
            line.setdefault(tool, []).append(ms)
    tools = list(dict.fromkeys(tool for line in times.values() for tool in line))
    if times:
        print("\nmilliseconds of a whole process, median")
    cells = [("job", "items", *tools)] * bool(times) + [
        (*job, *(f"{statistics.median(line[tool]):.0f}" if tool in line else "–" for tool in tools))
        for job, line in times.items()
    ]
    _print_columns(cells)


def _print_columns(cells: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(wide) for cell, wide in zip(line, widths, strict=True)).rstrip())


def processor() -> str:
    """Return the name of this machine's processor."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(": ")[2]
    return platform.machine()


def _cells(row: Row) -> tuple[str, ...]:
    verdict = "" if row.budget is None else "ok" if row.budget.is_met(row.median) else "short"
    budget = "" if row.budget is None else str(row.budget)
    return (
        row.what,
        f"{row.median:.2f}",
        f"{min(row.ratios):.2f}–{max(row.ratios):.2f}",
        budget,
        verdict,
        row.baseline,
        row.note,
    )


if __name__ == "__main__":
    main()
