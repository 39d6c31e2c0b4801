"""Registers agents, and the node's service agents, whose keys the node key registers with the role ``service``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deedbook.consumers.sdk.rotation import settle
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRegistered, Role
from deedbook.ledger.format.identity import Key, read_key_file, write_key
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home, new_bus_key, public_bus_key
from deedbook.ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.local import LocalClient


def register_agent(
    author: Author, home: Home, name: str, roles: Sequence[Role], *, ai_id: str = "", passphrase: str | None = None
) -> tuple[AgentRegistered, Accepted]:
    """Register an agent, signed by ``author``, with keys in the ledger's folder; missing keys are made.

    Raises Refused: the key there cannot be opened with ``passphrase``; the ledger does not admit the agent, or its
    author cannot sign. Keys that this call made are then deleted.
    """
    ledger = author.client.ledger
    bus_key = home.nkey_file(name)
    made = [path for path in (home.key_file(name), bus_key) if not path.exists()]
    key = _identity_key(home, ledger, name, passphrase)
    registered = AgentRegistered(
        name=name,
        key=key.public.hex(),
        proof=key.prove_possession(ledger, name),
        roles=list(roles),
        protection=read_key_file(home.key_file(name)).protection,
        nkey=public_bus_key(home.bus_seed(name)) if bus_key.exists() else new_bus_key(bus_key),
        ai_id=ai_id,
    )
    try:
        return registered, author.emit(Draft(stream=f"agent/{name}", data=registered))[0]
    except Refused:
        # No agent has these keys. They may be sealed with a passphrase that the next attempt does not know.
        for path in made:
            path.unlink(missing_ok=True)
        raise


def service_author(client: LocalClient, name: str) -> Author:
    """Return the author for a service agent, making its keys and registering it if it is new.

    If we crash before the registration, the next start finds the keys and registers them. Raises Refused: the name
    belongs to an agent with another key.
    """
    home = Home(client.settings.home)
    if client.node != NODE:
        # private keys are never copied to another machine, so each node has its own agent
        name = f"{name}-{client.node}"
    trust.demand(home.path, client)
    settle(client, home, name)
    key = _identity_key(home, client.ledger, name)
    with client.log.snapshot() as snapshot:
        agent = snapshot.agent(name)
    if agent is None or agent.key != key.public.hex():
        node = home.open(client.node)
        register_agent(Author(client, client.node, lambda _: node), home, name, ["service"])

    def present_key(_: object) -> Key:
        settle(client, home, name)
        return home.open(name)  # read each time: the key may be replaced while the node runs

    return Author(client, name, present_key)


def _identity_key(home: Home, ledger: str, name: str, passphrase: str | None = None) -> Key:
    # An interrupted registration leaves a key file without an agent: use that key.
    path = home.key_file(name)
    if path.exists():
        return home.open(name, passphrase)
    trust.demand(home.path)
    key = Key.generate()
    write_key(path, key, ledger=ledger, name=name, passphrase=passphrase)
    return key
