"""The rows of searches: nodes per second of six processes against one, and a slow model asked in parallel or in turn.

The ledger's clock measures the time of the six processes, from the first request of the search to its end, so that
their start does not count. The model is a test double on this machine that needs a second for each answer.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deedbook.consumers.thoughts.run import run_task
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.home.config import Actions, Settings
from tests.bench.delivery import served
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.consumers.thoughts.tot_driver import solve

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM: Final = "4 9 10 13"
PLAN: Final = "Move a shop from one street to another without closing it"
DEEDBOOK: Final = Path(sys.executable).with_name("deed")
model_ms: Final = scaled(1_000, 50)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "thinking"
    bench.say("a Game of 24 by six processes, and in one")
    subprocess.run((DEEDBOOK, "--home", home, "init", "--unprotected"), check=True, stdout=subprocess.DEVNULL)
    local = Settings(home=home)
    run_task(local, PROBLEM)  # registers six agents, whose keys the server must know
    yield row(bench, "six processes on a folder", local)
    bench.say("the same over the bus")
    with served(home) as url:
        yield row(bench, "six processes over the bus", Settings(home=home, server=url, agent=AGENTS["orchestrator"]))
    bench.say(f"a plan of 4 steps by a model that needs {model_ms} ms for an answer, side by side and in turn")
    yield model_row(bench, local)


def row(bench: Bench, how: str, settings: Settings) -> Row:
    """Return the row of a search by six processes that use these settings."""
    nodes = len(solve(PROBLEM, None, Game24()).state.nodes)
    found = bench.paired(
        lambda _: searched_s(settings) / nodes,
        lambda _: seconds(lambda: solve(PROBLEM, None, Game24())) / nodes,
    )
    many, one = (1 / statistics.median(times) for times in zip(*found, strict=True))
    note = f"{many:.0f} and {one:.0f} nodes a second; {nodes} nodes; each message signed, admitted, synced"
    return Row(f"tree of thoughts: time for a node, {how}", ratios(found), "one process", note=note)


def model_row(bench: Bench, settings: Settings) -> Row:
    """Return the row of a model with parallel requests, against one request at a time."""
    sys.path.append(str(Path(__file__).parents[1]))  # this folder has the tests' doubles
    model = importlib.import_module("thinking_model").ThinkingModel(slow, depth=4)
    sent: list[int] = []

    def planned_s(parallel_max: int) -> float:
        before = len(model.received)
        llm = {"base_url": model.url, "model": "double", "parallel_max": parallel_max}
        told = Settings(home=settings.home, actions=Actions(llm=llm))
        took_s, outcome = searched(told, PLAN, TaskOptions("planning"))
        questions = {str(received.body["messages"]) for received in model.received[before:]}
        sent.append(len(questions))
        if not len(questions) == len(model.received) - before == outcome["stats"]["llm_calls"]:
            raise AssertionError(
                f"asked twice, or not counted: {len(model.received) - before} requests, {outcome['stats']}"
            )
        return took_s

    try:
        found = bench.paired(lambda _: planned_s(8), lambda _: planned_s(1), rounds=1)
    finally:
        model.close()
    (ours_s, one_s), note = found[0], "all different, and all counted in the log"
    note = f"{ours_s:.1f} and {one_s:.1f} s; {sent[-1]} requests at the server, {note}"
    return Row(
        "tree of thoughts: 4 steps by a slow model", ratios(found), "one request at a time", Budget("≤", 0.45), note
    )


def slow(_received: Any, _number: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer after ``model_ms``."""
    time.sleep(model_ms / 1000)
    return answer


def searched_s(settings: Settings) -> float:
    """Return the seconds that a Game of 24 takes."""
    return searched(settings, PROBLEM, TaskOptions())[0]


def searched(settings: Settings, problem: str, options: TaskOptions) -> tuple[float, dict[str, Any]]:
    """Return the seconds, by the ledger's clock, from the first request of a search to its end, and its outcome."""
    outcome = run_task(settings, problem, options)
    task = outcome["task_id"]
    times: dict[str, int] = {}
    with open_client(settings) as client:
        for item in follow(client, 0, stream=f"tot/{task}", wait_s=0.0):
            if isinstance(item, int):
                if item >= client.head().size:
                    break
            else:
                times.setdefault(item.kind, item.accepted_ms)
    return (times["tot.search_complete"] - times["tot.initialize_search"]) / 1000, outcome
