"""The clients of a world: agents that submit until they are answered, and subscribers that act on each event once.

An agent stores unanswered submissions on its disk. After a time-out, an outage or its own crash, it submits them again,
with the same bytes and ids. A subscriber is the real ``Reactor`` with real SQLite; it may crash before or after any SQL
statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import nats.errors

from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscription_store import SCHEMA
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.reads import Page
from deedbook.ledger.errors import DeedbookError, Unavailable
from tests.building import ids_of
from tests.simulation.client import Network, SimClient
from tests.simulation.story import actors, is_refused, submission
from tests.simulation.thread import Killed
from tests.simulation.world import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.events.body import Event
    from deedbook.ledger.trust.history import ConsistencyProof
    from tests.simulation.invariants import Invariants
    from tests.simulation.memory_log import MemoryLog
    from tests.simulation.world import World

answer_wait_s: Final = 2.0
page_max: Final = 16
POISON: Final = 11


class SimAgent:
    """An agent; ``answered``, the number of its submissions that were answered, is stored on its disk."""

    def __init__(self, network: Network, name: str, count: int, invariants: Invariants) -> None:
        self.network, self.world, self.name, self.count = network, network.world, name, count
        self.invariants = invariants
        self.answered = 0
        self.process = Process(self.world, name)
        self.start()

    @property
    def is_done(self) -> bool:
        return self.answered == self.count

    def start(self) -> None:
        self.process.kill()
        self.process = Process(self.world, self.name)
        self.process.run_task(self._run())

    async def _run(self) -> None:
        random = self.world.random
        while not self.is_done:
            number = self.answered
            server = random.choice(self.network.cluster.hosts)
            client = SimClient(self.network, self.process, server)
            client.server = server
            outcome = await self._submit(client, number)
            await client.close()
            if outcome is None:
                await asyncio.sleep(random.uniform(0.1, 1.0))
                continue
            if outcome != is_refused(number):
                self.answered += 1
                await asyncio.sleep(random.uniform(0.0, 1.5))
            else:
                self.world.violate(f"{self.name} was told wrongly that {number} was {outcome}")

    async def _submit(self, client: SimClient, number: int) -> bool | None:
        """Send a submission; return whether it was accepted, or None if that is unknown."""
        subject = submit_subject(actors().id, self.name)
        try:
            answer = await client.request(subject, b"%d" % number, timeout=answer_wait_s)
        except (nats.errors.Error, OSError):
            return None
        content = msgspec.json.decode(answer.data)
        if "code" not in content:
            for event_id, index in content["accepted"]:
                if self.invariants.acknowledged.get(event_id) != index:
                    self.world.violate(f"{self.name} holds a receipt for entry {index} that nobody gave")
            return True
        if content["kind"] == "Refused":
            self.invariants.refuse(self.name, ids_of(submission(self.name, number)))
            return False
        return None


class _Disk:
    """The subscriber's SQLite file; ``dies_in`` is the number of statements until the subscriber crashes."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.executescript(SCHEMA + "CREATE TABLE effects (event_index INTEGER, event_id TEXT);")
        self.dies_in: int | None = None
        self.is_dead = False

    @property
    def in_transaction(self) -> bool:
        return self.db.in_transaction

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        self._step()
        cursor = self.db.execute(sql, values)
        if self.dies_in == 0:
            self._step()
        return cursor

    def executemany(self, sql: str, values: Any) -> sqlite3.Cursor:
        self._step()
        return self.db.executemany(sql, values)

    def _step(self) -> None:
        if self.is_dead:
            raise Killed
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.is_dead = True
                raise Killed

    def mount(self) -> None:
        self.dies_in, self.is_dead = None, False
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")


class SimSubscriptions(Subscriptions):
    """The real subscriptions, stored in a ``_Disk``."""

    def __init__(self, disk: _Disk) -> None:
        self.path = Path("subscriptions.sqlite")
        self.place = str(self.path)
        self._turn = threading.RLock()
        self.db = disk  # type: ignore[assignment]

    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class _NoNews(Unavailable):
    """There is nothing new to read."""


