"""`deed mcp`: tools for agents over MCP, on stdio or HTTP on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.ledger.errors import Refused
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
    serve = load("tool_server:serve_tools")
    serve(app, is_http=is_http, port=port or 0, token_file=token_file)
