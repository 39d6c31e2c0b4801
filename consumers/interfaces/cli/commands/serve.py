"""`deed serve`: runs one node of a ledger."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Command, extra
from deedbook.consumers.interfaces.cli.commands.agents import served_at
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.signals import stop_at_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.node.node import PORT_FILE, Node
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import first_ports
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.membership import read_membership
from deedbook.ledger.replication.state import Timing
from deedbook.ledger.system.files import read_regular

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.node.telemetry import Telemetry

port_file_max_bytes: Final = 16


@click.command(cls=Command)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The port on 127.0.0.1, also of later runs (default: that of the last run; at first 4222 or the next free).",
)
@click.option("--web", metavar="[HOST:]PORT", help="Serve programs over HTTP there (default host: 127.0.0.1).")
@click.option(
    "--tls",
    "tls_files",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="CERTIFICATE KEY",
    help="With --web: serve HTTPS with these PEM files, which may be renewed in place.",
)
@click.option(
    "--otel", "is_traced", is_flag=True, help="Send traces and metrics to the collector that OTEL_… variables name."
)
@click.option("--public-log", "is_public", is_flag=True, help="With --web: serve checkpoint and tiles without a token.")
@click.option("--follow", "only_follows", is_flag=True, help="With [cluster]: only follow, take no submissions.")
@logs
def serve(
    app: App,
    port: int | None,
    web: str | None,
    tls_files: tuple[Path, Path] | None,
    *,
    is_traced: bool,
    is_public: bool,
    only_follows: bool,
) -> None:
    """Serve the ledger to agents over NATS: submissions, reads, the log stream, views and briefs.

    With --web, programs that have a token (`deed token create`) use the ledger over HTTP: queries as JSON, live
    events, receipts, metrics, submissions. With --public-log anybody can read the whole log as C2SP tlog-tiles.

    It listens on 127.0.0.1. Agents on other machines reach it through an SSH tunnel or a TCP proxy (deploy/README.md).

    With [cluster] in config.toml this is one of several nodes, each of which takes submissions and answers reads. A
    folder without a log gets its log from the others.

    Runs until SIGINT or SIGTERM, then finishes what was submitted and stops. With --json the first line is a
    document with its addresses.
    """
    settings = app.settings()
    if web is None and (is_public or tls_files):
        raise Refused("USAGE", f"{'--public-log' if is_public else '--tls'} needs --web")
    if settings.server is not None:
        if read_membership(settings.home) is not None and app.server is None:
            message = (
                f"this folder joined the ledger at {settings.server}: run `deed serve` on that machine, in its folder"
            )
            raise Refused("USAGE", message, server=settings.server)
        raise Refused("USAGE", "serve is the server itself: run it in the ledger's folder, without --server")
    if only_follows and trust.actions_of(settings).cluster is None:
        raise Refused("USAGE", "--follow needs [cluster] in config.toml (see deploy/README.md)")
    last = last_port(Home(settings.home))
    metrics = _telemetry() if is_traced else None
    timing = Timing(writes=not only_follows)
    node = Node(settings, port=port or last, preferred=first_ports, timing=timing, metrics=metrics)
    try:
        asyncio.run(_serve(app, node, web, tls_files, metrics, is_public=is_public))
    except Unavailable as error:
        if error.code == "STORE_IN_USE" and (url := served_at(Home(settings.home))) is not None:
            error.message += f". It serves this ledger at {url}"
        if (taken := error.details.get("port")) is None:
            raise
        raise Unavailable(error.code, f"{error.message}: {_moving(taken, is_last=port is None)}", port=taken) from error


def _moving(port: int, *, is_last: bool) -> str:
    """Return advice if another program uses the port of the server."""
    if not is_last:
        return "choose another port, or leave --port out"
    move = "`deed serve --port N`, and `deed join --address nats://HOST:N` on each machine that joined"
    return f"invitations and joined machines name port {port}. Stop that program, or move: {move}"


def last_port(home: Home) -> int | None:
    """Return the port of the last run, because invitations and settings name it; None if there is none."""
    text = read_regular(home.bus / PORT_FILE, size_max_bytes=port_file_max_bytes) or b""
    return int(text) if re.fullmatch(rb"[0-9]{1,5}\n", text) and 0 < int(text) < 2**16 else None


def _telemetry() -> Telemetry:
    with extra("otel", "serve --otel"):
        from deedbook.consumers.interfaces.node.telemetry import Telemetry  # noqa: PLC0415 - extra `otel`
    return Telemetry()


async def _serve(
    app: App,
    node: Node,
    web: str | None,
    tls_files: tuple[Path, Path] | None,
    telemetry: Telemetry | None,
    *,
    is_public: bool,
) -> None:
    stop = stop_at_signals()
    node.is_stopped = stop.is_set
    keys = app.ledger_home().keys
    before = {path.stem for path in keys.glob("*.key")}
    async with contextlib.AsyncExitStack() as stack:
        with progress("starting", is_shown=not app.as_json):
            await stack.enter_async_context(node)
        if telemetry is not None:
            telemetry.send(node.gauges())
            stack.push_async_callback(asyncio.to_thread, telemetry.close)  # before the log that the gauges read
        ledger, url = node.client.ledger, node.url
        data, also = {"ledger": ledger, "url": url}, ""
        if web is not None:
            data["web"] = await stack.enter_async_context(_publishing(node, web, tls_files, is_public=is_public))
            also = f", to be read at {data['web']}/v1"
        services = sorted({path.stem for path in keys.glob("*.key")} - before)
        new = [f"  registered {' and '.join(services)}: services that work for this server"] if services else []
        app.show("serving", data, [f"ledger {ledger} at {url}{also}", *new])
        sys.stdout.flush()
        await node.run(stop)
    if not app.as_json:
        echo("stopped", err=True)


def _publishing(
    node: Node, where: str, tls_files: tuple[Path, Path] | None, *, is_public: bool
) -> contextlib.AbstractAsyncContextManager[str]:
    with extra("web", "serve --web"):
        from deedbook.consumers.interfaces.web.app import publishing  # noqa: PLC0415 - extra `web`
        from deedbook.consumers.interfaces.web.server import LOOPBACK, Tls, bind  # noqa: PLC0415 - extra `web`
    tls = Tls(*tls_files) if tls_files else None
    listening = bind(where)
    if tls is None and listening.getsockname()[0] != LOOPBACK:
        echo(
            f"{where} is reached from other machines without TLS: add --tls, or put a proxy with TLS before it",
            err=True,
        )
    return publishing(
        node.client,
        listening,
        tls=tls,
        is_public=is_public,
        gauges=node.gauges(),
        metrics=node.metrics,
        submit=node.submit,
    )
