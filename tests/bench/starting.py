"""Rows of starting: whole runs of the command line against ``python -c pass``, from the same interpreter.

Byte code is stored in a folder of the benchmark's own, as it is after the first run of an installation. Without that,
an environment that forbids Python to write byte code would make every run compile all of Deedbook.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HANDOFFS: Final = 20
RUNS_A_ROUND: Final = scaled(4, 1)
BUDGET: Final = Budget("≤", 7.0)
PASS: Final = (sys.executable, "-c", "pass")
VERBS: Final = (("handoff", "list"), ("log",), ("--help",))
CHECKED: Final = (("next",), ("handoff", "show", "2026-02-12-step-3"), ("handoff", "why", "2026-02-12-step-3"))
"""Verbs that check signed entries before they answer."""


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with open_ledger(bench.folder / "ledger") as ledger:
        for number in range(HANDOFFS):
            ledger.hand_over(f"2026-02-12-step-{number}", tasks=["read", "write"], criteria=["tests pass"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "DEEDBOOK_HOME": str(bench.folder / "ledger"),
        "PYTHONPYCACHEPREFIX": str(bench.folder / "bytecode"),
    }
    program = Path(sys.executable).with_name("deed")
    note = f"{HANDOFFS} handoffs, views up to date, byte code cached"

    def run(command: Sequence[str], _number: int) -> float:
        return seconds(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))

    for verb in (*VERBS, *CHECKED):
        bench.say(f"deed {' '.join(verb)}")
        ours = functools.partial(run, (str(program), *verb))
        found = bench.paired(ours, functools.partial(run, PASS), rounds=bench.rounds * RUNS_A_ROUND)
        yield Row(
            f"start: deed {' '.join(verb)}", ratios(found), "python -c pass", BUDGET if verb in VERBS else None, note
        )
