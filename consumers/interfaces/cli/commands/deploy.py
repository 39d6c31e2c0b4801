"""`deed deploy nats-config`: the configuration of nats-servers that run beside `deed serve`, not inside it.

`deed serve` configures and runs its own server, and needs none of these files. They have two uses: to read how such a
server is configured, and to run a server without a ledger. Two machines with nodes need a third server, or the failure
of one leaves no majority. The same code configures the embedded server.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.named_file import check_free, force_option
from deedbook.consumers.interfaces.node.users import current_users
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import usual_port
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.log.keys import SHARED_KEY
from deedbook.ledger.service.server_config import ACCOUNTS_FILE, WRITTEN_BY, Member, Tls, render_accounts, render_apart
from deedbook.ledger.system.files import as_unavailable, open_regular, read_regular, write_whole

LOOPBACK: Final = "127.0.0.1"
PASSWORD_FILE: Final = "routes.secret"  # noqa: S105 - the name of the file
_NAMES: Final = {1: ("one",), 3: ("r3-a", "r3-b", "r3-c")}
_usual_route_port: Final = 6222
_secret_bytes: Final = 32
_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]"


@click.group(cls=Group)
def deploy() -> None:
    """Write configuration files for separate nats-servers."""


@deploy.command("nats-config")
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", show_default=True, help="How many servers.")
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="The host of each server (default: 127.0.0.1, with consecutive ports).",
)
@click.option(
    "--port", type=click.IntRange(1, 65533), default=usual_port, show_default=True, help="The port for clients."
)
@click.option(
    "--route-port",
    type=click.IntRange(1, 65533),
    default=_usual_route_port,
    show_default=True,
    help="The port for the other servers.",
)
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/nats"),
    show_default=True,
    help="The folder for the streams; each server has a subfolder.",
)
@click.option(
    "--tls",
    "certificates",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder with ca.pem, NAME.pem and NAME.key (deploy/tls.sh makes them).",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Write the files there.",
)
@force_option
def nats_config(
    app: App,
    *,
    nodes: str,
    hosts: tuple[str, ...],
    port: int,
    route_port: int,
    store: Path,
    certificates: Path | None,
    out: Path,
    force: bool,
) -> None:
    """Write the configuration of one nats-server, or of three that copy every stream, for this ledger's agents.

    Writes one file for each server, and accounts.conf with the agents that may connect. When agents are added or
    removed, run this again and reload the servers (`nats-server --signal reload`). Three servers authenticate each
    other with certificates (--tls), or with a password that is generated once in routes.secret beside the files. A file
    that this command did not write is replaced only with --force.
    """
    names = _NAMES[int(nodes)]
    hosts = hosts or (LOOPBACK,) * len(names)
    if wrong := [host for host in hosts if re.fullmatch(_HOST, host) is None]:
        raise Refused("USAGE", f"{wrong[0]!r} is not a host's name or address: give ports with --port and --route-port")
    if len(hosts) != len(names):
        raise Refused("USAGE", f"give --host once for each server: {len(names)} times, not {len(hosts)}")

    client = app.local_client()
    with client.log.snapshot() as snapshot:
        shared = snapshot.record(SHARED_KEY)
    node = "" if shared is None else shared.node  # agents of such a server submit to this node
    users = render_accounts(client.ledger, current_users(client, app.ledger_home()), node)
    files = {ACCOUNTS_FILE: f"{WRITTEN_BY}\n{users}"}
    with as_unavailable(out):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    password = _route_password(out / PASSWORD_FILE) if len(names) > 1 and certificates is None else None
    routes = tuple(f"{host}:{number}" for host, number in _addresses(hosts, route_port))
    for name, (host, own_port), route in zip(names, _addresses(hosts, port), routes, strict=True):
        pem = [] if certificates is None else [certificates / of for of in (f"{name}.pem", f"{name}.key", "ca.pem")]
        tls = Tls(*pem) if pem else None
        # The cluster has the name that the nodes' own servers use, so that these may join it.
        member = Member(f"deedbook-{client.ledger}", name, route, routes, password, tls) if len(names) > 1 else None
        files[f"{name}.conf"] = render_apart(store=store / name, host=host, port=own_port, tls=tls, member=member)
    for name in files:
        check_free(out / name, force=force or _is_written_here(out / name))
    for name, content in files.items():
        write_whole(out / name, content.encode())
    data = {"folder": str(out.absolute()), "files": list(files)}
    app.show("nats_config", data, [str(out / name) for name in files])


def _is_written_here(file: Path) -> bool:
    try:
        with open_regular(file) as descriptor:
            return os.read(descriptor, len(WRITTEN_BY)) == WRITTEN_BY.encode()
    except (OSError, Refused):
        return False  # `check_free` gives the reason


def _addresses(hosts: Sequence[str], port: int) -> list[tuple[str, int]]:
    """Return host and port of each server: the second on one host has the next port."""
    return [(host, port + hosts[:number].count(host)) for number, host in enumerate(hosts)]


def _route_password(file: Path) -> str:
    if (stored := read_regular(file, size_max_bytes=config_size_max_bytes, is_own=True)) is None:
        stored = secrets.token_urlsafe(_secret_bytes).encode()
        write_whole(file, stored)
    return stored.decode().strip()
