"""`deed join`: makes keys here, registers by an invitation, and checks that the ledger is the one that it pins."""

from __future__ import annotations

from functools import partial

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.agents import UNPROTECTED_HELP, new_passphrase
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.sdk.join import join as join_ledger
from deedbook.consumers.sdk.join import move
from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import check_server
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import find_home, new_home, present_folder, resolved
from deedbook.ledger.home.settings import check_folder
from deedbook.ledger.home.trust import quoted_path
from deedbook.ledger.lifecycle.authority import NODE_ROLE


@click.command(cls=Command)
@click.argument("code", required=False)
@click.option(
    "--address",
    metavar="URL[,URL]",
    help="Instead of joining: look for the ledger that this folder joined at another address from now on.",
)
@click.option("--node", "is_node", is_flag=True, help="Make the home of a further node of the ledger.")
@click.option(
    "--unprotected",
    is_flag=True,
    help=UNPROTECTED_HELP,
)
def join(app: App, code: str | None, *, address: str | None, is_node: bool, unprotected: bool) -> None:
    """Join a ledger with the CODE that `deed agent invite` printed on another machine.

    The keys are made in .deedbook of this folder (or in --home DIR) and stay there. From then on, commands in this
    folder use that ledger's server as this agent. If interrupted, run the same command again. The key of a human,
    reviewer or admin is sealed with a passphrase, which you type on the terminal, or --passphrase-fd gives it.

    If the address of the server changes, run `deed join --address URL`: the server there must prove that it has the
    same ledger. Keys and what waits in the spool stay.
    """
    if (code is None) == (address is None):
        raise Refused("USAGE", "give the CODE of an invitation, or --address with the new address of a joined ledger")
    if address is not None:
        _move(app, check_server(address).split(","))
    else:
        _join(app, code or "", is_node=is_node, unprotected=unprotected)


def _move(app: App, servers: list[str]) -> None:
    path = app.home or find_home(present_folder())
    if path is None:
        raise Refused("USAGE", "no folder here joined a ledger: name it with --home DIR, or join with `deed join CODE`")
    check_folder(resolved(path), is_named=app.home is not None)
    with progress("asking the server", is_shown=not app.as_json):
        membership = move(Home(path), servers)
    data = {"home": str(path), "ledger": membership.ledger, "name": membership.agent, "servers": servers}
    app.show("moved", data, f"{membership.agent} finds {membership.ledger} at {', '.join(servers)} from now on")


def _join(app: App, code: str, *, is_node: bool, unprotected: bool) -> None:
    invitation = Invitation.parse(code)
    if is_node != (invitation.roles == [NODE_ROLE]):
        of = "a node: add --node" if not is_node else f"{', '.join(invitation.roles)}: leave --node out"
        raise Refused("USAGE", f"the invitation is for {of}")
    path = app.home or new_home(present_folder())
    if path.exists():
        check_folder(resolved(path), is_named=app.home is not None)
    if not (servers := app.server or ",".join(invitation.servers)):
        unknown = "the invitation names no server: add --server nats://HOST:PORT (ask its sender)"
        raise Refused("USAGE", unknown)
    server = check_server(servers)
    ask = partial(new_passphrase, app, invitation.name, invitation.roles, unprotected=unprotected)
    shown = partial(progress, "joining", is_shown=not app.as_json)
    joined = join_ledger(invitation, Home(path), server, passphrase=ask, progress=shown)
    data = {
        "home": str(path),
        "ledger": invitation.ledger,
        "root_fingerprint": invitation.root,
        "name": invitation.name,
        "roles": invitation.roles,
        "key": joined.key,
        "servers": joined.membership.servers,
        "index": joined.index,
    }

    at_entry = "" if joined.index is None else f", at entry {joined.index}"
    following = "fill in [cluster] of its config.toml, and `deed serve`" if is_node else app.here("deed next")
    app.show(
        "joined",
        data,
        [
            f"{invitation.name} joined {invitation.ledger} as {', '.join(invitation.roles)}{at_entry}",
            f"  root    {invitation.root} (pinned)",
            f"  home    {quoted_path(path)}  (its keys were made here; no other copy exists)",
            f"Next: {following}",
        ],
    )
