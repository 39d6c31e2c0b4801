"""A file beside the embedded server, in which a node tells its machine the state of all nodes.

The node writes ``nodes.json``, the heartbeats that it heard, twice a second.
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
from deedbook.ledger.replication.state import Beat, Peer
from deedbook.ledger.system.files import read_regular

NODES_FILE: Final = "nodes.json"
silent_max_s: Final = 5.0
"""A node that was silent for longer, or whose file is older, is unavailable."""


class NodeView(msgspec.Struct, frozen=True):
    """One node: its last heartbeat, and the seconds since then.

    Its role is ``ready`` (it takes submissions), ``follower`` (it does not, now), or ``degraded`` (it has a fault).
    """

    node: str
    role: str
    size: int
    url: str
    fault: str
    heard_s: float


class NodesView(msgspec.Struct, frozen=True):
    """The content of ``nodes.json``: this node's name, and all known nodes; ``at`` is Unix seconds."""

    node: str
    nodes: list[NodeView]
    at: float


def view_of(own: Beat, others: Iterable[Peer], now_ms: int) -> NodesView:
    """Return the view of all nodes, ``own`` first."""
    nodes = [_view(own, 0.0)]
    nodes += [
        _view(peer.beat, (now_ms - peer.heard_ms) / 1000)
        for peer in sorted(others, key=lambda peer: peer.beat.node)
        if not peer.beat.leaves
    ]
    return NodesView(own.node, nodes, time.time())


def _view(beat: Beat, heard_s: float) -> NodeView:
    role = "ready" if beat.admits else "degraded" if beat.fault else "follower"
    return NodeView(beat.node, role, beat.size, beat.url, beat.fault, heard_s)


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
