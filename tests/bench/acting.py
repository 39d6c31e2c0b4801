"""Rows of answers that somebody acts on: computed from signed entries, against the same answer from rows of a view.

The first rows ask an open ledger the same question in both ways. One of them asks after each new entry, when each
stream has to be read again. The next rows show many different handoffs in one process, one after the other: the last
hundred answers should take as long as the first hundred, and memory should not grow. The last row times the fold of an
event that unlocks many handoffs: the verification of a handoff that they all wait for.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.admission.check import check
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.handoff import HandoffCompleted, HandoffCreated, HandoffLogged
from deedbook.projections.answers.reader import Reader
from tests.bench.auditing import anonymous_bytes
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import BATCH, open_ledger
from tests.browser import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests import building

QUEUE: Final = scaled(225, 12)
SHOWN: Final = scaled(5_000, 60)
MEASURED: Final = scaled(100, 20)
DEPENDENTS: Final = scaled(10_000, 100)
CALLS: Final = scaled(20, 2)
CALLS_OF_QUEUE: Final = scaled(4, 1)
CHECKED: Final = Budget("≤", 3.0)
LASTING: Final = Budget("≤", 1.2)
BASELINE: Final = "the same from rows of a view"
FIRST: Final = "the first hundred"
MIB: Final = 1024**2


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    yield from _checked(bench)
    yield from _lasting(bench)
    yield _dependents(bench)


def _checked(bench: Bench) -> Iterator[Row]:
    home = bench.folder / "queues"
    with open_ledger(home) as ledger:
        ledger.register("carol")
        for number in range(QUEUE):
            name = f"step-{number}"
            ledger.approve(name, ledger.hand_over(name, tasks=["read", "write"], criteria=["it is tested"]))
        for number in range(3):
            wanted = [f"step-{number}"] * bool(number)
            ledger.approve(f"few-{number}", ledger.hand_over(f"few-{number}", to="carol", depends_on=wanted))
        ledger.write_keys()
    questions: tuple[tuple[str, str, dict[str, Any], int], ...] = (
        ("show", "handoffs.show", {"id": "step-7"}, CALLS),
        ("why", "handoffs.why", {"id": "few-2"}, CALLS),
        ("next with 3 items", "handoffs.next", {"agent": "carol"}, CALLS),
        (f"next with {QUEUE} items", "handoffs.next", {"agent": "bob", "limit": QUEUE}, CALLS_OF_QUEUE),
    )
    with Ledger(agent="bob", home=home) as ledger:
        for name, query, arguments, calls in questions:
            bench.say(name)
            checked = partial(_repeated, calls, partial(ledger.ask, query, **arguments))
            found = bench.paired(checked, partial(_repeated, calls, partial(ledger.client.view, query, arguments)))
            ours = statistics.median(first for first, _ in found) / calls * 1000
            yield Row(f"acting: {name}, checked", ratios(found), BASELINE, CHECKED, f"{ours:.2f} ms an answer")
        what, query, arguments, _ = questions[-1]
        bench.say(f"{what}, after each entry")
        found = bench.paired(
            lambda _: _after_an_entry(ledger, partial(ledger.ask, query, **arguments)),
            lambda _: _after_an_entry(ledger, partial(ledger.client.view, query, arguments)),
        )
        ours = statistics.median(first for first, _ in found) * 1000
        yield Row(
            f"acting: {what} after each entry, checked", ratios(found), BASELINE, None, f"{ours:.2f} ms an answer"
        )


def _after_an_entry(ledger: Ledger, ask: Callable[[], object]) -> float:
    ledger.publish("handoff/step-0", HandoffLogged(text="still here"))
    ledger.client.view("handoffs.list", {"limit": 1})  # this query folds the new event
    return seconds(ask)


def _repeated(calls: int, ask: Callable[[], object], _number: int) -> float:
    return seconds(lambda: [ask() for _ in range(calls)])


def _lasting(bench: Bench) -> Iterator[Row]:
    home = bench.folder / "shown"
    with open_ledger(home) as ledger:
        _fill(ledger)
        ledger.write_keys()
    with Ledger(agent="bob", home=home) as opened:
        yield _lasting_row(bench, "one Ledger", lambda name: opened.ask("handoffs.show", id=name))
    with ToolLedger(agent="bob", home=home) as tools:
        server = DeedbookServer(tools)

        def call(name: str) -> None:
            asyncio.run(server.call_tool("handoff_act", {"action": "show", "id": name}))

        yield _lasting_row(bench, "mcp", call)
    with Shown(home) as dashboard, httpx.Client(follow_redirects=True, timeout=60) as browser:
        browser.get(dashboard.link)

        def look(name: str) -> None:
            browser.get(f"{dashboard.url}{path_to('handoff', name)}").raise_for_status()

        yield _lasting_row(bench, "dashboard", look)


def _fill(ledger: building.Ledger) -> None:
    data = HandoffCreated(
        title="Rotate logs", to="bob", reviewer="rita", tasks=["gzip them"], criteria=["none is lost"]
    )
    drafts = [Draft(stream=f"handoff/{_id(number)}", data=data) for number in range(SHOWN)]
    for start in range(0, len(drafts), BATCH):
        ledger.gate.admit([check(ledger.sign("alice", *drafts[start : start + BATCH]))])


def _dependents(bench: Bench) -> Row:
    """Return the row of folding a verification that many handoffs wait for, against one that none waits for."""
    bench.say(f"{DEPENDENTS:,} handoffs that wait for one")
    with open_ledger(bench.folder / "dependents") as ledger, Reader(ledger.client(), ledger.settings()) as reader:
        for number in range(bench.rounds + 1):
            for name in ("first", "alone"):
                ledger.approve(f"{name}-{number}", ledger.hand_over(f"{name}-{number}"))
                ledger.claim(f"{name}-{number}")
        firsts = [f"first-{number}" for number in range(bench.rounds + 1)]
        data = HandoffCreated(title="Wait", to="bob", reviewer="rita", depends_on=firsts, unlock_at="verified")
        drafts = [Draft(stream=f"handoff/{_id(number)}", data=data) for number in range(DEPENDENTS)]
        for start in range(0, len(drafts), BATCH):
            ledger.gate.admit([check(ledger.sign("alice", *drafts[start : start + BATCH]))])
        reader.answer("handoffs.list")

        def done(name: str, number: int) -> float:
            ledger.emit("bob", f"handoff/{name}-{number}", HandoffCompleted())
            reader.answer("handoffs.list")
            ledger.verify("rita", f"{name}-{number}")
            return seconds(lambda: reader.answer("handoffs.list"))

        found = bench.paired(partial(done, "first"), partial(done, "alone"))
    each = statistics.median(ours for ours, _ in found) / DEPENDENTS * 1e6
    what = f"acting: fold of one event on which {DEPENDENTS:,} handoffs rest"
    return Row(what, ratios(found), "one on which nothing rests", None, f"{each:.0f} µs for each of them")


def _id(number: int) -> str:
    return f"rotate-{number:05}"


def _lasting_row(bench: Bench, where: str, show: Callable[[str], object]) -> Row:
    bench.say(f"{SHOWN:,} handoffs shown by {where}")
    show(_id(0))  # loads code, and brings the views up to date
    times, memory = [], []
    for number in range(SHOWN):
        start = time.perf_counter()
        show(_id(number))
        times.append(time.perf_counter() - start)
        if number % MEASURED == 0:
            memory.append(anonymous_bytes())
    first, last = (statistics.median(part) for part in (times[:MEASURED], times[-MEASURED:]))
    warm, end = memory[len(memory) // 2], memory[-1]
    note = f"{1000 * first:.1f} and {1000 * last:.1f} ms each; RssAnon {memory[0] / MIB:.0f} MiB first, "
    note += f"{warm / MIB:.0f} in the middle, {end / MIB:.0f} at the end"
    figures = {"rss_anon": memory, "grown_since_middle": end - warm}
    return Row(f"acting: {SHOWN:,} handoffs shown by {where}", [last / first], FIRST, LASTING, note, figures)
