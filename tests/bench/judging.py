"""Rows of a review: a reviewer shows a handoff and approves it. Ours checks signed entries; the baseline does not.

The baseline runs the same code, but shows the row of the view and approves the version in that row, as the first
version of Deedbook did. Both are whole runs of the command line, `handoff show` and `handoff approve --version`, in the
ledger's folder and through a server, in a ledger of many handoffs and agents. Results of checks are cached between
runs, as they are for every reviewer.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from tests.bench.delivery import DEEDBOOK, served
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import BATCH
from tests.building import key_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HANDOFFS: Final = scaled(10_000, 40)
AGENTS: Final = scaled(500, 5)
BUDGET: Final = Budget("≤", 1.5)
BASELINE: Final = "the same two runs from the view's row"
# The baseline answers every question from the views, without the checks of the gate.
FROM_ROWS: Final = """
import sys
from deedbook.consumers.interfaces.cli.commands import handoffs
from deedbook.projections.views import registry as views
views.CHECKED = frozenset()
handoffs._gate_of = lambda *_: {}
from deedbook.consumers.interfaces.cli.program import main
main(sys.argv[1:])
"""
CHECKED: Final = "import sys\nfrom deedbook.consumers.interfaces.cli.program import main\nmain(sys.argv[1:])"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    agents = (("agent", "add", name) for name in ("ann", "bob", "rita"))
    for words in (("init", "--unprotected"), *agents):
        reviews = ("--role", "reviewer", "--unprotected") if words[-1] == "rita" else ()
        subprocess.run((DEEDBOOK, "--home", home, *words, *reviews), check=True, stdout=subprocess.DEVNULL)
    bench.say(f"{HANDOFFS} handoffs, {AGENTS} agents")
    version = fill(home)
    note = f"{HANDOFFS} handoffs, {AGENTS} agents, byte code and checked authority kept"
    yield row(bench, "local", home, (), version, note)
    with served(home) as url:
        yield row(bench, "remote", home, ("--server", url), version, note)


def fill(home: Path) -> str:
    """Append agents and handoffs; return the version of each handoff, whose contents are equal."""
    with open_client(Settings(home=home, agent="root")) as client:
        key = open_key(Home(home).key_file("root"))
        drafts = []
        for number in range(AGENTS):
            name, own = f"agent-{number}", key_named(f"agent-{number}")
            proof = own.prove_possession(client.ledger, name)
            data = AgentRegistered(name=name, key=own.public.hex(), proof=proof, roles=["agent"])
            drafts.append(Draft(stream=f"agent/{name}", data=data))
        emit(Author(client, "root", lambda *_: key), drafts)
    with Ledger(home=home, agent="ann") as ledger:
        data = HandoffCreated(
            title="Rotate logs", to="bob", reviewer="rita", task="gzip them", criteria=["none is lost"]
        )
        emit(ledger.author(), [Draft(stream=f"handoff/h-{number}", data=data) for number in range(HANDOFFS)])
        return str(ledger.ask("handoffs.facts", id="h-0")["version"])


def emit(author: Author, drafts: Sequence[Draft]) -> None:
    """Append drafts in signed batches."""
    for start in range(0, len(drafts), BATCH):
        author.emit(*drafts[start : start + BATCH])


def row(bench: Bench, place: str, home: Path, server: Sequence[str], version: str, note: str) -> Row:
    """Return the row of one interface; each round approves handoffs of its own."""
    bench.say(f"show and approve, {place}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(bench.folder / "bytecode")}
    start = 0 if place == "local" else HANDOFFS // 2

    def run(program: str, number: int) -> float:
        name = f"h-{start + 2 * number + (program is CHECKED)}"
        command = (sys.executable, "-c", program, "--home", str(home), *server, "handoff")
        read = (*command, "show", name, "--as", "rita", "--json")
        judge = (*command, "approve", name, "--version", version, "--as", "rita")

        def both() -> None:
            for words in (read, judge):
                subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)

        return seconds(both)

    found = bench.paired(functools.partial(run, CHECKED), functools.partial(run, FROM_ROWS), rounds=bench.rounds * 2)
    return Row(f"reading to act: show and approve, {place}", ratios(found), BASELINE, BUDGET, note)
