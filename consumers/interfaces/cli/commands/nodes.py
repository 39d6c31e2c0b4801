"""`deed node`: the nodes of a ledger, as this folder's node sees them."""

from __future__ import annotations

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.node.peers import NodesView, read_nodes, silent_max_s
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home.home import Home


@click.group(cls=Group)
def node() -> None:
    """List the nodes of this ledger. Run it in the folder of a node."""


@node.command("list")
def list_(app: App) -> None:
    """List the nodes that answer, this one first: whether they take submissions, and the size of each log."""
    view = _view(app)
    rows = [
        (member.node, member.role, member.size, f"{member.heard_s:.1f} s", member.url, member.fault or "-")
        for member in view.nodes
    ]
    header = ("node", "role", "entries", "heard", "url", "fault")
    app.show("nodes", msgspec.to_builtins(view), lambda: print_table(header, rows))


def state_here(home: Home) -> tuple[bool, str, str]:
    """Return whether the nodes are in order from the view of this folder's node, their state, and advice."""
    try:
        view = read_nodes(home.bus)
    except DeedbookError as error:
        return False, error.code, error.message
    own, head = view.nodes[0], max(member.size for member in view.nodes)
    state = f"{own.node} is {own.role}, {head - own.size} entries behind"
    others = ", ".join(f"{member.node} heard {member.heard_s:.1f} s ago" for member in view.nodes[1:])
    is_ready = any(member.role == "ready" and member.heard_s < silent_max_s for member in view.nodes)
    fix = own.fault or "no node is ready: `deed node list` says which are heard; two of three must run"
    return is_ready and not own.fault, f"{state}; {others or 'no other node is heard'}", fix


def _view(app: App) -> NodesView:
    return read_nodes(Home(app.settings().home).bus)
