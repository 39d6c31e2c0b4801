"""nats-server accepts and runs the configurations that `deed deploy nats-config` writes, with and without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import pytest
from served import connect, failure_of, public_key
from serving import CAROL, make_home

from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger.bus import connection
from deedbook.ledger.bus.stream import Generation, log_stream_config
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import CODES, Refused
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.service.server import EmbeddedServer, find_server
from deedbook.ledger.service.server_config import BusUsers, Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.js.api import StreamInfo


DEPLOY: Final = Path(__file__).parents[2] / "deploy"
NAMES: Final = ("r3-a", "r3-b", "r3-c")
LEDGER: Final = "0" * 32
TLS_DEPLOYED: Final = "/etc/deedbook/tls"
HOSTS: Final = ("--host", "a.example.org", "--host", "b.example.org", "--host", "c.example.org")
COMMANDS: Final = {
    "one.conf": ("--tls", TLS_DEPLOYED),
    **{f"{name}.conf": ("--nodes", "3", "--tls", TLS_DEPLOYED, *HOSTS) for name in NAMES},
}
"""The arguments that each file of deploy/nats was written with."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger whose node and agent carol may connect."""
    return make_home(tmp_path_factory.mktemp("nats") / ".deedbook").home


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of servers of this machine, made by the script."""
    folder = tmp_path_factory.mktemp("tls")
    names = [f"{name}=localhost,127.0.0.1,::1" for name in ("one", *NAMES)]
    subprocess.run([DEPLOY / "tls.sh", folder, *names], check=True, capture_output=True)
    return folder


def configure(home: Path, *arguments: str) -> int:
    """Call the command; return its exit code."""
    return run(["deploy", "nats-config", "--home", str(home), *arguments])


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports, each the first of three consecutive ports that are free.

    They are below the range for outgoing connections: otherwise a connection could take one before the server does.
    """
    firsts: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(firsts) < count:
            first = random.randrange(10_000, 32_000)
            with contextlib.suppress(OSError):
                for port in range(first, first + 3):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                firsts.append(first)
    return firsts


