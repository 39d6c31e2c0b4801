"""`baton serve`: one node of a ledger, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import click
import structlog

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.node.node import Node
from ledger.errors import Refused


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(1, 65535), help="The port on 127.0.0.1 (default: a free one).")
@click.option("--verbose", is_flag=True, help="Log also what goes well.")
@click.pass_obj
def serve(app: App, port: int | None, *, verbose: bool) -> None:
    """Serve the ledger to agents over NATS: submissions, reads, the log stream, views and briefs.

    Runs until SIGINT or SIGTERM, then finishes what was submitted and stops. With --json the first line is one
    document that says where it listens.
    """
    settings = app.settings()
    if settings.server is not None:
        raise Refused("USAGE", "serve is the server: call it in the ledger's folder, without --server")
    configure_logging(verbose=verbose)
    node = Node(settings, port=port)

    def ready() -> None:
        click.echo(f"ledger {node.client.ledger} at {node.url}")
        sys.stdout.flush()

    asyncio.run(_serve(app, node, ready))


async def _serve(app: App, node: Node, ready: object) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with node:
        assert callable(ready)  # noqa: S101 - given by serve
        app.show("serving", {"ledger": node.client.ledger, "url": node.url}, ready)
        sys.stdout.flush()
        await stop.wait()


def configure_logging(*, verbose: bool) -> None:
    """Log to stderr: lines for a terminal, JSON otherwise."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if verbose else logging.WARNING),
        # Looked up each time: whoever replaces sys.stderr must not leave a closed one behind.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
