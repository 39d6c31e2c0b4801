"""The page on scaling has the table of the script, and the simulated queues behave like queues."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
sys.path.insert(0, str(DEPLOY))
import scaling as program  # noqa: E402

COSTS: Final = program.read_costs(program.MEASURED)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script as an operator does."""
    command = [sys.executable, "-I", str(DEPLOY / "scaling.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_has_the_table_of_the_script() -> None:
    page = (DEPLOY / "scaling.md").read_text("utf-8")
    assert call().stdout.strip() in page, "deploy/scaling.py prints the table of deploy/scaling.md"


def test_the_document_has_the_requested_plan() -> None:
    (plan,) = json.loads(call("--json", "--events-per-day", "2e6", "--ledgers", "40", "--cores", "8").stdout)["plans"]
    assert (plan["events_per_day"], plan["ledgers"], plan["cores"], plan["nodes"]) == (2e6, 40, 8, 1)
    assert 0 < plan["p50_ms"] <= plan["p99_ms"]
    assert plan["events_per_s"] == pytest.approx(2e6 / 86_400)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--events-per-day", "0"],
        ["--events-per-day", "nan"],
        ["--events-per-day", "1e13"],
        ["--events-per-day", "many"],
        ["--peak", "11"],
        ["--replicas", "2"],
        ["--replicas", "3", "--nodes", "2"],
        ["--events-per-day", "1e9", "--ledgers", "1"],
        ["--measured", "nowhere.json"],
        ["--measured", str(DEPLOY / "README.md")],
        ["--measured", "/dev/null"],
    ],
)
def test_an_impossible_option_is_refused_with_a_reason(arguments: list[str]) -> None:
    answer = call(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Traceback" not in answer.stderr
    assert answer.stderr.splitlines()[-1].startswith("scaling.py: error: ")


def test_arrivals_keep_their_mean_and_are_the_same_for_the_same_seed() -> None:
    times = program.arrivals(50, 3, 2000, 7)
    assert times == program.arrivals(50, 3, 2000, 7) == sorted(times)
    assert len(times) == pytest.approx(50 * 2000, rel=0.1)


def test_rare_submissions_do_not_wait_for_each_other() -> None:
    costs = COSTS._replace(checked_s=0.001, alone_s=[0.004])
    waits = program.simulate([float(number) for number in range(100)], costs, 1, 1)
    assert waits == pytest.approx([0.004] * 100)


def test_concurrent_submissions_share_a_transaction() -> None:
    costs = COSTS._replace(checked_s=0.001, alone_s=[0.011])
    waits = program.simulate([0.0] * 10, costs, 1, 1)
    # The first is alone and ends at 11 ms. The other nine were checked meanwhile and end together at 21 ms.
    assert waits == pytest.approx([0.011] + [0.021] * 9)


@pytest.mark.parametrize("ledgers", [1, 5])
def test_waiting_grows_with_the_load(ledgers: int) -> None:
    means = []
    for share in (0.1, 0.5, 0.9):
        waits = program.simulate(program.arrivals(share / COSTS.checked_s, 1, 60, 3), COSTS, ledgers, 3)
        means.append(sum(waits) / len(waits))
    assert means == sorted(means)


def test_nodes_share_the_load() -> None:
    load = program.Load(events_per_day=1e9, ledgers=10_000, replicas=3)
    few, many = (program.plan(load._replace(nodes=nodes), COSTS) for nodes in (60, 600))
    assert many["busy"] == pytest.approx(few["busy"] / 10)
    assert many["disk_per_node_bytes"] == pytest.approx(few["disk_per_node_bytes"] / 10)
    assert program.plan(load, COSTS)["busy_in_bursts"] <= program.BUSY_MAX


def figures(**row: Any) -> str:
    """Return a document as the bench prints it."""
    return json.dumps({"machine": {}, "rows": [{"what": "another"}, row]})


def test_costs_are_read_from_the_output_of_the_bench(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(figures(what="scaling", figures=COSTS._asdict()))
    assert program.read_costs(file) == COSTS
    file.write_text(figures(what="scaling", figures={"checked_s": 1}))
    with pytest.raises(ValueError, match="contains no costs"):
        program.read_costs(file)
