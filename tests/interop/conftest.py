"""The agent in TypeScript: installed and compiled once, then asked one thing a process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from node_packages import install, program

if TYPE_CHECKING:
    from collections.abc import Callable

answer_max_s = 60.0
version_min = 20


@pytest.fixture(scope="session")
def built() -> tuple[str, Path]:
    """Node, and the folder of the compiled agents; without Node the tests are not run, and say so."""
    node = program("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < version_min:
        pytest.skip(f"not run: node {version} is too old, {version_min} or newer is needed")
    compiler = (node, "node_modules/typescript/bin/tsc", "--project", ".")
    return node, install(Path(__file__).parent, "interop", build=compiler) / "built"


@pytest.fixture(scope="session")
def ask(built: tuple[str, Path]) -> Callable[..., Any]:
    """Ask the agent to do one thing."""
    node, place = built

    def ask_node(verb: str, **given: Any) -> Any:
        command = [node, str(place / "agent.js"), verb]
        done = subprocess.run(
            command, input=json.dumps(given).encode(), capture_output=True, timeout=answer_max_s, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    return ask_node
