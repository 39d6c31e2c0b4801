"""`deed join`: make keys here, be registered by an invitation, and hold the ledger against what it pins."""

from __future__ import annotations

from functools import partial

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.agents import UNPROTECTED_HELP, new_passphrase
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.sdk.join import join as join_ledger
from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import check_server
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import new_home, present_folder, resolved
from deedbook.ledger.home.settings import check_folder
from deedbook.ledger.home.trust import quoted_path
from deedbook.ledger.lifecycle.authority import NODE_ROLE


@click.command(cls=Command)
@click.argument("code")
@click.option("--node", "is_node", is_flag=True, help="Make the home of a further node of the ledger.")
@click.option(
    "--unprotected",
    is_flag=True,
    help=UNPROTECTED_HELP,
)
def join(app: App, code: str, *, is_node: bool, unprotected: bool) -> None:
    """Join a ledger with the CODE that `deed agent invite` printed on another machine.

    The keys are made in .deedbook of this folder (or in --home DIR) and stay there. From then on, commands in this
    folder use that ledger's server as this agent. If interrupted, run the same command again. The key of a human,
    reviewer or admin is sealed with a passphrase, which is asked on a terminal or read from --passphrase-fd.
    """
    invitation = Invitation.parse(code)
    if is_node != (invitation.roles == [NODE_ROLE]):
        of = "a node: add --node" if not is_node else f"{', '.join(invitation.roles)}: leave --node out"
        raise Refused("USAGE", f"the invitation is for {of}")
    path = app.home or new_home(present_folder())
    if path.exists():
        check_folder(resolved(path), is_named=app.home is not None)
    if not (servers := app.server or ",".join(invitation.servers)):
        unknown = "the invitation names no server: add --server nats://HOST:PORT, as whoever sent it knows"
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
