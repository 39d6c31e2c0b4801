"""Unit files start their commands with few rights. The test runs the node's command with other paths."""

from __future__ import annotations

import configparser
import json
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger.client.creation import create_ledger
from deedbook.ledger.home.home import Home

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "deedbook.service"


def read(path: Path) -> configparser.ConfigParser:
    """Read a unit file."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    return unit


@pytest.mark.parametrize("path", sorted(UNIT.parent.glob("*.service")), ids=lambda path: path.name)
def test_services_run_confined_and_write_only_their_own_folder(path: Path) -> None:
    service = read(path)["Service"]
    assert service["User"] in {"deedbook", "nats"}
    assert service["CapabilityBoundingSet"] == ""
    assert (service["ProtectSystem"], service["UMask"], service["StateDirectoryMode"]) == ("strict", "0077", "0700")
    yes = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces", "RestrictSUIDSGID")
    assert {service[name] for name in yes} == {"yes"}
    assert "ReadWritePaths" not in service


def test_only_the_node_is_told_to_stop_as_it_ends_its_server_itself() -> None:
    assert read(UNIT)["Service"]["KillMode"] == "mixed"


def test_the_timer_makes_a_backup_that_is_a_command_of_deedbook(tmp_path: Path) -> None:
    home = tmp_path / "ledger"
    create_ledger(Home(home), origin="deploy.test/unit", map_size=2**26)
    _, *arguments = shlex.split(read(UNIT.with_name("deedbook-backup.service"))["Service"]["ExecStart"])
    (tmp_path / "backups").mkdir()
    deployed = [word.replace("/var/lib/deedbook", str(tmp_path)) for word in arguments]
    assert run(deployed) == 0
    assert [file.match("deedbook-*.tar") for file in (tmp_path / "backups").iterdir()] == [True]


def test_the_units_command_serves_and_stops_by_its_signal(tmp_path: Path) -> None:
    home = tmp_path / "ledger"
    create_ledger(Home(home), origin="deploy.test/unit", map_size=2**26)
    unit = read(UNIT)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/deed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deployed = {"/var/lib/deedbook/ledger": str(home), "4222": str(port)}
    command = [sys.executable, "-m", "deedbook", *(deployed.get(word, word) for word in arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        serving = json.loads(server.stdout.readline())
        server.send_signal(getattr(signal, unit["Service"]["KillSignal"]))
        assert server.wait(30) == 0
    assert serving["data"]["url"] == f"nats://127.0.0.1:{port}"
