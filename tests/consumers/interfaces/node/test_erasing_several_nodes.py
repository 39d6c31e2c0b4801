"""Three nodes with their servers: after a redaction no file of any node, server or client holds the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from erasing import SECRET, files_with, redact
from three_nodes import Nodes, eventually

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.events.session import SessionStarted, UnknownLogged
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Three nodes that serve."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    nodes = Nodes(tmp_path)
    try:
        nodes.start()
        nodes.whole()
        yield nodes
    finally:
        nodes.end()


def log_secret(nodes: Nodes) -> int:
    """Let an agent log a secret over the bus, and wait until every node has it."""
    name = nodes.scene.agents[0]
    key = open_key(Home(nodes.folder / "clients").key_file(name))
    with nodes._client(name) as client:
        author = Author(client, name, lambda _: key)
        author.emit(Draft(stream="session/secret", data=SessionStarted()))
        unknown = UnknownLogged(unknown=f"is the password {SECRET}?")
        index = author.emit(Draft(stream="session/secret", data=unknown))[0].index
    eventually(lambda: all(nodes._size(name) > index for name in nodes.names), "every node has the secret")
    return index


def redact_over_the_bus(nodes: Nodes, index: int) -> None:
    """Let root erase an entry."""
    root = open_key(Home(nodes.scene.homes["node"]).key_file(ROOT))
    with nodes._client(nodes.scene.agents[0]) as client:
        redact(client, index, root)


def test_redaction_clears_every_file_of_three_nodes_also_of_one_that_was_away(nodes: Nodes) -> None:
    with nodes.work():
        index = log_secret(nodes)
        assert all(files_with(nodes.scene.homes[name] / "bus") for name in nodes.names)
        away = next(name for name in nodes.names if name != nodes.leader())
        nodes.kill(away)
        redact_over_the_bus(nodes, index)
        others = [nodes.scene.homes[name] for name in nodes.names if name != away]
        eventually(
            lambda: not any(files_with(home) for home in others), f"no file holds it: {[*map(files_with, others)]}"
        )
        nodes.progress(5)
        nodes.start(away)
        nodes.progress(5)
        nodes.whole()
        eventually(lambda: not files_with(nodes.folder), "no file holds it")
    nodes.settle("redaction while a node was away")
