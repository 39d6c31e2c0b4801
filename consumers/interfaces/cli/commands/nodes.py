"""`deed node`: the nodes of a ledger as the one that runs in this folder hears them, and handing over to another."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.node.peers import HAND_OVER_FILE, NodesView, read_nodes
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.home.home import Home
from deedbook.ledger.system.files import write_whole

_wait_s: Final = 20.0
_look_every_s: Final = 0.1


@click.group(cls=Group)
def node() -> None:
    """List the nodes of this ledger, and move leadership. Run it in the folder of a node."""


@node.command("list")
def list_(app: App) -> None:
    """List the nodes that answer, this one first: leader, term, and the size of each log."""
    view = _view(app)
    rows = [
        (member.node, member.role, member.term, member.size, f"{member.heard_s:.1f} s", member.url, member.fault or "-")
        for member in view.nodes
    ]
    header = ("node", "role", "term", "entries", "heard", "url", "fault")
    app.show("nodes", msgspec.to_builtins(view), lambda: print_table(header, rows))


@node.command("hand-over")
@click.argument("name", required=False, default="")
def hand_over(app: App, name: str) -> None:
    """Make the node NAME the leader, and wait until it leads. Run it in the folder of the present leader.

    Without NAME, the ready node with the most entries becomes the leader.
    """
    view = _view(app)
    if view.leader != view.node:
        message = f"{view.node} does not lead: run this in the folder of {view.leader or 'who does'}"
        raise Refused("NOT_AUTHORIZED", message)
    if name and name not in {member.node for member in view.nodes[1:]}:
        raise Refused("NOT_FOUND", f"node {name} does not answer: see `deed node list`", name=name)
    write_whole(Home(app.settings().home).bus / HAND_OVER_FILE, name.encode())
    until = time.monotonic() + _wait_s
    with progress("waiting for a new leader", is_shown=not app.as_json):
        while (leader := _view(app).leader) in {"", view.node} and time.monotonic() < until:
            time.sleep(_look_every_s)
    if leader not in {"", view.node}:
        app.show("node", {"leader": leader}, f"{leader} leads")
        return
    raise Unavailable("NOT_LEADER", f"no node took over within {_wait_s:g} s: see `deed node list`")


def state_here(home: Home) -> tuple[bool, str, str]:
    """Return whether the nodes are in order as this folder's node sees them, their state, and what to do."""
    try:
        view = read_nodes(home.bus)
    except DeedbookError as error:
        return False, error.code, error.message
    own, head = view.nodes[0], max(member.size for member in view.nodes)
    leads = f"{view.leader or 'nobody'} leads"
    state = f"{own.node} is {own.role} in term {own.term}, {head - own.size} entries behind; {leads}"
    others = ", ".join(f"{member.node} heard {member.heard_s:.1f} s ago" for member in view.nodes[1:])
    fix = own.fault or "no node leads: `deed node list` says which are heard; two of three must run"
    return bool(view.leader) and not own.fault, f"{state}; {others or 'no other node is heard'}", fix


def _view(app: App) -> NodesView:
    return read_nodes(Home(app.settings().home).bus)
