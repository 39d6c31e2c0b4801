"""Every block of commands of the runbook runs. Each section has its own ledger and node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from serving import ServeProcess

from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
HOME_ON_PAGE: Final = "/var/lib/deedbook"
MORE: Final = "deed agent add bob"
AFTER_A_BACKUP: Final = (f"deed backup {HOME_ON_PAGE}/backups", "systemctl start deedbook", MORE)
BEFORE: Final = {
    "Restore": AFTER_A_BACKUP,
    "Lose all nodes": (*AFTER_A_BACKUP, f"mkdir {HOME_ON_PAGE}/lost"),
    "Rebuild a stream": ("systemctl start deedbook",),
    "Rotate keys": ("deed agent add alice",),
    "Retention": AFTER_A_BACKUP,
    "Erase personal data": (
        "deed agent add alice",
        "deed session start visits --as alice --task calls",
        "deed session finding visits 'Anna moved to Bergen' --as alice",
        f"echo 'Anna moved' > {HOME_ON_PAGE}/erase.txt",
        *AFTER_A_BACKUP,
    ),
    "Two copies": (*AFTER_A_BACKUP, f"deed restore {HOME_ON_PAGE}/backups --home {HOME_ON_PAGE}/rehearsal"),
}
"""The commands that lead to the situation of a section."""

ASKS: Final = "deed key rotate --as root"
"""The beginning of a command that asks for a passphrase."""

AFTER: Final = {
    "Restore": "deed agent show bob",
    "Rebuild a stream": f"test -d {HOME_ON_PAGE}/ledger/bus/jetstream",
    "Erase personal data": f"! tar -xOf {HOME_ON_PAGE}/backups/*.tar | grep -a Bergen",
}
"""A command that must succeed after the section."""


def sections() -> dict[str, list[str]]:
    """Return the commands of each section of the runbook that has any."""
    parts = re.split(r"^## (.*)$", (DEPLOY / "runbook.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    blocks = {
        title: [
            line.removeprefix("$ ")
            for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
            for line in block.splitlines()
        ]
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return {title: lines for title, lines in blocks.items() if lines}


class Machine:
    """A machine with a ledger, on which an operator types commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._node: ServeProcess | None = None
        (folder / "backups").mkdir()

    def do(self, command: str) -> int:
        """Run a command of the page in this machine's folder; return the exit code."""
        if command.startswith(ASKS):  # the operator types a passphrase for root's new key
            command = f"printf '%s' 'correct horse' | {command} --passphrase-fd 0"
        command = command.replace(HOME_ON_PAGE, str(self._folder))
        if command.startswith("systemctl"):
            return self._control(command.split()[1])
        if command.startswith("deed ") and not re.search("[|>&]", command):
            return run(shlex.split(command)[1:])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(command, shell=True, env=os.environ | {"PATH": path}, check=False).returncode

    def _control(self, action: str) -> int:
        node, self._node = self._node, None
        code = 0 if node is None else node.stop()
        if action != "stop":
            assert node is None or action == "restart", "the page starts a node that runs"
            self._node = ServeProcess(Settings(home=self._folder / "ledger"))
        return code


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine with a new ledger, on which nothing runs."""
    for name in ("DEEDBOOK_SERVER", "DEEDBOOK_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEEDBOOK_HOME", str(tmp_path / "ledger"))
    machine = Machine(tmp_path)
    assert machine.do("deed init --unprotected") == 0
    yield machine
    machine.do("systemctl stop deedbook")


@pytest.mark.parametrize("section", sections())
def test_commands_of_a_section_run_one_after_the_other(
    machine: Machine, section: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (*BEFORE.get(section, ()), *sections()[section], *filter(None, [AFTER.get(section)])):
        assert machine.do(command) == 0, f"{command}: {capsys.readouterr()}"


def test_sections_that_something_is_done_for_are_there() -> None:
    assert {*BEFORE, *AFTER} <= sections().keys()
    assert len(sections()) > 10


def test_pages_refer_to_sections_that_are_there() -> None:
    for page in DEPLOY.glob("*.md"):
        text = page.read_text("utf-8")
        titles = re.findall("^## (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors, page
