"""The unit file starts what it says: its command is run here, with other paths than the deployed ones."""

from __future__ import annotations

import configparser
import json
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ledger.home import Home, create_ledger

UNIT = Path(__file__).parents[2] / "deploy" / "baton.service"


def test_the_units_command_serves_and_stops_by_its_signal(tmp_path: Path) -> None:
    home = tmp_path / "ledger"
    create_ledger(Home(home), origin="deploy.test/unit", map_size=2**26)
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/baton")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deployed = {"/var/lib/baton/ledger": str(home), "4222": str(port)}
    command = [sys.executable, "-m", "consumers.doors.cli", *(deployed.get(one, one) for one in arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        serving = json.loads(server.stdout.readline())
        server.send_signal(getattr(signal, unit["Service"]["KillSignal"]))
        assert server.wait(30) == 0
    assert serving["data"]["url"] == f"nats://127.0.0.1:{port}"