class _Reads:
    """The client with which a subscriber reads the log of a node."""

    def __init__(self, log: Callable[[], MemoryLog | None]) -> None:
        self._log = log
        self.ledger = actors().id

    def _snapshot(self) -> Any:
        log = self._log()
        if log is None:
            raise Unavailable("BUS_UNAVAILABLE", "no node answers")
        return log.snapshot()

    def head(self) -> ConsistencyProof:
        with self._snapshot() as snapshot:
            return snapshot.consistency(0)

    def consistency(self, old_size: int) -> ConsistencyProof:
        with self._snapshot() as snapshot:
            return snapshot.consistency(old_size)

    def entries(self, start: int, *, old_size: int = 0, **_asked: Any) -> Page:
        with self._snapshot() as snapshot:
            # This node may lag behind the node that the subscriber read before; its history is the same, but shorter.
            if snapshot.size <= start or snapshot.size < old_size:
                raise _NoNews("BUS_UNAVAILABLE", "no news")
            data = snapshot.entries(start, limit=page_max, size_max_bytes=0)
            return Page(list(enumerate(data, start)), start + len(data), snapshot.size, snapshot.consistency(old_size))


class _Stop:
    """A stop signal that is never set; waiting for it returns at once."""

    def is_set(self) -> bool:
        return False

    def wait(self, _seconds: float) -> None:
        pass


class SimSubscriber:
    """A subscription that records each event, except for poisonous events, which end as dead letters."""

    def __init__(self, world: World, network: Network, name: str, log: Callable[[], MemoryLog | None]) -> None:
        self.world, self.network, self.name = world, network, name
        self.disk = _Disk()
        self._log = log
        self.process = Process(world, name)
        SimSubscriptions(self.disk).start_at(name, 0)
        self.start()

    def start(self) -> None:
        self.process.kill()
        self.disk.mount()
        self.process = Process(self.world, self.name)
        reactor = Reactor(_Reads(self._log), SimSubscriptions(self.disk), self.name)  # type: ignore[arg-type]
        reactor.on()(self._act)
        self.process.run_task(self._run(reactor))

    async def _run(self, reactor: Reactor) -> None:
        random = self.world.random
        while True:
            if random.random() < self.death_chance:
                self.disk.dies_in = random.randrange(30)
            try:
                reactor.run(_Stop())  # type: ignore[arg-type]
            except Unavailable:
                await asyncio.sleep(random.uniform(0.2, 1.5))
            except Killed:
                self.world.tell(self.name, "died over its store")
                self.world.later(random.uniform(0.1, 2.0), self.start)
                return
            except DeedbookError as error:
                self.world.violate(f"{self.name} cannot go on: {error!r}", error)

    death_chance = 0.1

    @property
    def position(self) -> int:
        return int(self.disk.db.execute("SELECT next_index FROM deedbook_positions").fetchone()[0])

    def _act(self, event: Event, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO effects VALUES (?, ?)", (event.index, event.id))
        if event.index % POISON == POISON - 1:
            raise ValueError("poison")

    def check_end(self, invariants: Invariants) -> None:
        """Check that each event was recorded once, in order, and that the poisonous events are dead letters."""
        done = self.disk.db.execute("SELECT event_index, event_id FROM effects ORDER BY rowid").fetchall()
        aside = self.disk.db.execute("SELECT event_index, event_id FROM deedbook_dead_letters").fetchall()
        expected = [(index, event_id) for event_id, index in sorted(invariants.ids.items(), key=lambda one: one[1])]
        poison = [one for one in expected if one[0] % POISON == POISON - 1]
        if sorted(aside) != poison:
            self.world.violate(f"{self.name} laid aside {aside}, not {poison}")
        if done != [one for one in expected if one not in poison]:
            self.world.violate(f"{self.name} did not act on each event once: {len(done)} effects")
