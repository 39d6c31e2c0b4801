"""The modules that everyday verbs import: starting takes most of a verb's time, and imports most of the start.

The counted modules are those outside Python's standard library; ``COSTLY`` names the expensive ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from calling import environment

if TYPE_CHECKING:
    from calling import Deed

KEPT: Final = Path(__file__).with_name("imports")
VERBS: Final = ("--help", "handoff graph", "handoff list", "log")
COSTLY: Final = (
    "asyncio",
    "dataclasses",
    "email",
    "http",
    "importlib.metadata",
    "inspect",
    "logging",
    "multiprocessing",
    "platform",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "xml",
)
PROGRAM: Final = f"""
import sys
before = set(sys.modules)
from deedbook.consumers.interfaces.cli.program import run
try:
    run(sys.argv[1:])
finally:
    own = {{name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names}}
    print(*sorted((own | {set(COSTLY)!r} & set(sys.modules)) - before), sep="\\n", file=sys.stderr)
"""


@pytest.mark.parametrize("verb", VERBS)
def test_everyday_verb_imports_what_is_kept_and_nothing_more(alone: Deed, verb: str, tmp_path: Path) -> None:
    alone("log")  # build the views first, because the second run is the measured one
    command = [sys.executable, "-c", PROGRAM, "--home", str(alone.home), *verb.split()]
    # Measuring coverage would itself load modules into the fresh process.
    calm = {name: value for name, value in environment().items() if not name.startswith("COVERAGE")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=calm, timeout=60)
    assert done.returncode == 0, done.stderr
    kept = KEPT / f"{verb.strip('-').replace(' ', '-')}.txt"
    (tmp_path / kept.name).write_text(done.stderr)
    again = f"if each of these is needed, copy {tmp_path / kept.name} to {kept}"
    assert done.stderr.split() == (kept.read_text().split() if kept.exists() else []), again


@pytest.mark.parametrize(
    "verb", ["decisions", "handoff show h1", "handoff why h1", "next", "questions", "report query", "report resume"]
)
def test_verb_that_only_reads_imports_no_gate_and_no_library_of_servers(alone: Deed, verb: str) -> None:
    """Such libraries, and those for a terminal's colours, were a third of the imports of `deed next`."""
    alone("agent", "add", "a", "--unprotected")
    alone("agent", "add", "r", "--role", "reviewer", "--unprotected")
    alone("handoff", "create", "h1", "--as", "a", "--to", "a", "--reviewer", "r", "--title", "x")
    alone(*verb.split())  # build the views first
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--home", str(alone.home), *verb.split()],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    writing = {
        f"deedbook.ledger.{name}" for name in ("admission.gate", "client.author", "home.home", "secrets.scanner")
    }
    assert not {"asyncio", "httpx", "rich", "ssl", "structlog", "subprocess", *writing} & {*done.stderr.split()}


def test_hook_before_an_edit_imports_no_briefs_and_no_reports() -> None:
    program = "import sys, deedbook.consumers.interfaces.hooks.responses; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    rare = {f"deedbook.consumers.{name}" for name in ("interfaces.hooks.prime", "sessions.report", "sessions.resume")}
    assert not rare & {*done.stdout.split()}
