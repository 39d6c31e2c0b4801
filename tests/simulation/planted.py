"""Faults to be planted in the real code. A few worlds must find each: a simulator that finds no fault proves nothing.

A fault replaces a function by a wrong one; the checks of the worlds stay the same.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from deedbook.consumers.interfaces.node import replica
from deedbook.consumers.interfaces.node.membership import Membership
from deedbook.consumers.interfaces.node.stream_order import StreamOrder
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.gate import Transaction
from deedbook.ledger.admission.order import OvertakenError
from deedbook.ledger.bus import publisher
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication.state import NodeState
from tests.simulation.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deedbook.ledger.bus.publisher import OutboundMessage

WORLDS_MAX: Final = 1_000
_read, _publish, _send = LogFollower.read, StreamOrder.publish, StreamOrder._send
_store, _move = Cluster.publish, Reactor._move


def _publish_later(self: StreamOrder, start: int, entries: list[bytes]) -> None:
    self._loop.create_task(_ignored(self, start, entries))


async def _ignored(self: StreamOrder, start: int, entries: list[bytes]) -> None:
    with contextlib.suppress(Exception):
        await self._publish(start, entries)


def _publish_at_best(self: StreamOrder, start: int, entries: list[bytes]) -> None:
    with contextlib.suppress(Unavailable):
        _publish(self, start, entries)


async def _send_at_best(self: StreamOrder, group: Sequence[OutboundMessage]) -> None:
    with contextlib.suppress(OvertakenError):
        await _send(self, group)


def _half(start: int, entries: Sequence[bytes]) -> list[Any]:
    signed = _read(start, entries)
    return signed[: max(1, len(signed) // 2)]


def _store_at_the_end(
    self: Cluster, pattern: str, name: str, messages: Any, expected: int, *, is_whole: bool
) -> dict[str, Any]:
    stream = self.log_stream()
    return _store(self, pattern, name, messages, stream.last_seq if stream else expected, is_whole=is_whole)


def _order_of_anybody(self: StreamOrder, _start: int) -> Generation:
    if self._replica.generation is None:
        raise OvertakenError
    return self._replica.generation


async def _end_unread(_self: StreamOrder, _start: int) -> None:
    pass


def _move_apart(self: Reactor, index: int) -> None:
    self._subscriptions.run("COMMIT")
    self._subscriptions.run("BEGIN IMMEDIATE")
    _move(self, index)


async def _surely(_self: Membership) -> bool:
    return True


PLANTED: Final[dict[str, Callable[[], Any]]] = {
    "acknowledged before it is published": lambda: mock.patch.object(StreamOrder, "publish", _publish_later),
    "an unknown outcome counts as published": lambda: mock.patch.object(StreamOrder, "publish", _publish_at_best),
    "publishing does not compare": lambda: mock.patch.object(Cluster, "publish", _store_at_the_end),
    "whatever stands at the position counts as ours": lambda: mock.patch.object(StreamOrder, "_send", _send_at_best),
    "whatever fills the next stream counts as ours": lambda: mock.patch.object(publisher, "is_same", return_value=True),
    "a node publishes at once after it was interrupted": lambda: mock.patch.object(
        NodeState, "is_in_contact", return_value=True
    ),
    "a node publishes although another log is longer": lambda: mock.patch.object(
        StreamOrder, "_check_order", _order_of_anybody
    ),
    "a node refuses by a log that may lack the latest entries": lambda: mock.patch.object(
        StreamOrder, "_check_end", _end_unread
    ),
    "a server that was cut off is believed": lambda: mock.patch.object(replica, "is_led", return_value=True),
    "entries that a node lacks count as lost": lambda: mock.patch.object(Membership, "has_all", _surely),
    "a follower appends half a batch": lambda: mock.patch.object(LogFollower, "read", staticmethod(_half)),
    "a repetition is not known again": lambda: mock.patch.object(Transaction, "index_of", return_value=None),
    "the position moves in another transaction than the effect": lambda: mock.patch.object(
        Reactor, "_move", _move_apart
    ),
}
