"""What a node tells those on its machine of the others, in two files beside the embedded server.

``nodes.json`` is what was heard of whom, written twice a second; by ``hand-over`` its operator asks a leader to give up
leading. Whoever may write in the folder owns the node, so neither needs a key.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.replication.signals import Beat
from deedbook.ledger.system.files import read_regular

NODES_FILE: Final = "nodes.json"
HAND_OVER_FILE: Final = "hand-over"
silent_max_s: Final = 5.0
"""A node that was not heard for so long, or whose file is older, is away."""


class NodeView(msgspec.Struct, frozen=True):
    """What is known of one node: its last heartbeat, and how many seconds ago it was heard."""

    node: str
    role: str
    term: int
    size: int
    url: str
    fault: str
    heard_s: float


class NodesView(msgspec.Struct, frozen=True):
    """What ``nodes.json`` holds: this node's name, who leads, and all that were heard of; ``at`` is Unix seconds."""

    node: str
    leader: str
    nodes: list[NodeView]
    at: float


def view_of(own: Beat, role: str, others: Iterable[tuple[Beat, int]], now_ms: int) -> NodesView:
    """Return what is known of all nodes, ``own`` first; ``others`` with the time (ms) when they were heard last."""
    nodes = [NodeView(own.node, role, own.term, own.size, own.url, own.fault, 0.0)]
    nodes += [
        NodeView(
            one.node,
            "leader" if one.leads else "follower",
            one.term,
            one.size,
            one.url,
            one.fault,
            (now_ms - heard_ms) / 1000,
        )
        for one, heard_ms in sorted(others, key=lambda pair: pair[0].node)
    ]
    present = [one for one in nodes if one.role == "leader" and one.heard_s < silent_max_s]
    leader = max(present, key=lambda one: one.term, default=None)
    return NodesView(own.node, leader.node if leader else "", nodes, time.time())


def read_nodes(folder: Path) -> NodesView:
    """Return what the node that runs in this bus folder knows. Raises Unavailable: ``BUS_UNAVAILABLE``: none runs."""
    view: NodesView | None = None
    try:
        content = read_regular(folder / NODES_FILE, size_max_bytes=config_size_max_bytes)
        view = msgspec.json.decode(content or b"", type=NodesView)
    except UNREADABLE:
        view = None
    if view is None or time.time() - view.at > silent_max_s:
        raise Unavailable("BUS_UNAVAILABLE", "no node of several runs here: `deed serve` starts it", folder=str(folder))
    return view
