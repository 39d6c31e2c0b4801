"""Who may connect to the bus: the nodes, and every agent with a valid identity key and a key for the bus.

A nats-server refuses its whole configuration for one key it cannot use, and then neither reloads nor starts. So a key
that is no key, or that somebody else has, keeps only its own agent out.
"""

from __future__ import annotations

import base64
from typing import Final

import nkeys
import structlog

from ledger.bus.server_config import BusUsers
from ledger.home import Home, public_bus_key
from ledger.lifecycle.authority import NODE, ROOT
from ledger.local import LocalClient

log = structlog.get_logger("baton.node")

_CHECKSUM_BYTES: Final = 2


def current_users(client: LocalClient, home: Home) -> BusUsers:
    """Return the users that the log and the ledger's folder name now: agents with a valid identity key and a bus key.

    Not: whose identity key was revoked or called compromised and not yet replaced, and who was removed.

    Raises:
        Refused: ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE`` for the node's own key.
    """
    node = public_bus_key(home.bus_seed(NODE))
    taken, agents = {node}, dict[str, str]()
    if home.nkey_file(ROOT).exists():
        # Who owns the ledger's folder may also ask its server; the key lies nowhere else.
        agents[ROOT] = public_bus_key(home.bus_seed(ROOT))
        taken.add(agents[ROOT])
    with client.log.snapshot() as snapshot:
        valid = [agent for agent in snapshot.agents() if (key := snapshot.key(agent.key)) is not None and key.is_valid]
    for agent in valid:
        if agent.nkey is None:
            continue
        if agent.nkey in taken or not is_bus_key(agent.nkey):
            log.warning("agent cannot connect: its bus key is no key, or the node's", agent=agent.name, nkey=agent.nkey)
            continue
        taken.add(agent.nkey)
        agents[agent.name] = agent.nkey
    return BusUsers(nodes=(node,), agents=agents)


def is_bus_key(nkey: str) -> bool:
    """Whether this is the public key of a NATS user: prefix, 32 bytes, checksum (NATS ADR-14)."""
    try:
        raw = base64.b32decode(nkey)
    except ValueError:
        return False
    payload, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    return payload[:1] == bytes([nkeys.PREFIX_BYTE_USER]) and bytes(nkeys.crc16_checksum(payload)) == checksum
