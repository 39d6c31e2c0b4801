"""The row of folding: rebuilding all views, against a hand-written projection of the same events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.handoff import (
    HandoffApproved,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionChecked,
    HandoffTaskChecked,
)
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.views.registry import views_for
from deedbook.projections.views.runner import Runner
from tests.bench.handwritten import HandWritten
from tests.bench.pairs import Bench, Budget, Row, rate, ratios, scaled
from tests.bench.rivals import Stream, open_rival
from tests.bench.workload import BATCH, open_ledger, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventsourcing.application import Application

    from deedbook.ledger.client.local import LocalClient
    from tests.building import Ledger

EVENTS: Final = scaled(20_000, 1_024)
ABREAST: Final = 32
FINDINGS: Final = 9
BASELINE: Final = "a hand-written projection of eventsourcing into the same tables, 10,000 a commit"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the row of this group."""
    bench.say(f"rebuilding all views from {EVENTS:,} events")
    with open_ledger(bench.folder / "ledger") as ledger, ledger.client() as client:
        grow(ledger)
        rival = open_rival(bench.folder / "rival.db")
        save_all(client, rival)
        size = client.head().size

        def ours(number: int) -> float:
            store = SqliteStore(bench.folder / f"ours-{number}.db", ledger=client.ledger)
            speed = rate(size, lambda: Runner(client, store, views_for("")).catch_up())
            store.close()
            return speed

        def theirs(number: int) -> float:
            projection = HandWritten(bench.folder / f"theirs-{number}.db")
            speed = rate(size, lambda: projection.project(rival))
            projection.db.close()
            return speed

        found = bench.paired(ours, theirs)
        rival.close()
    note = f"{size:,} events of sessions and handoffs; Deedbook decodes strictly, replays the machine, keeps states"
    yield Row("fold: rebuild of all views", ratios(found), BASELINE, Budget("≥", 0.55), note)


def grow(ledger: Ledger, events: int = EVENTS) -> None:
    """Append handoffs from creation to completion, and sessions of ten events, in batches."""
    round_ = 0
    while ledger.head()[0] < events:
        created = {f"work-{round_}-{n}": _handoff(n) for n in range(ABREAST)}
        _submit(ledger, "alice", [Draft(stream=f"handoff/{name}", data=data) for name, data in created.items()])
        approvals = {name: HandoffApproved(version=compute_version("alice", data)) for name, data in created.items()}
        _submit(ledger, "rita", [Draft(stream=f"handoff/{name}", data=data) for name, data in approvals.items()])
        _submit(ledger, "bob", [Draft(stream=f"handoff/{name}", data=data) for name in created for data in _work()])
        names = [f"day-{round_}-{n}" for n in range(ABREAST)]
        _submit(ledger, "alice", [Draft(stream=f"session/{name}", data=data) for name in names for data in _session()])
        round_ += 1


def save_all(client: LocalClient, rival: Application) -> None:
    """Save the ledger's events with the ``eventsourcing`` library, in the same order within each stream."""
    known: dict[str, Stream] = {}
    position = 0
    while position < client.head().size:
        page = client.entries(position)
        touched: dict[str, Stream] = {}
        for _, data in page.entries:
            body = _values(data)
            stream = known.get(body["stream"])
            if stream is None:
                stream = known[body["stream"]] = Stream(body)
            else:
                stream.record(body)
            touched[body["stream"]] = stream
        rival.save(*touched.values())
        position = page.next_index


def _values(data: bytes) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.json.decode(decode_entry(data).body)
    return values


def _submit(ledger: Ledger, author: str, drafts: Sequence[Draft]) -> None:
    for start in range(0, len(drafts), BATCH):
        ledger.submit(ledger.sign(author, *drafts[start : start + BATCH]))


def _handoff(number: int) -> HandoffCreated:
    return HandoffCreated(
        title=f"Step {number}",
        to="bob",
        reviewer="rita",
        task=text_of(number),
        context=text_of(0),
        tasks=["read the code", "write the change", "tell the reviewer"],
        criteria=["tests pass", "nothing else changed"],
        depends_on=[],
    )


def _work() -> list[Any]:
    return [
        HandoffClaimed(),
        *(HandoffTaskChecked(position=position) for position in range(3)),
        *(HandoffCriterionChecked(position=position, evidence="src/store.py:120") for position in range(2)),
        HandoffCompleted(summary=text_of(0)),
    ]


def _session() -> list[Any]:
    found = [FindingLogged(finding=text_of(number), evidence=["src/store.py:120"]) for number in range(FINDINGS)]
    return [SessionStarted(task=text_of(0)), *found]
