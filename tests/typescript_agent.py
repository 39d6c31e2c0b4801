"""The agent in TypeScript (``interop``): installed and compiled once, then started for each command."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from node_packages import install, program

answer_max_s: Final = 60.0
version_min: Final = 20


@cache
def built() -> tuple[str, Path]:
    """Return the path of ``node`` and the folder of the compiled agents; skip the test if node is not installed."""
    node = program("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < version_min:
        pytest.skip(f"not run: node {version} is too old, {version_min} or newer is needed")
    compiler = (node, "node_modules/typescript/bin/tsc", "--project", ".")
    return node, install(Path(__file__).with_name("interop"), "interop", build=compiler) / "built"


def ask_agent(verb: str, **given: Any) -> Any:
    """Give the agent a command, and return its answer."""
    node, place = built()
    command = [node, str(place / "agent.js"), verb]
    done = subprocess.run(
        command, input=json.dumps(given).encode(), capture_output=True, timeout=answer_max_s, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
