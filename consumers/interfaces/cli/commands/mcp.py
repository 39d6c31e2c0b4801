"""`deed mcp`: tools for agents over MCP, on stdio or HTTP on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.signals import stop_at_signals
from deedbook.consumers.interfaces.mcp import http
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.stdio import stoppable_input
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.interfaces.web.server import bind, serving
from deedbook.consumers.sdk.tool_agents import check_may_sign, roles_of
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home import trust
from deedbook.ledger.home.environment import environment_variable


@click.command("mcp", cls=Command)
@click.option("--http", "is_http", is_flag=True, help="Serve streamable HTTP on 127.0.0.1 instead of stdio.")
@click.option("--port", type=click.IntRange(0, 65535), help="With --http: the port (default: a free one).")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --http: the file of the bearer token (default: mcp.token in the ledger's folder, made if missing).",
)
@click.option("--harness", metavar="NAME", help="If no agent is named, act as the agent with this harness' name.")
@logs
def mcp(app: App, port: int | None, token_file: Path | None, harness: str | None, *, is_http: bool) -> None:
    """Serve eight tools to agents over MCP: resume, record, report, fetch, hand over, search.

    The server signs as the agent of --as, never as a human, an admin or root; without --as its tools only read. It runs
    until its client closes the input, or until SIGINT or SIGTERM. With --http, clients send the token of --token-file
    as a bearer token.
    """
    if not is_http and (port is not None or token_file is not None):
        raise Refused("USAGE", "--port and --token-file need --http")
    app.agent = app.agent or environment_variable("DEEDBOOK_AGENT") or harness
    with _open_tools(app) as ledger:
        if is_http:
            asyncio.run(serve_loopback(app, ledger, port or 0, token_file))
        else:
            serve_stdio(ledger)


def _open_tools(app: App) -> ToolLedger:
    settings, passphrase = app.settings(), None
    if settings.agent is not None and app.passphrase_fd is not None:
        passphrase = app.ask_passphrase(settings.agent)
    ledger = ToolLedger(settings=settings, passphrase=passphrase)
    try:
        if not trust.is_trusted(ledger.settings.home):
            return ledger  # its tools answer NOT_TRUSTED, which tells the caller more than a server that ended
        if ledger.agent is not None:
            check_may_sign(ledger.agent, roles_of(ledger.client, ledger.agent))
        ledger.ask("sessions.list", limit=1)  # opens the views now, before several threads use them
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
