"""A client that knows one of three nodes learns the addresses of the others, and uses them when that node is gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from three_nodes import Nodes, eventually

from deedbook.ledger.client import addresses
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData

pytestmark = pytest.mark.timeout(600)


def test_client_reaches_another_node_when_the_only_one_that_it_knew_is_gone(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    monkeypatch.setattr(addresses, "log_notice", notices.append)
    (agent, *_), (gone, *left) = nodes.scene.agents, nodes.names
    first, others = nodes.url_by_node[gone], {nodes.url_by_node[name] for name in left}
    home = Home(nodes.folder / "clients")
    key = open_key(home.key_file(agent))
    settings = Settings(home=home.path, server=first, agent=agent)

    def has_learned() -> bool:
        with RemoteClient(settings) as client:
            client.head()
        return set(KnownAddresses(client.ledger, first).others) == others

    eventually(has_learned, "the client knows the other nodes")
    nodes.kill(gone)

    # A report goes to the spool while no node is reachable, and later from there to a node that is.
    learned = KnownAddresses.others
    monkeypatch.setattr(KnownAddresses, "others", [])
    spooling = Settings(home=home.path, server=first, agent=agent, spool=True)
    with RemoteClient(spooling) as client:
        drafts = [
            Draft(stream="session/s", data=SessionStarted()),
            Draft(stream="session/s", data=FindingLogged(finding="x")),
        ]
        for draft in drafts:
            with pytest.raises(Unavailable, match="SPOOLED"):
                Author(client, agent, lambda _: key).emit(draft)
    monkeypatch.setattr(KnownAddresses, "others", learned)

    def writes() -> bool:
        """Return whether the other nodes have noticed that one is gone."""
        with contextlib.suppress(Unavailable), RemoteClient(settings) as client:
            finding = FindingLogged(finding=f"later {len(notices)}")
            Author(client, agent, lambda _: key).emit(Draft(stream="session/s", data=finding))
            return True
        return False

    for _ in range(2):
        eventually(writes, "another node takes what this agent writes")

    findings: list[EventData] = []

    def has_read_them() -> bool:
        """Return whether the node that answers has followed the one that took the writes."""
        with RemoteClient(settings) as client:
            entries = client.entries(0, kinds=["finding.logged"], stream="session/s").entries
        findings[:] = [read_event(index, decode_entry(data)).data for index, data in entries]
        return len(findings) >= 3

    eventually(has_read_them, "the other nodes have what one of them took")
    assert findings[0] == FindingLogged(finding="x")
    (notice,) = notices
    assert any(url in notice for url in others)
    assert f"{first} does not serve this agent" in notice
