"""The server behind `deed mcp`: opens the ledger for the tools, says who acts, and serves on stdio or HTTP.

Only this module needs the extra `mcp`, so that `deed mcp --help` and a wrong call are answered without it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.signals import stop_at_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.mcp import http
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.stdio import stoppable_input
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.interfaces.web.server import bind, serving
from deedbook.consumers.sdk.tool_agents import check_may_sign, names_of, roles_of
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home
from deedbook.ledger.log.environment import log_not_found


def serve_tools(app: App, *, is_http: bool, port: int, token_file: Path | None) -> None:
    """Serve the tools until the client or a signal ends that. Raises Unavailable: ``NO_LEDGER``; as ``Ledger``."""
    with _open_tools(app) as ledger:
        if is_http:
            asyncio.run(serve_loopback(app, ledger, port, token_file))
        else:
            serve_stdio(ledger)


def _open_tools(app: App) -> ToolLedger:
    settings, passphrase = app.settings(), None
    home = Home(settings.home)
    if settings.server is None and not home.log_file.parent.is_dir():
        raise log_not_found(home.log_file.parent)
    if settings.agent is not None and app.passphrase_fd is not None:
        passphrase = app.ask_passphrase(settings.agent)
    ledger = ToolLedger(settings=settings, passphrase=passphrase)
    try:
        if not trust.is_trusted(ledger.settings.home):
            echo(trust.UNTRUSTED, err=True)
            return ledger  # its tools answer NOT_TRUSTED, which tells the caller more than a server that ended
        if ledger.agent is not None:
            check_may_sign(ledger.agent, roles_of(ledger.client, ledger.agent), names=names_of(ledger.client))
        ledger.ask("sessions.list", limit=1)  # opens the views now, before several threads use them
        only_reads = "the tools only read: to let them sign, start with `deed mcp --as NAME`, or set DEEDBOOK_AGENT"
        if not app.as_json:
            echo(only_reads if ledger.agent is None else f"the tools sign as {ledger.agent}", err=True)
    except DeedbookError:
        ledger.close()
        raise
    return ledger


def serve_stdio(ledger: ToolLedger) -> None:
    """Serve over standard input and output; nothing but the protocol is written there."""
    with stoppable_input():
        asyncio.run(DeedbookServer(ledger).run_stdio_async())


async def serve_loopback(app: App, ledger: ToolLedger, port: int, token_file: Path | None) -> None:
    """Serve over HTTP on this machine; the first line names the address and the file of the token."""
    stop = stop_at_signals()
    trust.demand(ledger.settings.home)  # a token in a stranger's folder is known to the stranger
    path = token_file or ledger.settings.home / http.TOKEN_FILE
    token = http.read_token(path)
    with bind(str(port)) as listening:
        tools = http.application(ledger, listening.getsockname()[1], token)
        async with serving(tools, listening, connections=http.connections_max, has_lifespan=True) as server:
            answer = {"url": f"{server}{http.PATH}", "token_file": str(path.absolute()), "pid": os.getpid()}
            app.show("mcp", answer, f"{answer['url']}\ntoken in {path.absolute()}")
            sys.stdout.flush()
            await stop.wait()
