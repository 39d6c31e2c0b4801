"""The node's own agents: each has a key of its own, registered by the node key, and only the role ``service``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.author import Author, Draft
from ledger.events.authority import AgentRegistered
from ledger.home import Home, new_bus_key, public_bus_key
from ledger.identity import Key, open_key, write_key
from ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from ledger.local import LocalClient


def service_author(client: LocalClient, name: str) -> Author:
    """Return the author for a service agent, making its keys and registering it if it is new.

    What happens if we crash here: keys that are not registered yet are found and registered by the next start.

    Raises:
        Refused: the name belongs to an agent with another key.
    """
    home = Home(client.settings.home)
    path = home.key_file(name)
    if not path.exists():
        write_key(path, Key.generate(), ledger=client.ledger, name=name)
    key = open_key(path)
    with client.log.snapshot() as snapshot:
        agent = snapshot.agent(name)
    if agent is None or agent.key != key.public.hex():
        bus_key = home.nkey_file(name)
        nkey = public_bus_key(home.bus_seed(name)) if bus_key.exists() else new_bus_key(bus_key)
        registered = AgentRegistered(
            name=name,
            key=key.public.hex(),
            proof=key.prove_possession(client.ledger, name),
            roles=["service"],
            nkey=nkey,
        )
        node = open_key(home.key_file(NODE))
        Author(client, NODE, lambda _: node).emit(Draft(stream=f"agent/{name}", data=registered))
    return Author(client, name, lambda _: key)
