"""Three nodes with their servers: after a redaction no file of any node, server or client holds the body."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from erasing import SECRET, files_with, signed_redaction
from faults import is_long_run, times
from three_nodes import Nodes, eventually

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import SessionStarted, UnknownLogged
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(3600)


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


def log_secret(nodes: Nodes, secret: str = SECRET) -> int:
    """Let an agent log a secret over the bus, and wait until every node that runs has it."""
    name = nodes.scene.agents[0]
    key = open_key(Home(nodes.folder / "clients").key_file(name))
    with nodes._client(name) as client:
        author = Author(client, name, lambda _: key)
        stream = f"session/{uuid4().hex}"  # not the secret's: names stay
        author.emit(Draft(stream=stream, data=SessionStarted()))
        unknown = UnknownLogged(unknown=f"is the password {secret}?")
        index = author.emit(Draft(stream=stream, data=unknown))[0].index
    eventually(lambda: all(nodes._size(name) > index for name in nodes.names), "every node has the secret")
    return index


def views_of(nodes: Nodes, name: str) -> str:
    """Return the answer of one node's views to a question about the secret."""
    settings = Settings(home=nodes.folder / "clients", server=nodes.url_by_node[name], agent=nodes.scene.agents[0])
    with RemoteClient(settings) as client:
        return json.dumps(client.view("search.find", {"text": "password"}), sort_keys=True)


def streams_of(home: Path) -> frozenset[str]:
    """Return the log streams of which a node's server has a copy."""
    return frozenset(path.name for path in home.glob("bus/jetstream-cluster/jetstream/*/streams/DEEDBOOK_*"))


def begin_redaction(nodes: Nodes, index: int) -> threading.Thread:
    """Let root erase an entry, and send this until it is acknowledged."""
    root = open_key(Home(nodes.scene.homes["node"]).key_file(ROOT))
    with nodes._client(nodes.scene.agents[0]) as client:
        submission = signed_redaction(client, index, root)

    def submit() -> None:
        while True:
            with contextlib.suppress(Unavailable), nodes._client(nodes.scene.agents[0]) as client:
                client.submit(submission)
                return

    thread = threading.Thread(target=submit)
    thread.start()
    return thread


def test_redaction_clears_every_file_of_three_nodes_also_of_one_that_was_away(nodes: Nodes) -> None:
    with nodes.work():
        index = log_secret(nodes)
        assert all(files_with(nodes.scene.homes[name] / "bus") for name in nodes.names)
        assert all(SECRET in views_of(nodes, name) for name in nodes.names)  # from now on, their files hold it, too
        away = next(name for name in nodes.names if name != nodes.leader())
        nodes.kill(away)
        begin_redaction(nodes, index).join()
        others = [nodes.scene.homes[name] for name in nodes.names if name != away]
        eventually(lambda: not any(map(files_with, others)), "no file of the others holds it")
        nodes.progress(5)
        nodes.start(away)
        nodes.progress(5)
        nodes.whole()
        eventually(lambda: not files_with(nodes.folder), "no file holds it")
    eventually(lambda: len({views_of(nodes, name) for name in nodes.names}) == 1, "the views of all nodes agree")
    assert SECRET not in views_of(nodes, away)
    assert not files_with(nodes.folder)
    nodes.settle("redaction while a node was away")


@pytest.mark.skipif(not is_long_run, reason="three nodes and their servers: made by `make faults`")
@pytest.mark.parametrize("is_leader_alone", [True, False], ids=["the leader", "all"])
def test_nodes_that_are_killed_during_redactions_erase_whole(nodes: Nodes, *, is_leader_alone: bool) -> None:
    chance, count = random.Random(f"erasing/{is_leader_alone}"), times(1, 0.4)
    for number in range(count):
        secret = f"{SECRET} {number:03} of several"
        with nodes.work():
            redacting = begin_redaction(nodes, log_secret(nodes, secret))
            time.sleep(chance.uniform(0, 4))
            killed = [nodes.leader()] if is_leader_alone else nodes.names
            nodes.kill(*killed)
            if is_leader_alone:
                nodes.other_leader(killed[0])
            nodes.start(*killed)
            redacting.join()
            nodes.progress(3)
            nodes.whole()
            eventually(lambda secret=secret: not files_with(nodes.folder, secret), "no file holds it")
            # A server that was away copies the new stream late. Else the next kill leaves only one whole copy.
            eventually(lambda: len(set(map(streams_of, nodes.scene.homes.values()))) == 1, "every server has a copy")
    nodes.settle(f"kill -9 of {'the leader' if is_leader_alone else 'all nodes'} during a redaction", count)
