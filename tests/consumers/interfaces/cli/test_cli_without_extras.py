"""An installation without extras: everything on one machine works, and a verb that needs an extra names it.

In place of such an installation, a process runs that cannot import the packages of any extra.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from deedbook.consumers.interfaces.cli import commands
from deedbook.consumers.interfaces.cli.verbs import EXTRAS

NEED_AN_EXTRA: Final = {"dashboard": "web", "join": "bus", "recover": "bus", "serve": "bus"}
RUN: Final = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(EXTRAS)!r}))
from deedbook.consumers.interfaces.cli.program import run
sys.exit(run(sys.argv[1:]))
"""
IMPORT: Final = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({sorted(EXTRAS)!r}))
for name in sys.argv[1:]:
    try:
        importlib.import_module("deedbook.consumers.interfaces.cli.commands." + name)
    except ModuleNotFoundError as error:
        print(name, error.name)
"""


@pytest.fixture
def deed(tmp_path: Path) -> Deed:
    return Deed(tmp_path)


class Deed:
    """Somebody's shell, with an installation without extras."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        self._environment |= {"HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "state")}
        (folder / "home" / ".claude").mkdir(parents=True)
        (folder / "project").mkdir()

    def __call__(self, *words: str, code: int = 0, given: str = "") -> str:
        command = [sys.executable, "-c", RUN, *words]
        done = subprocess.run(
            command,
            cwd=self.folder / "project",
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr


def test_each_verb_loads_but_those_that_are_about_an_extra() -> None:
    names = sorted(path.stem for path in Path(commands.__path__[0]).glob("[a-z]*.py"))
    done = subprocess.run([sys.executable, "-c", IMPORT, *names], capture_output=True, text=True, check=True)
    missing = dict(line.split() for line in done.stdout.splitlines())
    assert {name: EXTRAS[package.partition(".")[0]] for name, package in missing.items()} == NEED_AN_EXTRA


def test_first_hour_needs_no_extra(deed: Deed) -> None:
    deed("init", "--yes", "--name", "alex", "--unprotected")
    deed("agent", "add", "kuro", "--role", "agent")
    made = "--as", "kuro", "--to", "claude-code", "--reviewer", "alex", "--title", "Event bus", "--criterion", "passes"
    deed("handoff", "create", "event-bus", *made)
    version = deed("handoff", "show", "event-bus", "--version").strip()
    deed("handoff", "approve", "event-bus", "--as", "alex", "--version", version)
    deed("handoff", "claim", "event-bus", "--as", "claude-code")
    started = json.dumps(
        {"session_id": "1", "cwd": str(deed.folder / "project"), "hook_event_name": "SessionStart", "source": "startup"}
    )
    assert "event-bus" in deed("hook", "claude-code", "--as", "claude-code", given=started)
    for words in (
        ["next"],
        ["log"],
        ["verify"],
        ["doctor"],
        ["key", "list"],
        ["spool", "list"],
        ["setup", "codex", "--as", "kuro"],
    ):
        deed(*words)
    deed("backup", "../copy.deed")
    assert "INVALID" not in deed("verify", "--bundle", "../copy.deed")
    deed("restore", "../copy.deed", "--home", "../elsewhere")
    deed("uninstall")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["demo"], "server"),
        (["serve"], "bus"),
        (["dashboard"], "web"),
        (["mcp"], "mcp"),
        (["why", "0", "--prov", "json"], "prov"),
    ],
)
def test_what_needs_an_extra_names_it(deed: Deed, words: list[str], extra: str) -> None:
    deed("init", "--trial")
    assert f"pip install 'deedbook[{extra}]'" in deed(*words, code=8)


def test_help_and_wrong_calls_of_the_mcp_server_need_no_extra(deed: Deed) -> None:
    assert "--token-file FILE" in deed("mcp", "--help")
    assert "--port and --token-file need --http" in deed("mcp", "--port", "0", code=2)
