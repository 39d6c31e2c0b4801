"""Two agents do a whole handoff over HTTP alone: one in TypeScript, one in bash with curl and OpenSSL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import inside
import pytest
from building import Ledger
from served import write_bus_key
from serving import ServeProcess

from deedbook.consumers.interfaces.web.tokens import Role, Tokens
from deedbook.ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parent / "http.sh"
LATER_MS = 2**52
EVIDENCE = 'tests/test_a.py:1 says "\\d+" 通过'


class Scene(NamedTuple):
    """A served ledger in which alice hands work to bob, with rita as reviewer."""

    home: Path
    url: str

    def deed(self, *words: object) -> Any:
        """Call a verb, which must succeed; return its data."""
        said = inside.deed("--home", self.home, "--json", *words)
        assert said.code == 0, said.err
        return json.loads(said.out)["data"]

    def hand_over(self, title: str) -> str:
        """Create and approve a handoff with two criteria; return its id."""
        criteria = ("--criterion", "it works", "--criterion", 'it says "id":"other","act":"none"')
        words = ("--title", title, "--to", "bob", "--reviewer", "rita", *criteria, "--as", "alice")
        created = self.deed("handoff", "create", *words)
        version = self.deed("handoff", "show", created["id"])["version"]
        self.deed("handoff", "approve", created["id"], "--version", version, "--as", "rita")
        return str(created["id"])

    def run(self, *command: str | Path, role: Role = "writer") -> subprocess.CompletedProcess[str]:
        """Run the program of bob's agent."""
        token = Tokens(self.home).create("bob", role, LATER_MS)[1]
        words = (*command, self.url, self.home / "keys" / "bob.key", EVIDENCE)
        environment = {"PATH": os.environ["PATH"], "TOKEN": token, "LC_ALL": "C.UTF-8"}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """`deed serve --web` in a process of its own."""
    with Ledger(tmp_path_factory.mktemp("http") / ".deedbook") as ledger:
        ledger.write_keys()
        write_bus_key(ledger.home, NODE)
        settings = ledger.settings()
    node = ServeProcess(settings, web=True)
    try:
        yield Scene(settings.home, node.web)
    finally:
        node.stop()


@pytest.fixture(params=["typescript", "bash"])
def agent(request: pytest.FixtureRequest) -> tuple[str | Path, ...]:
    """The command of an agent."""
    if request.param == "bash":
        if missing := [name for name in ("bash", "curl", "openssl") if shutil.which(name) is None]:
            pytest.skip(f"not run: {missing} is missing")
        return ("bash", SCRIPT)
    node, place = request.getfixturevalue("built")
    return (node, place / "http.js")


def test_an_agent_does_a_whole_handoff_over_http(scene: Scene, agent: tuple[str | Path, ...]) -> None:
    handoff = scene.hand_over(f"Work for {Path(agent[-1]).name}")
    done = scene.run(*agent)
    assert done.returncode == 0, done.stderr + done.stdout
    shown = scene.deed("handoff", "show", handoff)
    assert (shown["status"], shown["summary"]) == ("completed", f"Done over HTTP: {EVIDENCE}")
    assert [(row["mark"], row["evidence"]) for row in shown["criteria"]] == [("checked", EVIDENCE)] * 2
    kinds = [row["kind"] for row in shown["log"] if row["author"] == "bob"]
    assert kinds == ["handoff.claimed", *["handoff.criterion_checked"] * 2, "handoff.completed"]
    assert [line.split(" is entry ")[0] for line in done.stdout.splitlines()] == kinds
    scene.deed("handoff", "verify", handoff, "--result", shown["result"], "--as", "rita")
    assert scene.deed("handoff", "show", handoff)["status"] == "verified"


def test_an_agent_ends_with_the_code_of_a_refusal(scene: Scene, agent: tuple[str | Path, ...]) -> None:
    done = scene.run(*agent)  # no handoff is left
    assert done.returncode != 0
    assert "nothing waits for bob" in done.stderr
    handoff = scene.hand_over(f"Not for a reader of {Path(agent[-1]).name}")
    done = scene.run(*agent, role="reader")
    assert done.returncode != 0
    assert "NOT_AUTHORIZED" in done.stderr + done.stdout
    assert scene.deed("handoff", "show", handoff)["status"] == "approved"
    scene.deed("handoff", "cancel", handoff, "--reason", "shown", "--as", "alice")
