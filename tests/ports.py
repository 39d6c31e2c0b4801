"""Ports for the servers of tests: each server gets its own, because many tests start servers at once."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def free_port() -> int:
    """Return a port that no program uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def port_option(home: Path, *options: str) -> list[str]:
    """Return the option that gives the first `deed serve` of a ledger a port that no other test uses.

    Later starts use the same port. So the result is empty after the first start, and if ``options`` name a port.
    """
    is_chosen = "--port" in options or (home / "bus" / "port").exists()
    return [] if is_chosen else ["--port", str(free_port())]
