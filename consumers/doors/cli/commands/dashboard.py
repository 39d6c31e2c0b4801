"""`baton dashboard`: the page from which a person supervises agents, as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.dashboard.address import Address, announced, running
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from consumers.sdk.ledger import Ledger

usual_port: Final = 4280


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help=f"The port on 127.0.0.1 (default: {usual_port}, if free).")
@click.option("--open", "is_opened", is_flag=True, help="Open the link in this machine's browser.")
def dashboard(app: App, port: int | None, *, is_opened: bool) -> None:
    """Show the ledger to the person who supervises its agents: what waits, why, on what evidence; decide there.

    Prints a link that lets one browser in, within 15 minutes; called again beside one that runs, prints a fresh link.
    Decisions are signed with the key of a human (--as, or the only one whose key is here); without it one only reads.
    On another machine: `ssh -L 4280:127.0.0.1:4280 HOST`. Runs until SIGINT or SIGTERM.
    """
    try:
        from consumers.doors.dashboard import app as pages  # noqa: F401, PLC0415 - loads starlette and jinja2
    except ModuleNotFoundError as error:
        message = f"baton dashboard needs the package {error.name}: pip install 'baton-ledger[web]'"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="web") from error
    ledger = app.ledger()
    human, why_not = who_decides(ledger)
    if (other := running(ledger.settings.home)) is not None:
        if other.human != human:
            message = (
                f"a dashboard as {other.human or 'nobody'} runs at {other.url} (process {other.pid}): end it first"
            )
            raise Unavailable("STORE_IN_USE", message, url=other.url, pid=other.pid)
        _show(app, other, why_not, is_opened=is_opened)
        return
    asyncio.run(_serve(app, ledger, _bind(port), human, why_not, is_opened=is_opened))


def who_decides(ledger: Ledger) -> tuple[str | None, str]:
    """Return the human who may decide, else None and why nobody can, in a sentence.

    Raises Refused: ``AGENT_UNKNOWN``.
    """
    humans = {one.name for one in ledger.client.agents() if "human" in one.roles and one.removed_index is None}
    if ledger.agent is None:
        here = [name for name in sorted(humans) if ledger.home.key_file(name).exists()]
        if len(here) == 1:
            return here[0], ""
        return None, "no human's key is here" if not here else f"say with --as who decides: {', '.join(here)}"
    if ledger.agent not in humans:
        if all(one.name != ledger.agent for one in ledger.client.agents()):
            raise Refused("AGENT_UNKNOWN", f"there is no agent {ledger.agent}: `baton agent list`", name=ledger.agent)
        return None, f"{ledger.agent} is no human, and only humans decide here"
    if not ledger.home.key_file(ledger.agent).exists():
        return None, f"the key of {ledger.agent} is not here"
    return ledger.agent, ""


def _bind(port: int | None) -> socket.socket:
    from consumers.doors.web.server import bind  # noqa: PLC0415 - loads uvicorn

    if port is not None:
        return bind(str(port))
    with contextlib.suppress(Unavailable):
        return bind(str(usual_port))
    return bind("0")


async def _serve(
    app: App, ledger: Ledger, listening: socket.socket, human: str | None, why_not: str, *, is_opened: bool
) -> None:
    from consumers.doors.dashboard.app import Dashboard  # noqa: PLC0415 - loads starlette and jinja2
    from consumers.doors.dashboard.guard import Guard  # noqa: PLC0415 - beside it
    from consumers.doors.web.server import serving  # noqa: PLC0415 - loads uvicorn

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    secret, (_, port) = secrets.token_urlsafe(32), listening.getsockname()[:2]
    dashboard_ = Dashboard(ledger, Guard(secret, port), human=human, why_not=why_not)
    async with serving(dashboard_.application(), listening) as url:
        here = Address(url=url, secret=secret, pid=os.getpid(), human=human)
        with announced(ledger.settings.home, here):
            _show(app, here, why_not, is_opened=is_opened)
            await stop.wait()
        dashboard_.stop()


def _show(app: App, here: Address, why_not: str, *, is_opened: bool) -> None:
    from consumers.doors.dashboard.guard import launch_link  # noqa: PLC0415 - hmac, for this verb alone

    link = f"{here.url}/launch?token={launch_link(here.secret, time.time_ns() // 1_000_000)}"
    data = {"link": link, "url": here.url, "pid": here.pid, "human": here.human, "reads_only_because": why_not or None}

    def text() -> None:
        click.echo(link)
        click.echo(f"reading only: {why_not}" if why_not else f"decisions are signed as {here.human}", err=True)

    app.show("dashboard", data, text)
    sys.stdout.flush()
    if is_opened:
        import webbrowser  # noqa: PLC0415 - few ask for it

        # A browser in the terminal would hold up the server it is to show.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
