"""The invariants of every world, checked at each event that could break them and once more at the end.

There is one history: all nodes commit the same entry at an index, byte for byte. So of two logs, the shorter is the
beginning of the longer, and logs of equal size have equal roots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry, entry_leaf
from deedbook.ledger.format.merkle import EMPTY_ROOT, Frontier

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deedbook.ledger.admission.decide import Accepted
    from tests.simulation.cluster import Cluster
    from tests.simulation.memory_log import MemoryLog
    from tests.simulation.world import World


class Invariants:
    """Records and checks everything that is committed, published, acknowledged or refused in a world."""

    def __init__(self, world: World, cluster: Cluster, first: Sequence[bytes], *, is_published_first: bool) -> None:
        self.world = world
        self.cluster = cluster
        self.is_published_first = is_published_first
        self.history: list[bytes] = []
        self.ids: dict[str, int] = {}
        self.roots: list[bytes] = [EMPTY_ROOT]
        self.acknowledged: dict[str, int] = {}
        self.refused: set[str] = set()
        self.writers: list[str] = []
        """The nodes that got acknowledgements for entries of their own, one item for each change."""

        self._frontier = Frontier.empty()
        self._learn(first)

    def committed(self, host: str, start: int, entries: Sequence[bytes]) -> None:
        for index, data in enumerate(entries, start):
            if index < len(self.history) and self.history[index] != data:
                self.world.violate(f"{host} committed another entry {index} than others did")
                return
        last = decode_entry(entries[-1])
        if last.batch_index != last.batch_size - 1:
            self.world.violate(f"{host} committed a part of the signed batch at entry {start + len(entries) - 1}")
        self._learn(entries[max(0, len(self.history) - start) :])

    def _learn(self, entries: Iterable[bytes]) -> None:
        for data in entries:
            index = len(self.history)
            event = read_event(index, data)
            if (earlier := self.ids.setdefault(event.id, index)) != index:
                self.world.violate(f"{event.id[:16]} is entry {earlier} and {index}")
            if event.id in self.refused:
                self.world.violate(f"entry {index} was refused before, and stands in the log")
            self._frontier = self._frontier.extend([entry_leaf(data)])
            self.roots.append(self._frontier.root())
            self.history.append(data)

    def admitted(self, host: str) -> None:
        """Record that a node accepted entries as the deciding node."""
        if self.writers[-1:] != [host]:
            self.writers.append(host)

    def answered(self, host: str, log: MemoryLog, accepted: Iterable[Accepted]) -> None:
        for one in accepted:
            if self.ids.get(one.id) != one.index or one.index >= len(log.data):
                self.world.violate(f"{host} acknowledged entry {one.index}, which is not that event in its log")
            if self.is_published_first and one.index >= self.cluster.highest_seq:
                self.world.violate(f"{host} acknowledged entry {one.index}, which was not published")
            if self.acknowledged.setdefault(one.id, one.index) != one.index:
                self.world.violate(f"{one.id[:16]} was acknowledged at two indexes")

    def refuse(self, host: str, ids: Iterable[str]) -> None:
        """Check a final refusal of a node: the submission must never be accepted, before or after."""
        for event_id in ids:
            self.refused.add(event_id)
            if event_id in self.ids:
                self.world.violate(f"{host} refused entry {self.ids[event_id]}, which stands in the log")

    def check_end(self, logs: dict[str, MemoryLog]) -> None:
        for host, log in logs.items():
            if log.data != self.history:
                self.world.violate(f"{host} ended with {len(log.data)} entries of {len(self.history)}")
            with log.snapshot() as snapshot:
                if snapshot.root() != self.roots[snapshot.size]:
                    self.world.violate(f"{host} has another root at {snapshot.size}")
        for event_id, index in self.acknowledged.items():
            if self.ids.get(event_id) != index:
                self.world.violate(f"the acknowledged {event_id[:16]} is lost from entry {index}")
