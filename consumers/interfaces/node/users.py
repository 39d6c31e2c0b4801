"""Whom a node's server lets in: the agents that the log names, with a valid identity key and a bus key of their own."""

from __future__ import annotations

import base64
from typing import Final

import nkeys
import structlog

from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.home.home import Home, public_bus_key
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.service.server_config import BusUsers

log = structlog.get_logger("deedbook.node")

_CHECKSUM_BYTES: Final = 2


def current_users(client: LocalClient, home: Home, name: str = NODE) -> BusUsers:
    """Return the users that the log and the folder of the node ``name`` give: agents with valid identity and bus keys.

    And who holds an open invitation, until it is used, taken back or expires. Not: whose identity key was revoked or
    reported compromised and not yet replaced, and who was removed; nor whose bus key is no key or somebody else's: a
    nats-server refuses its whole configuration for one that it cannot use. Raises Refused: ``KEY_FILE_MISSING`` or
    ``KEY_FILE_MODE`` for the node's own key.
    """
    node = public_bus_key(home.bus_seed(name))
    taken, agents = {node}, dict[str, str]()
    if home.nkey_file(ROOT).exists():
        # Who owns the ledger's folder may also ask its server; the key lies nowhere else.
        agents[ROOT] = public_bus_key(home.bus_seed(ROOT))
        taken.add(agents[ROOT])
    with client.log.snapshot() as snapshot:
        registered = snapshot.agents()
        valid = [agent for agent in registered if (key := snapshot.key(agent.key)) is not None and key.is_valid]
        now = ledger_now(snapshot.head.accepted_ms if snapshot.head else 0, now_ms())
        waited_for = [one for one in snapshot.invitations() if one.is_open(now, snapshot) and is_bus_key(one.nkey)]
    for agent in valid:
        if agent.nkey is None or agent.name == name:
            continue
        if agent.nkey in taken or not is_bus_key(agent.nkey):
            log.warning("agent cannot connect: its bus key is no key, or the node's", agent=agent.name, nkey=agent.nkey)
            continue
        taken.add(agent.nkey)
        agents[agent.name] = agent.nkey
    taken |= {agent.name for agent in registered}
    invited = {one.name: one.nkey for one in waited_for if taken.isdisjoint((one.name, one.nkey))}
    # Another node connects to its own server, and here finds out at most whether it was registered.
    others = {agent.name: agents.pop(agent.name) for agent in valid if agent.name in agents and "node" in agent.roles}
    return BusUsers(nodes=(node,), agents=agents, invited=invited | others)


def is_bus_key(nkey: str) -> bool:
    """Whether this is the public key of a NATS user: prefix, 32 bytes, checksum (NATS ADR-14)."""
    try:
        raw = base64.b32decode(nkey)
    except ValueError:
        return False
    payload, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    return payload[:1] == bytes([nkeys.PREFIX_BYTE_USER]) and bytes(nkeys.crc16_checksum(payload)) == checksum
