"""Faults planted in the real code, each of which a few worlds must show: a simulator that finds nothing proves nothing.

A fault is made by putting something else in the place of a function, as a mistake in it would; what the worlds check
stays as it is.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.gate import Transaction
from deedbook.ledger.bus import publisher
from deedbook.ledger.bus.stream import Generation, retire
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication import role
from tests.simulation.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORLDS_MAX: Final = 1_000
_read, _lead, _publish, _store, _move = LogFollower.read, role._lead, Replica.publish, Cluster.publish, Reactor._move


def _publish_later(self: Replica, start: int, entries: list[bytes], *, is_term: bool = False) -> None:
    if not (self.is_open or is_term):
        raise Unavailable("NOT_LEADER", "it does not lead now")
    self._loop.create_task(self._publish_within(start, entries))


def _publish_at_best(self: Replica, start: int, entries: list[bytes], *, is_term: bool = False) -> None:
    with contextlib.suppress(Unavailable):
        _publish(self, start, entries, is_term=is_term)


def _half(start: int, entries: Sequence[bytes]) -> list[Any]:
    signed = _read(start, entries)
    return signed[: max(1, len(signed) // 2)]


def _lead_on(state: role.Leader, *seen: Any) -> role.Step:
    after, actions = _lead(state, *seen)
    return (after, actions) if isinstance(after, role.Leader) else (state, ())


def _store_anywhere(self: Cluster, pattern: str, messages: Any, expected: int, *, is_whole: bool) -> dict[str, Any]:
    stream = self.log_stream()
    return _store(self, pattern, messages, stream.last_seq if stream else expected, is_whole=is_whole)


async def _retire_only(self: Replica, number: int) -> bool:
    generation = Generation(self.ledger, number)
    await retire(self._nats(), generation)
    try:
        await publisher.stream_info(self._nats(), generation)
    except Unavailable as error:
        if error.code != "BUS_DEGRADED":
            raise
        return False
    return True


def _move_apart(self: Reactor, index: int) -> None:
    self._subscriptions.run("COMMIT")
    self._subscriptions.run("BEGIN IMMEDIATE")
    _move(self, index)


def _surely(_self: Replica) -> bool:
    return False


PLANTED: Final[dict[str, Callable[[], Any]]] = {
    "acknowledged before it is published": lambda: mock.patch.object(Replica, "publish", _publish_later),
    "an unknown outcome counts as published": lambda: mock.patch.object(Replica, "publish", _publish_at_best),
    "an unknown outcome counts as failed": lambda: mock.patch.object(
        Replica, "is_behind", property(_surely, lambda _self, _value: None), create=True
    ),
    "the lease is trusted, and publishing does not compare": lambda: mock.patch.object(
        Cluster, "publish", _store_anywhere
    ),
    "whatever stands in the stream counts as ours": lambda: mock.patch.object(publisher, "is_same", return_value=True),
    "what followers are quicker to have counts as lost": lambda: mock.patch.object(Replica, "has_all", new=True),
    "a leader that was fenced leads on": lambda: mock.patch.object(role, "_lead", _lead_on),
    "a follower appends half a batch": lambda: mock.patch.object(LogFollower, "read", staticmethod(_half)),
    "what a retired stream was given last is left": lambda: mock.patch.object(Replica, "_retire", _retire_only),
    "a repetition is not known again": lambda: mock.patch.object(Transaction, "index_of", return_value=None),
    "the position moves in another transaction than the effect": lambda: mock.patch.object(
        Reactor, "_move", _move_apart
    ),
}
