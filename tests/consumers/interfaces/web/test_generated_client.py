"""A client that another program generates from the served description reads a ledger by attributes, under mypy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults import is_long_run
from test_web_tiles import web_of

from deedbook.consumers.interfaces.web.api import BYTES
from deedbook.consumers.interfaces.web.writes import MSGPACK

if TYPE_CHECKING:
    from web_reading import Reading

    from deedbook.consumers.sdk.ledger import Ledger

PROGRAM = Path(__file__).with_name("client_program.py")


@pytest.mark.skipif(not is_long_run, reason="it generates 700 modules and checks their types")
def test_a_generated_client_reads_by_attributes(reading: Reading, python: Ledger, tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*command: str, status: int = 0) -> str:
        ended = subprocess.run(
            [Path(sys.executable).parent / command[0], *command[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr * bool(status)

    with web_of(python.client) as url:  # type: ignore[arg-type] - a folder's client
        # The generator does not know MessagePack; for a client it is bytes.
        (tmp_path / "config.yaml").write_text(f"content_type_overrides: {{{MSGPACK}: {BYTES}}}", "utf-8")
        options = ("--meta", "none", "--output-path", "client", "--config", "config.yaml")
        described = ("--url", f"{url}/v1/openapi.json", *options)
        assert "warning" not in run("openapi-python-client", "generate", *described, "--fail-on-warning").lower()
        program, wrong = PROGRAM.read_text("utf-8"), tmp_path / "wrong.py"
        (tmp_path / "program.py").write_text(program, "utf-8")
        wrong.write_text(program.replace("handoff.title", "handoff.titel").replace("limit=2", "limt=2"), "utf-8")
        checked = ("mypy", "--strict", "--follow-imports=silent", "--config-file=", "program.py")
        run(*checked)
        refused = run(*checked[:-1], "wrong.py", status=1)
        assert 'has no attribute "titel"' in refused
        assert 'Unexpected keyword argument "limt"' in refused
        answers = json.loads(run("python", "program.py", url, reading.token, "r1", "s1"))
    shown = python.ask("reasoning.show", id="r1")
    assert answers == {
        "titles": [handoff["title"] for handoff in python.ask("handoffs.list", limit=500)["items"]],
        "steps": [step["content"] for step in shown["memory"]["steps"]],
        "findings": [finding["finding"] for finding in python.ask("sessions.show", id="s1")["findings"]],
        "created": [event.data.title for event in python.events("handoff.created")],
        "refusal": "NOT_FOUND",
    }
    assert all(answers.values())
