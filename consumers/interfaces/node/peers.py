"""Two files beside the embedded server, through which a node and its machine exchange the state of all nodes.

The node writes ``nodes.json``, the heartbeats that it heard, twice a second. Its operator writes ``hand-over`` to ask a
leader to stop leading. A user who may write in the folder owns the node, so neither file needs a key.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.replication.signals import Beat
from deedbook.ledger.system.files import read_regular

NODES_FILE: Final = "nodes.json"
HAND_OVER_FILE: Final = "hand-over"
silent_max_s: Final = 5.0
"""A node that was silent for longer, or whose file is older, is unavailable."""


class NodeView(msgspec.Struct, frozen=True):
    """One node: its last heartbeat, and the seconds since then."""

    node: str
    role: str
    term: int
    size: int
    url: str
    fault: str
    heard_s: float


class NodesView(msgspec.Struct, frozen=True):
    """The content of ``nodes.json``: this node's name, the leader, and all known nodes; ``at`` is Unix seconds."""

    node: str
    leader: str
    nodes: list[NodeView]
    at: float


def view_of(own: Beat, role: str, others: Iterable[tuple[Beat, int]], now_ms: int) -> NodesView:
    """Return the view of all nodes, ``own`` first.

    ``others`` are pairs: the last heartbeat of a node, and the time when it was heard (ms).
    """
    nodes = [NodeView(own.node, role, own.term, own.size, own.url, own.fault, 0.0)]
    nodes += [
        NodeView(
            beat.node,
            "leader" if beat.leads else "follower",
            beat.term,
            beat.size,
            beat.url,
            beat.fault,
            (now_ms - heard_ms) / 1000,
        )
        for beat, heard_ms in sorted(others, key=lambda pair: pair[0].node)
    ]
    present = [node for node in nodes if node.role == "leader" and node.heard_s < silent_max_s]
    leader = max(present, key=lambda node: node.term, default=None)
    return NodesView(own.node, leader.node if leader else "", nodes, time.time())


def read_nodes(folder: Path) -> NodesView:
    """Return the view of the node that runs in this bus folder. Raises Unavailable: ``BUS_UNAVAILABLE``: none runs."""
    view: NodesView | None = None
    try:
        content = read_regular(folder / NODES_FILE, size_max_bytes=config_size_max_bytes)
        view = read_json(content or b"", NodesView)
    except UNREADABLE:
        view = None
    if view is None or time.time() - view.at > silent_max_s:
        raise Unavailable(
            "BUS_UNAVAILABLE", "no node of a cluster runs here. Start it with `deed serve`.", folder=str(folder)
        )
    return view
