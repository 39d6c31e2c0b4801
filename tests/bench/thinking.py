"""The rows of searches: nodes a second of six processes, on a folder and over the bus, against one process.

The clock of the six is the ledger's own, from the first request of the search to its end, so that starting processes
does not count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from consumers.thoughts.run import run_task
from consumers.thoughts.task import AGENTS
from consumers.thoughts.thinkers.game24 import Game24
from ledger.client import follow, open_client
from ledger.config import Settings
from tests.bench.delivery import served
from tests.bench.pairs import Bench, Row, ratios, seconds
from tests.consumers.thoughts.tot_driver import solve

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM: Final = "4 9 10 13"
BATON: Final = Path(sys.executable).with_name("baton")


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "thinking"
    bench.say("a Game of 24 by six processes, and in one")
    subprocess.run((BATON, "--home", home, "init"), check=True, stdout=subprocess.DEVNULL)
    local = Settings(home=home)
    run_task(local, PROBLEM)  # registers the six, whose keys a server must know
    yield row(bench, "six processes on a folder", local)
    bench.say("the same over the bus")
    with served(home) as url:
        yield row(bench, "six processes over the bus", Settings(home=home, server=url, agent=AGENTS["orchestrator"]))


def row(bench: Bench, how: str, settings: Settings) -> Row:
    """Return the row of one way to search."""
    nodes = len(solve(PROBLEM, None, Game24()).state.nodes)
    found = bench.paired(
        lambda _: searched_s(settings) / nodes,
        lambda _: seconds(lambda: solve(PROBLEM, None, Game24())) / nodes,
    )
    many, one = (1 / statistics.median(times) for times in zip(*found, strict=True))
    note = f"{many:.0f} and {one:.0f} nodes a second; {nodes} nodes; each message signed, admitted, synced"
    return Row(f"tree of thoughts: time for a node, {how}", ratios(found), "one process", note=note)


def searched_s(settings: Settings) -> float:
    """Return the seconds, by the ledger's clock, from the first request of a search to its end."""
    task = run_task(settings, PROBLEM)["task_id"]
    times: dict[str, int] = {}
    with open_client(settings) as client:
        for item in follow(client, 0, stream=f"tot/{task}", wait_s=0.0):
            if isinstance(item, int):
                if item >= client.head().size:
                    break
            else:
                times.setdefault(item.kind, item.accepted_ms)
    return (times["tot.search_complete"] - times["tot.initialize_search"]) / 1000
