"""The row of searches: nodes a second of six processes over a ledger, against the same search in one process.

The clock of the six is the ledger's own, from the first request of the search to its end, so that starting processes
does not count.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from consumers.tot.driver import solve
from consumers.tot.running import run_task
from consumers.tot.thinking import Game24
from ledger.client import follow
from ledger.config import Settings
from ledger.local import LocalClient
from tests.bench.pairs import Bench, Row, ratios, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM: Final = "4 9 10 13"
BATON: Final = Path(sys.executable).with_name("baton")


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the row of this group."""
    home = bench.folder / "thinking"
    bench.say("a Game of 24 by six processes, and in one")
    subprocess.run((BATON, "--home", home, "init"), check=True, stdout=subprocess.DEVNULL)
    nodes = len(solve(PROBLEM, None, Game24()).state.nodes)
    found = bench.paired(
        lambda _: searched_s(Settings(home=home)) / nodes,
        lambda _: seconds(lambda: solve(PROBLEM, None, Game24())) / nodes,
    )
    note = f"{nodes} nodes, breadth first; each message signed, admitted and synced"
    yield Row("tree of thoughts: time for a node, six processes", ratios(found), "one process", note=note)


def searched_s(settings: Settings) -> float:
    """Return the seconds, by the ledger's clock, from the first request of a search to its end."""
    task = run_task(settings, PROBLEM)["task_id"]
    times: dict[str, int] = {}
    with LocalClient(settings) as client:
        for item in follow(client, 0, stream=f"tot/{task}", wait_s=0.0):
            if isinstance(item, int):
                if item >= client.head().size:
                    break
            else:
                times.setdefault(item.kind, item.accepted_ms)
    return (times["tot.search_complete"] - times["tot.initialize_search"]) / 1000
