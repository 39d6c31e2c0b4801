"""Who may connect to the bus: the nodes and every agent that was registered with a key for it.

A nats-server refuses its whole configuration for one key it cannot use, and then neither reloads nor starts. So a key
that is no key, or that somebody else has, keeps only its own agent out.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import nkeys
import structlog

from ledger.bus.server_config import BusUsers
from ledger.home import public_bus_key
from ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from ledger.home import Home
    from ledger.local import LocalClient

log = structlog.get_logger("baton.users")

_CHECKSUM_BYTES: Final = 2


def current_users(client: LocalClient, home: Home) -> BusUsers:
    """Return the users that the log and the ledger's folder name now; of two with one key the first by name.

    Raises:
        Refused: ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE`` for the node's own key.
    """
    node = public_bus_key(home.bus_seed(NODE))
    found = {agent.name: agent.nkey for agent in client.agents() if agent.nkey is not None}
    if home.nkey_file(ROOT).exists():
        # Who owns the ledger's folder may also ask its server; the key lies nowhere else.
        found[ROOT] = public_bus_key(home.bus_seed(ROOT))
    taken, agents = {node}, dict[str, str]()
    for name, nkey in sorted(found.items()):
        if nkey in taken or not is_bus_key(nkey):
            log.warning("agent cannot connect: its bus key is no key, or somebody else's", agent=name, nkey=nkey)
            continue
        taken.add(nkey)
        agents[name] = nkey
    return BusUsers(nodes=(node,), agents=agents)


def is_bus_key(nkey: str) -> bool:
    """Whether this is the public key of a NATS user: prefix, 32 bytes, checksum (NATS ADR-14)."""
    try:
        raw = base64.b32decode(nkey)
    except ValueError:
        return False
    payload, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    return payload[:1] == bytes([nkeys.PREFIX_BYTE_USER]) and bytes(nkeys.crc16_checksum(payload)) == checksum
