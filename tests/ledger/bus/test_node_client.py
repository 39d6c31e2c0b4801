"""A node's connection to its own server."""

from __future__ import annotations

import asyncio
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client, Srv

from deedbook.ledger.bus.connection import NodeClient


@pytest.mark.parametrize(("kind", "learned"), [(Client, 1), (NodeClient, 0)])
def test_node_learns_no_other_server_that_would_refuse_what_it_subscribes_to(kind: type[Client], learned: int) -> None:
    async def run() -> int:
        client = kind()
        client._current_server, client.options = Srv(urlparse("nats://127.0.0.1:4222")), {"dont_randomize": True}
        await client._process_info({"connect_urls": ["127.0.0.1:4223"]})
        return len(client.discovered_servers)

    assert asyncio.run(run()) == learned
