"""Rows of the read API: a question over HTTP, on a connection that stays open, against ``Ledger.ask`` in this process.

The server is a process of its own (``python -m tests.bench.web FOLDER``), as a node is, so that the two share no
interpreter. The client is ``http.client``; what it takes for the parsing of heads is in the figures. Both decode the
answer.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from consumers.doors.web.app import publishing
from consumers.doors.web.questions import address, path_of
from consumers.doors.web.server import bind
from consumers.doors.web.tokens import Tokens
from consumers.sdk.ledger import Ledger
from ledger.config import Settings
from ledger.local import LocalClient
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDOFFS: Final = 200
CALLS: Final = scaled(100, 5)
LATER_MS: Final = 2**52
BUDGET: Final = Budget("≤", 2.0)
QUESTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("handoffs.list", {"limit": 50}),
    ("handoffs.show", {"id": "2026-02-12-step-7"}),
    ("handoffs.board", {"limit": 20}),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    with open_ledger(home) as ledger:
        ledger.write_keys()
        for number in range(HANDOFFS):
            name, tasks = f"2026-02-12-step-{number}", ["Read what there is", "Write what is missing", "Test both"]
            ledger.hand_over(name, title=f"The {number}th step of the migration", tasks=tasks)
    _, token = Tokens(home).create("alice", "reader", LATER_MS)
    command = [sys.executable, "-m", "tests.bench.web", str(home)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        connection = http.client.HTTPConnection(child.stdout.readline().strip(), timeout=60)
        with Ledger(settings=Settings(home=home)) as python:
            for query, arguments in QUESTIONS:
                bench.say(query)
                by_http = partial(_by_http, connection, token, address(path_of(query), arguments))
                by_python = partial(python.ask, query, **arguments)
                assert len(json.dumps(by_http())) > len(json.dumps(by_python()))  # the same, in a document
                found = bench.paired(partial(_timed, by_http), partial(_timed, by_python))
                note = f"{HANDOFFS} handoffs, {1000 * min(ours for ours, _ in found) / CALLS:.2f} ms an answer"
                yield Row(f"web: {query} over HTTP", ratios(found), "the same by Python", BUDGET, note)
        connection.close()
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def _timed(ask: Any, _number: int) -> float:
    def work() -> None:
        for _ in range(CALLS):
            ask()

    return seconds(work)


def _by_http(connection: http.client.HTTPConnection, token: str, path: str) -> Any:
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    return json.loads(connection.getresponse().read())


async def serve(home: Path) -> None:
    """Serve a ledger over HTTP until the standard input ends; the first line is where."""
    with LocalClient(Settings(home=home)) as client:
        async with publishing(client, bind("0")) as url:
            print(url.removeprefix("http://"), flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
