"""`deed dashboard`: the page from which a person supervises agents, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from typing import Final

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.signals import stop_at_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.dashboard.address import Address, announced, running
from deedbook.consumers.interfaces.dashboard.app import Dashboard
from deedbook.consumers.interfaces.dashboard.guard import Guard, launch_link
from deedbook.consumers.interfaces.dashboard.signer import why_unusable
from deedbook.consumers.interfaces.web.server import bind, serving
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.home import trust

usual_port: Final = 4280


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help=f"The port on 127.0.0.1 (default: {usual_port}, if free).")
@click.option("--open", "is_opened", is_flag=True, help="Open the link in this machine's browser.")
def dashboard(app: App, port: int | None, *, is_opened: bool) -> None:
    """Serve a page on which a person supervises the agents, reads evidence and decides.

    Prints a link that admits one browser within 15 minutes. If it is already running, the command prints a new link.
    Decisions are signed with a human's key (--as, or the only one here). Without such a key the page is read-only. To
    open the page from another machine, run `ssh -L 4280:127.0.0.1:4280 HOST` there. Runs until SIGINT or SIGTERM.
    """
    ledger = app.ledger()
    # Its address is believed by other verbs, and a key is opened beside it: not in a folder that a stranger made.
    trust.demand(ledger.settings.home, ledger=ledger.client.ledger)
    human, why_not = who_decides(ledger)
    if (other := running(ledger.settings.home)) is not None:
        if other.human != human:
            message = f"one as {other.human or 'nobody'} runs at {other.url} (process {other.pid}): end it first"
            raise Unavailable("STORE_IN_USE", message, url=other.url, pid=other.pid)
        _show(app, other, why_not, is_opened=is_opened)
        return
    try:
        listening = bind(str(usual_port if port is None else port))
    except Unavailable:
        if port is not None:
            raise
        listening = bind("0")
    with listening:
        asyncio.run(_serve(app, listening, human, why_not, is_opened=is_opened))


def who_decides(ledger: Ledger) -> tuple[str | None, str]:
    """Return the human who may decide, else None and why nobody can, in words."""
    humans = {agent.name for agent in ledger.client.agents() if "human" in agent.roles and agent.removed_index is None}
    here = sorted(name for name in humans if ledger.home.key_file(name).exists())
    name = ledger.agent or (here[0] if len(here) == 1 else None)
    if name is None:
        return None, f"say with --as who decides: {', '.join(here)}" if here else "no human's key is here"
    if name in here:
        return name, ""
    return None, f"the key of {name} is not here" if name in humans else f"{name} is no human: only humans decide here"


async def _serve(app: App, listening: socket.socket, human: str | None, why_not: str, *, is_opened: bool) -> None:
    stop, ledger = stop_at_signals(), app.ledger()
    guard = Guard(secrets.token_urlsafe(32), listening.getsockname()[1])
    pages = Dashboard(ledger, guard, human=human, why_not=why_not)
    async with serving(pages.application(), listening) as url:
        here = Address(url=url, secret=guard.secret, pid=os.getpid(), human=human)
        with announced(ledger.settings.home, here):
            _show(app, here, why_not, is_opened=is_opened)
            await stop.wait()
        pages.close()


def _show(app: App, here: Address, why_not: str, *, is_opened: bool) -> None:
    link = f"{here.url}/launch?token={launch_link(here.secret, time.time_ns() // 1_000_000)}"
    data = {"link": link, "url": here.url, "pid": here.pid, "human": here.human, "reads_only_because": why_not or None}
    app.show("dashboard", data, link)
    if not app.as_json:
        unusable = why_unusable(app.ledger(), here.human) if here.human else ""
        note = f"you cannot sign in the browser: {unusable}" if unusable else f"decisions are signed as {here.human}"
        echo(f"reading only: {why_not}" if why_not else note, err=True)
    sys.stdout.flush()
    if is_opened:
        # A browser in the terminal would hold up the server it is to show.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
