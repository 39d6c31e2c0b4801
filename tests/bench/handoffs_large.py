"""Rows of many handoffs: whole runs of the verbs that read their graph, against ``python -c pass``.

There are 10,000 handoffs in 100 layers with 20,000 dependencies: each handoff waits for two or three of the layer
below. The lower half is approved, and half of the lowest layer is completed, so that some handoffs are ready. The
highest layer is created first. The gate walks the dependencies of a new handoff, and in this order none of them exists
yet, so the walk is short. Some handoffs of the lowest layer wait for a handoff that does not exist. The row of the
refusal tries to create it. It would close a cycle, so the gate walks the whole graph each time and refuses it.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.ledger.admission.check import check
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.handoff import (
    HandoffApproved,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionChecked,
)
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.answers.reader import Reader
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import BATCH, open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deedbook.ledger.events.fields import EventData
    from tests.building import Ledger

LAYERS: Final = scaled(100, 10)
WIDTH: Final = scaled(100, 20)
EXTRA_LAYERS: Final = (1, 2)  # these layers have three dependencies each, which makes 20,000 in all
FOUNDED: Final = 4  # the number of handoffs of layer 0 that wait for a handoff that does not exist
APPROVED_LAYERS: Final = LAYERS // 2
RUNS_A_ROUND: Final = scaled(2, 1)
REFUSED: Final = 4
BUDGET: Final = Budget("≤", 6.0)
PASS: Final = (sys.executable, "-c", "pass")
FIRST: Final = "missing-foundation"
TOP: Final = f"step-{LAYERS - 1:03}-000"
VERBS: Final = (
    ("handoff", "list"),
    ("handoff", "list", "--ready"),
    ("handoff", "list", "--board"),
    ("handoff", "why", TOP),
    ("handoff", "graph"),
    ("handoff", "graph", TOP),
    ("next", "--as", "bob"),
    ("next", "--all"),
)
CYCLE: Final = (
    *("handoff", "create", FIRST, "--title", "closes a cycle", "--depends-on", TOP),
    *("--as", "alice", "--to", "bob", "--reviewer", "rita"),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    folder = bench.folder / "ledger"
    bench.say(f"{LAYERS * WIDTH:,} handoffs")
    with open_ledger(folder) as ledger:
        count = fill(ledger)
        with Reader(ledger.client(), ledger.settings()) as reader:
            reader.answer("handoffs.list", {})
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"DEEDBOOK_HOME": str(folder), "PYTHONPYCACHEPREFIX": str(bench.folder / "bytecode")}
    program = str(Path(sys.executable).with_name("deed"))
    note = f"{LAYERS * WIDTH:,} handoffs, {count:,} dependencies, views up to date"

    def run(command: Sequence[str], expected: int, _number: int) -> float:
        def call() -> None:
            ended = subprocess.run(
                command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if ended.returncode != expected:
                raise AssertionError(f"{' '.join(command)} ended with {ended.returncode}, not {expected}")

        return seconds(call)

    for verb, expected in (*((verb, 0) for verb in VERBS), (CYCLE, REFUSED)):
        said = "refusal of a cycle" if verb == CYCLE else f"deed {' '.join(verb)}"
        bench.say(said)
        ours = functools.partial(run, (program, *verb), expected)
        found = bench.paired(ours, functools.partial(run, PASS, 0), rounds=bench.rounds * RUNS_A_ROUND)
        yield Row(f"10,000 handoffs: {said}", ratios(found), "python -c pass", BUDGET, note)


def fill(ledger: Ledger) -> int:
    """Append all handoffs and their further events, and return the number of their dependencies."""
    places = [(layer, place) for layer in range(LAYERS) for place in range(WIDTH)]
    made = {id_of(layer, place): content(layer, place) for layer, place in places}
    append(ledger, "alice", list(reversed(made.items())))
    approved = list(made.items())[: APPROVED_LAYERS * WIDTH]
    versions = [(name, HandoffApproved(version=compute_version("alice", data))) for name, data in approved]
    append(ledger, "rita", versions)
    done = [id_of(0, place) for place in range(WIDTH // 2, WIDTH)]
    append(ledger, "bob", [(name, HandoffClaimed()) for name in done])
    append(ledger, "bob", [(name, HandoffCriterionChecked(position=at)) for name in done for at in range(2)])
    append(ledger, "bob", [(name, HandoffCompleted(summary="完成")) for name in done])
    return sum(len(data.depends_on) for data in made.values())


def id_of(layer: int, place: int) -> str:
    """Return the id of the handoff at a position of a layer."""
    return f"step-{layer:03}-{place:03}"


def content(layer: int, place: int) -> HandoffCreated:
    """Return the content of the handoff at this position."""
    below = [place, (place * 7 + layer) % WIDTH, (place * 3 + layer + 1) % WIDTH]
    wanted = list(dict.fromkeys(below))[: 3 if layer in EXTRA_LAYERS else 2]
    return HandoffCreated(
        title=f"第 {layer} 層的第 {place} 步: bring the parts together",
        to="bob",
        reviewer="rita",
        depends_on=[id_of(layer - 1, one) for one in wanted] if layer else [FIRST] * (place < FOUNDED),
        tasks=["read", "write", "measure"],
        criteria=["tests pass", "門檻"],
    )


def append(ledger: Ledger, author: str, steps: Sequence[tuple[str, EventData]]) -> None:
    """Append one event for each name, by signed batches."""
    drafts = [Draft(stream=f"handoff/{name}", data=data) for name, data in steps]
    for start in range(0, len(drafts), BATCH):
        ledger.gate.admit([check(ledger.sign(author, *drafts[start : start + BATCH]))])
