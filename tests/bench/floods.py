"""Rows of floods: how long others wait for their submissions while one agent sends as much as it can.

A node (``deed serve``) runs in one process, the flooder in a second, speaking the protocol over bare sockets
(``tests/ledger/bus/flooding``), and the others submit from here, one at a time. Their p99 under the flood is divided by
their p99 in the same round without one. The flooder runs at the lowest priority: on two cores it would otherwise slow
the others through the processor, not through the bus. The server's work for the flooder still counts.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from tests.bench.delivery import DEEDBOOK, served
from tests.bench.pairs import Bench, Budget, Row, percentile, ratios, scaled
from tests.bench.workload import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = scaled(6, 1)
AUTHORS: Final = ("alice", "bob")
FLOODER: Final = "mallory"
PROGRAM: Final = Path(__file__).parents[1] / "ledger" / "bus" / "flooding.py"
FLOODS: Final = {"60 kB, as fast as it goes": (60_000, 1, 0), "60 kB, 830 a second": (60_000, 1, 830)}


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    for arguments in (("init", "--unprotected"), *(("agent", "add", name) for name in (*AUTHORS, FLOODER))):
        subprocess.run((DEEDBOOK, "--home", home, *arguments), check=True, stdout=subprocess.DEVNULL)
    with served(home) as url, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(RemoteClient(Settings(home=home, server=url, agent=name))) for name in AUTHORS]
        for flood, what in FLOODS.items():
            bench.say(f"submissions beside a flood of {flood}")
            sent: list[int] = []

            def under_flood(number: int, what: tuple[int, int, int] = what, sent: list[int] = sent) -> float:
                with flooding(home, url, clients[0].ledger, what) as child:
                    p99 = tail(clients, f"flooded-{what[2]}-{number}")
                    sent.append(int(child.communicate()[0]))
                return p99

            found = bench.paired(under_flood, lambda number, what=what: tail(clients, f"quiet-{what[2]}-{number}"))
            note = f"{sent[-1]:,} messages sent in {SECONDS} s; every submission of the others was accepted"
            baseline = "the same without a flood, p99"
            yield Row(f"floods: others' submissions, p99; {flood}", ratios(found), baseline, Budget("≤", 5.0), note)


def tail(clients: list[RemoteClient], name: str) -> float:
    """Let agents submit in turn while a flood lasts, and return the p99 in seconds; every submission must succeed."""
    home = Home(clients[0].settings.home)
    times: list[float] = []
    authors = [(client, str(client.settings.agent)) for client in clients]
    keys = {author: open_key(home.key_file(author)) for _, author in authors}
    for client, author in authors:
        started = Draft(stream=f"session/{name}-{author}", data=SessionStarted(task="measure"))
        client.submit(draft_and_sign([started], keys[author], ledger=client.ledger, author=author))
    begun = time.monotonic()
    while time.monotonic() < begun + SECONDS * 0.9:
        client, author = authors[len(times) % len(authors)]
        draft = Draft(stream=f"session/{name}-{author}", data=FindingLogged(finding=text_of(len(times))))
        ready = draft_and_sign([draft], keys[author], ledger=client.ledger, author=author)
        start = time.monotonic()
        client.submit(ready)
        times.append(time.monotonic() - start)
    return percentile(times, 0.99)


@contextlib.contextmanager
def flooding(home: Path, url: str, ledger: str, what: tuple[int, int, int]) -> Iterator[subprocess.Popen[str]]:
    """Run the flooder; start its flood when it has connected."""
    size, connections, per_second = what
    asked = (size, connections, SECONDS, per_second)
    subject = submit_subject(ledger, FLOODER)
    program = (sys.executable, PROGRAM, url.rpartition(":")[2], Home(home).bus_seed(FLOODER), FLOODER, subject)
    command = ("nice", "-n", "19", *map(str, (*program, *asked)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            child.stdin.write("\n")
            child.stdin.flush()
            yield child
        finally:
            child.kill()