@contextlib.contextmanager
def running(*configurations: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a nats-server on each configuration, and kill it at the end by its own pid."""
    with contextlib.ExitStack() as stack:
        servers = []
        for file in configurations:
            server = stack.enter_context(subprocess.Popen([find_server(), "-c", file], stderr=subprocess.DEVNULL))
            stack.callback(server.kill)
            servers.append(server)
        yield servers


async def make_stream(urls: list[str], **options: Any) -> StreamInfo:
    """Make a log stream with a copy on every server; retry until the servers are connected and have a leader."""
    async with asyncio.timeout(100):
        while True:
            with contextlib.suppress(nats.errors.Error, OSError):
                client = await connect(urls, NODE, **options)
                try:
                    configuration = log_stream_config(Generation(LEDGER), len(urls))
                    return await client.jetstream().add_stream(configuration)
                finally:
                    await client.close()
            await asyncio.sleep(0.05)


def test_the_files_of_deploy_are_what_the_command_writes(home: Path, tmp_path: Path) -> None:
    for name, arguments in COMMANDS.items():
        assert configure(home, *arguments, "--out", str(tmp_path)) == 0
        assert (tmp_path / name).read_text() == (DEPLOY / "nats" / name).read_text(), (
            f"deed deploy nats-config {arguments}"
        )


def test_a_configuration_of_somebody_else_is_replaced_only_with_force(home: Path, tmp_path: Path) -> None:
    (tmp_path / "one.conf").write_text("precious")
    assert configure(home, "--out", str(tmp_path)) == CODES["FILE_EXISTS"].exit
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("one.conf", "precious")]
    assert configure(home, "--out", str(tmp_path), "--force") == 0
    assert configure(home, "--out", str(tmp_path)) == 0, "its own files are replaced"


def test_a_server_accepts_the_files_of_deploy(home: Path, certificates: Path, tmp_path: Path) -> None:
    assert configure(home, "--out", str(tmp_path)) == 0
    for name in COMMANDS:
        text = (DEPLOY / "nats" / name).read_text()
        (tmp_path / name).write_text(text.replace(TLS_DEPLOYED, str(certificates)))
        subprocess.run([find_server(), "-t", "-c", tmp_path / name], check=True, capture_output=True)


def test_three_servers_elect_a_leader_and_copy_a_stream_with_certificates_or_beside_two_nodes(
    home: Path, certificates: Path, tmp_path: Path
) -> None:
    async def make_both() -> list[StreamInfo]:
        plain, secured = ([f"{scheme}://127.0.0.1:{port + number}" for number in range(3)] for scheme, port in clients)
        return list(await asyncio.gather(make_stream(plain), make_stream(secured, tls=trusting)))

    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    clients, routes, ports = [], [], iter(free_ports(4))
    for scheme, options in (("nats", []), ("tls", ["--tls", str(certificates)])):
        folder, (port, route) = tmp_path / scheme, (next(ports), next(ports))
        arguments = ["--port", str(port), "--route-port", str(route), "--store", str(folder / "store"), *options]
        assert configure(home, "--nodes", "3", *arguments, "--out", str(folder)) == 0
        clients.append((scheme, port))
        routes.append(route)
    apart = [tmp_path / "nats" / "r3-c.conf", *(tmp_path / "tls" / f"{name}.conf" for name in NAMES)]
    with running(*apart), beside_two_nodes(tmp_path / "nats", clients[0][1], routes[0]):
        for made in asyncio.run(make_both()):
            assert made.cluster is not None
            assert {made.cluster.leader, *(replica.name for replica in made.cluster.replicas or [])} == set(NAMES)
        with socket.create_connection(("127.0.0.1", routes[0] + 2), timeout=30) as stranger:
            assert b'"auth_required":true' in stranger.recv(4096)
        with (
            socket.create_connection(("127.0.0.1", routes[1]), timeout=30) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as stranger,
            pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        ):
            stranger.recv(4096)  # in TLS 1.3, the client learns only at its first read that the server refused it


@contextlib.contextmanager
def beside_two_nodes(folder: Path, port: int, route: int) -> Iterator[None]:
    """Run two of the three servers of a cluster as nodes do: embedded, and configured by the node."""
    (cluster,) = re.findall(r'name: "(deedbook-[0-9a-f]+)"', (folder / "r3-c.conf").read_text())
    password = (folder / "routes.secret").read_text()
    routes = tuple(f"127.0.0.1:{route + number}" for number in range(3))
    with contextlib.ExitStack() as stack:
        for number, name in enumerate(NAMES[:2]):
            member = Member(cluster, name, routes[number], routes, password)
            server = EmbeddedServer(folder / name, cluster.removeprefix("deedbook-"), member=member)
            stack.callback(server.stop)
            server.start(BusUsers(nodes=(public_key(NODE),)), port + number)
        yield


def test_what_agents_call_trusts_the_authority_that_the_environment_names(
    home: Path, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    arguments = ["--port", str(port), "--store", str(tmp_path / "store"), "--tls", str(certificates)]
    assert configure(home, *arguments, "--out", str(tmp_path)) == 0
    settings = Settings(home=home, server=f"tls://localhost:{port}", agent=CAROL)
    monkeypatch.setattr(connection, "request_time_max_s", 0)
    with running(tmp_path / "one.conf"):
        asyncio.run(
            make_stream([settings.server or ""], tls=ssl.create_default_context(cafile=certificates / "ca.pem"))
        )
        assert "SSL_CERT_FILE" in failure_of(lambda: RemoteClient(settings)).message
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        RemoteClient(settings).close()  # the agent may connect


def test_a_cluster_that_anybody_could_join_is_no_cluster() -> None:
    with pytest.raises(Refused, match="admits any server"):
        Member("deedbook", "r3-a", "127.0.0.1:6222", ())


def test_a_password_is_made_once_and_stands_in_no_answer(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert configure(home, "--nodes", "3", "--json", "--out", str(tmp_path)) == 0
        secret = (tmp_path / "routes.secret").read_text()
        assert secret in (tmp_path / "r3-a.conf").read_text()
        assert secret not in capsys.readouterr().out
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodes", "2", "--out", "x"],
        [],
        ["--nodes", "3", "--host", "a", "--host", "b", "--out", "x"],
        ["--host", "a:4222", "--out", "x"],
        ["--host", 'a"b', "--out", "x"],
        ["--port", "0", "--out", "x"],
        ["--server", "nats://127.0.0.1:4222", "--out", "x"],
    ],
)
def test_what_cannot_be_meant_is_refused(
    home: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert configure(home, *arguments, "--json") == 2
    assert json.loads(capsys.readouterr().out)["kind"] == "error"
    assert not list(tmp_path.iterdir())
