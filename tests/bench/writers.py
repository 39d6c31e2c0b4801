"""Rows of several nodes that agents write to at once: submissions a second, divided by those to one of the nodes.

The nodes are those of the script of ``deploy/``, three with their servers on this machine. There are as many agents as
nodes, each with the same number of submissions in flight: all to one node, to two, or each to its own. The nodes count
how often one of them lost a race to publish and judged again (``publish_conflicts``).
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import Request, urlopen

from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.ledger.bus.connection import AsyncConnection
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key, read_key_file
from deedbook.ledger.home.home import Home
from tests.bench.pairs import Bench, Row, scaled
from tests.bench.workload import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM: Final = Path(__file__).parents[2] / "deploy" / "three-nodes.py"
EACH: Final = scaled(400, 20)
AT_ONCE: Final = 16
NEVER: Final = 2**52
_CONFLICTS: Final = re.compile(r"^deedbook_publish_conflicts_total (\S+)$", re.MULTILINE)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    spec = importlib.util.spec_from_file_location("three_nodes_script", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    scene = script.Scene(bench.folder, 3)
    try:
        scene.make()
        pages = dict(zip(script.NODES, script.free_ports(3), strict=True))
        for name, page in pages.items():
            command = [*script.program(), "--home", str(scene.homes[name]), "serve", "--json", "--web", str(page)]
            with (scene.folder / f"{name}.log").open("ab") as log:
                command += ["--port", str(script.free_ports(1)[0])]
                scene.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        for name in pages:
            scene.listen(name)
        scene.wait_until_ready()
        yield from _of_writers(bench, scene, pages)
    finally:
        scene.end()


def _of_writers(bench: Bench, scene: Any, pages: dict[str, int]) -> Iterator[Row]:
    tokens = {name: Tokens(scene.homes[name]).create(scene.agents[0], "metrics", NEVER)[1] for name in pages}
    shares: dict[int, list[float]] = {2: [], 3: []}
    notes: dict[int, str] = {}
    for number in range(bench.rounds + 1):
        rates: dict[int, float] = {}
        for count in (1, 2, 3):
            bench.say(f"agents write to {count} of three nodes")
            before = conflicts(pages, tokens)
            rates[count] = asyncio.run(_rate(scene, list(scene.urls.values())[:count]))
            conflicted = conflicts(pages, tokens) - before
            notes[count] = f"{rates[count]:,.0f} a second, {conflicted:,.0f} conflicts in {3 * EACH:,} submissions"
        for count in shares if number else ():
            shares[count].append(rates[count] / rates[1])
    for count, found in shares.items():
        note = f"{notes[count]}, beside {notes[1]}"
        yield Row(f"nodes: submissions to {count} of three nodes at once", found, "to one of them", None, note)


def conflicts(pages: dict[str, int], tokens: dict[str, str]) -> float:
    """Return how often the nodes lost a race to publish and judged a submission again."""
    total = 0.0
    for name, page in pages.items():
        asked = Request(f"http://127.0.0.1:{page}/metrics", headers={"authorization": f"Bearer {tokens[name]}"})
        with urlopen(asked) as answer:
            found = _CONFLICTS.search(answer.read().decode())
        total += float(found[1]) if found else 0.0
    return total


async def _rate(scene: Any, urls: list[str]) -> float:
    home = Home(scene.folder / "clients")
    senders = [(name, urls[number % len(urls)]) for number, name in enumerate(scene.agents)]
    ready = [await _ready(home, name, url) for name, url in senders]
    began = time.perf_counter()
    await asyncio.gather(*(_send(*one) for one in ready))
    taken_s = time.perf_counter() - began
    for connection, _, _ in ready:
        await connection.close()
    return len(ready) * EACH / taken_s


async def _ready(home: Home, name: str, url: str) -> tuple[AsyncConnection, str, list[bytes]]:
    """Return an open connection of an agent, its subject, and its signed submissions in a session that is open."""
    key, ledger = open_key(home.key_file(name)), read_key_file(home.key_file(name)).ledger
    connection, subject = AsyncConnection(url, name, home.bus_seed(name)), submit_subject(ledger, name)
    await connection.open()
    stream = f"session/{name}-{time.time_ns()}"
    drafts = [Draft(stream=stream, data=SessionStarted())]
    drafts += [Draft(stream=stream, data=FindingLogged(finding=text_of(number))) for number in range(EACH)]
    first, *rest = (draft_and_sign([draft], key, ledger=ledger, author=name).encode() for draft in drafts)
    await connection.request(subject, first)
    return connection, subject, rest


async def _send(connection: AsyncConnection, subject: str, payloads: list[bytes]) -> None:
    waiting = iter(payloads)

    async def work() -> None:
        for payload in waiting:
            await connection.request(subject, payload)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
