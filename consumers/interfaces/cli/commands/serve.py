"""`deed serve`: one node of a ledger. `deed mcp`: its tools, over stdio or HTTP on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deedbook.consumers.interfaces.cli.app import App, Command, extra
from deedbook.consumers.interfaces.cli.logs import configure_logging
from deedbook.consumers.interfaces.node.node import Node
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import usual_port
from deedbook.ledger.home.environment import environment_variable
from deedbook.ledger.replication.lease import Timing

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
    from deedbook.consumers.interfaces.node.node import Node


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(1, 65535), help="The port on 127.0.0.1 (default: 4222, if it is free).")
@click.option("--web", metavar="[HOST:]PORT", help="Let programs read over HTTP there (default host: 127.0.0.1).")
@click.option("--public-log", "is_public", is_flag=True, help="With --web: checkpoint and tiles need no token.")
@click.option("--follow", "only_follows", is_flag=True, help="Of several nodes ([cluster]): follow, and never lead.")
@click.option("--verbose", is_flag=True, help="Log also what goes well.")
def serve(app: App, port: int | None, web: str | None, *, is_public: bool, only_follows: bool, verbose: bool) -> None:
    """Serve the ledger to agents over NATS: submissions, reads, the log stream, views and briefs.

    With --web whoever has a token (`deed token create`) reads the ledger over HTTP: every query as JSON, events as
    they come, receipts, metrics. With --public-log anybody there reads the whole log, as C2SP tlog-tiles.

    With [cluster] in config.toml it is one of several nodes: one leads, the others follow and answer reads, and one of
    them leads when it ends. A folder without a log gets its log from them.

    Runs until SIGINT or SIGTERM, then finishes what was submitted and stops. With --json the first line is one
    document that says where it listens.
    """
    settings = app.settings()
    if is_public and web is None:
        raise Refused("USAGE", "--public-log goes with --web: without it nothing is published")
    if settings.server is not None:
        raise Refused("USAGE", "serve is the server: call it in the ledger's folder, without --server")

    configure_logging(verbose=verbose)
    if only_follows and trust.actions_of(settings).cluster is None:
        raise Refused("USAGE", "--follow is for one of several nodes: config.toml has no [cluster] (deploy/README.md)")
    node = Node(settings, port=port, preferred=usual_port, timing=Timing(stands=not only_follows))
    asyncio.run(_serve(app, node, web, is_public=is_public))


def stop_at_signals() -> asyncio.Event:
    """Return what SIGINT and SIGTERM set from now on, in the event loop that runs."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _serve(app: App, node: Node, web: str | None, *, is_public: bool) -> None:
    stop = stop_at_signals()
    node.is_stopped = stop.is_set
    async with node, contextlib.AsyncExitStack() as stack:
        ledger, url = node.client.ledger, node.url
        elsewhere = f" (port {usual_port} is taken: choose one with --port)" if node.is_elsewhere else ""
        data, also = {"ledger": ledger, "url": url}, ""
        if web is not None:
            data["web"] = await stack.enter_async_context(_publishing(node, web, is_public=is_public))
            also = f", to be read at {data['web']}/v1"
        app.show("serving", data, f"ledger {ledger} at {url}{elsewhere}{also}")
        sys.stdout.flush()
        await node.run(stop)


def _publishing(node: Node, where: str, *, is_public: bool) -> contextlib.AbstractAsyncContextManager[str]:
    with extra("web", "serve --web"):
        from deedbook.consumers.interfaces.web.app import publishing
        from deedbook.consumers.interfaces.web.server import LOOPBACK, bind
    listening = bind(where)
    if listening.getsockname()[0] != LOOPBACK:
        click.echo(f"{where} is reached from other machines without TLS: put a proxy with TLS before it", err=True)
    return publishing(node.client, listening, is_public=is_public, gauges=node.gauges(), metrics=node.metrics)


@click.command("mcp", cls=Command)
@click.option("--http", "is_http", is_flag=True, help="Serve streamable HTTP on 127.0.0.1 instead of stdio.")
@click.option("--port", type=click.IntRange(0, 65535), help="With --http: the port (default: a free one).")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --http: the file of the bearer token (default: mcp.token in the ledger's folder, made if missing).",
)
@click.option("--harness", metavar="NAME", help="Where no agent is named: act as the one called like this harness.")
@click.option("--verbose", is_flag=True, help="Log every call that was refused, too.")
def mcp(
    app: App, port: int | None, token_file: Path | None, harness: str | None, *, is_http: bool, verbose: bool
) -> None:
    """Serve eight tools to agents over MCP: resume, record, report, fetch, hand over, search.

    The server signs as the agent of --as, never as a human, an admin or root; without --as its tools only read. It runs
    until its client closes the input, or until SIGINT or SIGTERM. With --http clients send the token as a bearer.
    """
    if not is_http and (port is not None or token_file is not None):
        raise Refused("USAGE", "--port and --token-file go with --http: over stdio there is neither")
    app.agent = app.agent or environment_variable("DEEDBOOK_AGENT") or harness
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with _open_tools(app) as ledger:
        if is_http:
            asyncio.run(serve_loopback(app, ledger, port or 0, token_file))
        else:
            serve_stdio(ledger)


def _open_tools(app: App) -> ToolLedger:
    with extra("mcp", "deed mcp"):
        from deedbook.consumers.interfaces.mcp import server  # noqa: F401 - loads the SDK, a second that no other verb pays
    from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger, check_may_sign, roles_of

    settings, passphrase = app.settings(), None
    if settings.agent is not None and app.passphrase_fd is not None:
        passphrase = app.ask_passphrase(settings.agent)
    ledger = ToolLedger(settings=settings, passphrase=passphrase)
    try:
        if not trust.is_trusted(ledger.settings.home):
            return ledger  # its tools answer NOT_TRUSTED, which says more to whoever calls one than a server that ended
        if ledger.agent is not None:
            check_may_sign(ledger.agent, roles_of(ledger.client, ledger.agent))
        ledger.ask("sessions.list", limit=1)  # opens the views now, before threads ask for them
    except DeedbookError:
        ledger.close()
        raise
    return ledger


def serve_stdio(ledger: ToolLedger) -> None:
    """Serve over standard input and output; nothing but the protocol is written there."""
    # Both of the extra ``mcp``.
    from deedbook.consumers.interfaces.mcp.server import DeedbookServer
    from deedbook.consumers.interfaces.mcp.stdio import stoppable_input

    with stoppable_input():
        asyncio.run(DeedbookServer(ledger).run_stdio_async())


async def serve_loopback(app: App, ledger: ToolLedger, port: int, token_file: Path | None) -> None:
    """Serve over HTTP on this machine; the first line says where, and where the token is."""
    # Both of the extra ``mcp``.
    from deedbook.consumers.interfaces.mcp import http
    from deedbook.consumers.interfaces.web.server import bind, serving

    stop = stop_at_signals()
    trust.demand(ledger.settings.home)  # also a token that a stranger left there is the stranger's
    path = token_file or ledger.settings.home / http.TOKEN_FILE
    token = http.read_token(path)
    with bind(str(port)) as listening:
        tools = http.application(ledger, listening.getsockname()[1], token)
        async with serving(tools, listening, connections=http.connections_max, has_lifespan=True) as server:
            answer = {"url": f"{server}{http.PATH}", "token_file": str(path.absolute()), "pid": os.getpid()}
            app.show("mcp", answer, f"{answer['url']}\ntoken in {path.absolute()}")
            sys.stdout.flush()
            await stop.wait()
