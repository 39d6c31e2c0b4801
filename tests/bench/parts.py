"""Rows of the parts of an event's cost: the CPU time of each, beside libsodium verifying one signature.

The events are those of the rows of appending: signed batches of 256, appended one a commit, then folded into all views.
``check``, ``decide`` and ``append`` are what the gate calls; their parts are called by themselves on the same bytes, so
a part may cost a little less here than within the gate. The row of publishing sends the entries to a nats-server on
loopback, which stores them, and waits for each batch. It counts the CPU time of this process, not of the server.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from nats.js.api import StorageType

from deedbook.ledger.admission.candidate import CheckedSubmission
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.decide import decide
from deedbook.ledger.admission.gate import Transaction
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.format.envelope import commitment_to, event_id, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.format.merkle import Frontier, leaf_hash
from deedbook.ledger.secrets.scanner import scan_bodies
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner
from tests.bench.pairs import Bench, Row, scaled
from tests.bench.rivals import signed_of, verify_all
from tests.bench.servers import connected, servers
from tests.bench.workload import BATCH, batches, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deedbook.ledger.format.envelope import Submission
    from tests.building import Ledger

BATCHES: Final = scaled(16, 2)
EVENTS: Final = BATCHES * BATCH
BASELINE: Final = "libsodium verifying a signature"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    rounds: list[dict[str, float]] = []
    with open_ledger(bench.folder / "ledger") as ledger, servers(bench.folder / "bus") as (url,):
        single = batches(ledger, "single", 1, alone=True)
        for number in range(bench.rounds + 1):
            bench.say(f"round {number}: {EVENTS:,} events, part by part")
            one_us = _us(lambda: verify_all([signed_of(one) for one in single]), BATCH)
            parts = _parts(ledger, batches(ledger, f"round-{number}", BATCHES))
            parts["folded into all views"] = _folded(bench, ledger, number)
            parts["published, awaited by the batch"] = _published(ledger, url, number)
            rounds.append({name: us / one_us for name, us in parts.items()} | {"": one_us})
    shown = rounds[1:]
    for name in shown[0]:
        if name:
            us = sorted(one[name] * one[""] for one in shown)[len(shown) // 2]
            yield Row(f"part: {name}", [one[name] for one in shown], BASELINE, None, f"{us:.1f} µs of CPU an event")


def _parts(ledger: Ledger, submissions: list[Submission]) -> dict[str, float]:
    """Append the submissions, and return for each part the µs of CPU time per event."""
    bodies = [one.bodies for one in submissions]
    checked: list[CheckedSubmission] = []
    us = {
        "check, in all": _us(lambda: checked.extend(map(check, submissions))),
        "body decoded under its type": _us(lambda: [decode_body(raw) for batch in bodies for raw in batch]),
        "id hashed": _us(lambda: [event_id(commitment_to(raw)) for batch in bodies for raw in batch]),
        "signature of the batch": _us(
            lambda: [verify(one.key, signed_bytes([*map(commitment_to, one.bodies)]), one.sig) for one in submissions]
        ),
        "secrets looked for": _us(lambda: [scan_bodies(batch) for batch in bodies]),
        "decide, in all": _decided(ledger, checked),
        "leaf and tree": _us(lambda: [Frontier.empty().extend(map(leaf_hash, batch)) for batch in bodies]),
    }
    gate = _us(lambda: [ledger.gate.admit([one]) for one in checked])
    return us | {"append and commit": gate - us["decide, in all"]}


def _decided(ledger: Ledger, checked: list[CheckedSubmission]) -> float:
    with ledger.log.snapshot() as snapshot:
        layer = Layer(Transaction(snapshot, {}))
        now_ms = time.time_ns() // 1_000_000
        return _us(lambda: [decide(one, layer, now_ms) for one in checked])


def _folded(bench: Bench, ledger: Ledger, number: int) -> float:
    with ledger.client() as client:
        store = SqliteStore(bench.folder / f"views-{number}.db", ledger=client.ledger)
        us = _us(lambda: Runner(client, store, VIEWS).catch_up(), client.head().size)
        store.close()
        return us


def _published(ledger: Ledger, url: str, number: int) -> float:
    with ledger.log.snapshot() as snapshot:
        entries = [snapshot.entry(index) for index in range(snapshot.size - EVENTS, snapshot.size)]

    async def publish() -> float:
        async with connected(url) as client:
            stream = client.jetstream(publish_async_max_pending=BATCH)
            await stream.add_stream(name=f"round-{number}", subjects=[f"round.{number}"], storage=StorageType.FILE)
            start = time.process_time()
            for first in range(0, EVENTS, BATCH):
                pending = [await stream.publish_async(f"round.{number}", one) for one in entries[first : first + BATCH]]
                await asyncio.gather(*pending)
            return (time.process_time() - start) * 1e6 / EVENTS

    return asyncio.run(publish())


def _us(work: Callable[[], object], events: int = EVENTS) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e6 / events
