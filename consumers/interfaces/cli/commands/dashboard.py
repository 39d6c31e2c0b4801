"""`deed dashboard`: the page from which people supervise agents, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from typing import Final

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.signals import stop_at_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.web_option import running_dashboard
from deedbook.consumers.interfaces.dashboard.account import account_of, connection_of, humans_here, why_not_connected
from deedbook.consumers.interfaces.dashboard.address import OPENING_FILE, Address, announced, running
from deedbook.consumers.interfaces.dashboard.app import Dashboard
from deedbook.consumers.interfaces.dashboard.guard import Guard, launch_link, parse_origin
from deedbook.consumers.interfaces.dashboard.page import templates
from deedbook.consumers.interfaces.dashboard.signer import check_usable, hide_memory, why_unusable
from deedbook.consumers.interfaces.web.server import bind, serving
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import Corrupted, Refused, Unavailable, did_you_mean, near
from deedbook.ledger.home import trust
from deedbook.ledger.system.files import write_whole

usual_port: Final = 4280


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help=f"The port on 127.0.0.1 (default: {usual_port}, if free).")
@click.option("--url", metavar="https://HOST", help="Serve a team behind a proxy with TLS that others reach there.")
@click.option("--link", "is_link", is_flag=True, help="Only print a link to the dashboard that runs; start none.")
@click.option("--open", "is_opened", is_flag=True, help="Open the link in this machine's browser.")
@logs
def dashboard(app: App, port: int | None, url: str | None, *, is_link: bool, is_opened: bool) -> None:
    """Serve a page on which people supervise the agents, read evidence and decide.

    Prints a link that logs one browser in, once, within 15 minutes, as the human that --as names (default: the only one
    whose key is here). If a dashboard is already running, the command prints a link to it. Each person logs in with a
    link of their own, sees what waits for them, and signs only with the passphrase of their own key. A login ends after
    24 hours, and when the ledger ends the human's key. Without a human's key, the page is read-only.

    The page listens only on 127.0.0.1. To open it from another machine, run `ssh -L 4280:127.0.0.1:4280 HOST` there.
    For a team, put a proxy with TLS before it on the same machine and name its address with --url. Plain HTTP on a
    network is refused, because others could read passphrases. A team's page needs keys that are sealed with a
    passphrase: the user who runs this command, and root of this machine, can read the key files and try passphrases on
    them. If you trust neither, run a dashboard with your key on your own machine (--server).

    Runs until SIGINT or SIGTERM.
    """
    ledger = app.ledger()
    # Other verbs trust the address in this folder, and a key is opened beside it. So a stranger's folder is refused.
    trust.demand(ledger.settings.home, ledger=ledger.client.ledger)
    origin, name = None if url is None else parse_origin(url), name_of_link(ledger)
    if name is None and (is_link or is_opened):
        raise Refused("USAGE", f"say with --as whose link: {', '.join(humans_here(ledger))}")
    _check_known(ledger)
    if (here := running_dashboard(app) if is_link else running(ledger.settings.home)) is not None:
        _check_port(here, port)
        if not is_link and not app.as_json:
            echo(f"a dashboard is already running here (process {here.pid}): this is a link to it", err=True)
        _show(app, here, name, is_opened=is_opened)
        return
    for human in humans_here(ledger) if origin else ():
        check_usable(ledger, human)
    try:
        listening = bind(str(usual_port if port is None else port))
    except Unavailable as error:
        if port is not None or origin is not None:
            error.message += ": name another --port, or 0 for any free one"
            raise
        listening = bind("0")
    with listening:
        asyncio.run(_serve(app, listening, origin, name, is_opened=is_opened))


def _check_known(ledger: Ledger) -> None:
    """Refuse a link for an unknown agent; a ledger that fails a check is still shown. Raises: ``AGENT_UNKNOWN``."""
    with suppress(Corrupted):
        names = {agent.name for agent in ledger.client.agents()}
        if ledger.agent is not None and ledger.agent not in names:
            alike = near(ledger.agent, names)
            message = f"there is no agent {ledger.agent}{did_you_mean(alike) or ': `deed agent list` shows them'}"
            raise Refused("AGENT_UNKNOWN", message, name=ledger.agent, near=alike)


def _check_port(here: Address, port: int | None) -> None:
    """Refuse another port than that of the running dashboard. Raises Unavailable: ``STORE_IN_USE``."""
    if port not in (None, 0) and not here.url.endswith(f":{port}"):
        stop = f"`kill {here.pid}` stops it, then --port {port} is possible"
        message = f"a dashboard is already running at {here.url}: `deed dashboard --link` prints a link to it; {stop}"
        raise Unavailable("STORE_IN_USE", message, port=port)


def name_of_link(ledger: Ledger) -> str | None:
    """Return the agent that a link logs in: that of --as, else the only human whose key is here.

    It is empty if no human's key is here, and None if there are several.
    """
    here = humans_here(ledger)
    return ledger.agent or (None if len(here) > 1 else "".join(here))


async def _serve(app: App, listening: socket.socket, origin: str | None, name: str | None, *, is_opened: bool) -> None:
    stop, ledger = stop_at_signals(), app.ledger()
    hide_memory()
    guard = Guard(secrets.token_urlsafe(32), listening.getsockname()[1], origin)
    pages = Dashboard(ledger, guard)
    async with serving(pages.application(), listening) as url:
        connected_as = connection_of(ledger)
        here = Address(url=origin or url, secret=guard.secret, pid=os.getpid(), connected_as=connected_as)
        with announced(ledger.settings.home, here):
            _show(app, here, name, is_opened=is_opened)
            await stop.wait()
        pages.close()


def _show(app: App, here: Address, name: str | None, *, is_opened: bool) -> None:
    """Print a link that logs in as ``name``; without a name the address, and how each person gets a link."""
    ledger, link, human, why_not = app.ledger(), None, None, None
    if name is None:
        command = app.here("deed dashboard --link --as NAME")
        note = f"each person logs in with a link of their own: `{command}` ({', '.join(humans_here(ledger))})"
    else:
        link = f"{here.url}/launch?token={launch_link(here.secret, name, time.time_ns() // 1_000_000)}"
        account = account_of(ledger, name)
        why_not = account.why_not or why_not_connected(name, here.connected_as) or None
        human = None if why_not else name
        unusable = why_unusable(ledger, human) if human else ""
        note = f"you cannot sign in the browser: {unusable}" if unusable else f"decisions are signed as {human}"
        note = f"reading only: {why_not}" if why_not else note
    data = {"link": link, "url": here.url, "pid": here.pid, "human": human, "reads_only_because": why_not}
    app.show("dashboard", data, link or here.url)
    if not app.as_json:
        echo(note, err=True)
    sys.stdout.flush()
    if link and is_opened:
        # All users can see the arguments of a process. So the browser gets the link from a file that only its owner can
        # read.
        path = ledger.settings.home / OPENING_FILE
        write_whole(path, templates().get_template("open.html").render(link=link).encode())
        # A browser in the terminal would block the server that it should show.
        threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()
