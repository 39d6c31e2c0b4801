"""The users of a node's server: registered agents with a valid identity key and their own bus key."""

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
    """Return the users in the log and the folder of the node ``name``: agents with valid identity and bus keys.

    The holder of an open invitation is a user until the invitation is used, revoked or expires. Not users: removed
    agents, agents whose identity key was revoked or reported compromised and not replaced, and agents whose bus key is
    invalid or belongs to another (for one unusable key a nats-server refuses its whole configuration). Raises Refused:
    ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE`` for the node's own key.
    """
    node = public_bus_key(home.bus_seed(name))
    taken, agents = {node}, dict[str, str]()
    if home.nkey_file(ROOT).exists():
        # The owner of the ledger's folder may also use its server; the key is stored nowhere else.
        agents[ROOT] = public_bus_key(home.bus_seed(ROOT))
        taken.add(agents[ROOT])
    with client.log.snapshot() as snapshot:
        registered = snapshot.agents()
        valid = [agent for agent in registered if (key := snapshot.key(agent.key)) is not None and key.is_valid]
        now = ledger_now(snapshot.head.accepted_ms if snapshot.head else 0, now_ms())
        invitations = [
            invitation
            for invitation in snapshot.invitations()
            if invitation.is_open(now, snapshot) and is_bus_key(invitation.nkey)
        ]
    for agent in valid:
        if agent.nkey is None or agent.name == name:
            continue
        if agent.nkey in taken or not is_bus_key(agent.nkey):
            log.warning(
                "agent cannot connect: its bus key is invalid or already used", agent=agent.name, nkey=agent.nkey
            )
            continue
        taken.add(agent.nkey)
        agents[agent.name] = agent.nkey
    taken |= {agent.name for agent in registered}
    invited = {
        invitation.name: invitation.nkey
        for invitation in invitations
        if taken.isdisjoint((invitation.name, invitation.nkey))
    }
    # Another node uses its own server. Here it can only find out whether it is registered.
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
