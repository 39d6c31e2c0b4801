"""Who may register agents, grant roles, and delegate and revoke keys (DESIGN §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ledger.admission.conditions import known_agent, require_role, typed
from ledger.errors import Refused
from ledger.events import authority
from ledger.identity import ledger_id, possession, verify
from ledger.lifecycle.authority import NODE, RESERVED_NAMES, ROOT, AgentRecord, KeyRecord, delegated, to_ms

if TYPE_CHECKING:
    from ledger.admission.state import Layer
    from ledger.events.body import Event


def created(event: Event, state: Layer, _life: object) -> None:
    """Entry 0, signed by the root key that it names."""
    data = typed(event, authority.LedgerCreated)
    if event.index != 0 or event.key != data.root or event.author != ROOT:
        raise Refused("NOT_AUTHORIZED", "ledger.created is entry 0, signed by the root key it names, as root")
    if event.ledger != ledger_id(bytes.fromhex(data.root)):
        raise Refused("WRONG_LEDGER", "the ledger's id is not that of its root key", ledger=event.ledger)
    if len({data.root, data.node_key, data.checkpoint_key}) != len(("root", "node", "checkpoint")):
        raise Refused("INVALID_FIELD", "root, node and checkpoint keys differ from each other", path="$.data")
    state.ledger = event.ledger
    for name, key, roles in ((ROOT, data.root, ("admin",)), (NODE, data.node_key, ())):
        state.put_agent(AgentRecord(name, key, frozenset(roles)))
        state.put_key(key, KeyRecord(name, is_identity=True, since_index=0))


def registered(event: Event, state: Layer, _life: object) -> None:
    """An admin registers agents, and the node service agents; the key proves whose it is."""
    data = typed(event, authority.AgentRegistered)
    if event.author != NODE or data.roles != ["service"]:
        require_role(event, state, "admin")
    _require_stream(event, data.name)
    if data.name in RESERVED_NAMES or state.agent(data.name) is not None:
        raise Refused("AGENT_EXISTS", f"there is an agent {data.name} already", name=data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    state.put_agent(AgentRecord(data.name, data.key, frozenset(data.roles), data.nkey, data.ai_id))
    state.put_key(data.key, KeyRecord(data.name, is_identity=True, since_index=event.index))


def role_granted(event: Event, state: Layer, _life: object) -> None:
    """An admin grants roles."""
    data = typed(event, authority.RoleGranted)
    require_role(event, state, "admin")
    _require_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    state.put_agent(msgspec.structs.replace(agent, roles=agent.roles | {data.role}))


def role_revoked(event: Event, state: Layer, _life: object) -> None:
    """An admin takes roles back; the root keeps its own."""
    data = typed(event, authority.RoleRevoked)
    require_role(event, state, "admin")
    _require_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if data.agent == ROOT:
        raise Refused("NOT_AUTHORIZED", "the root keeps its role", name=ROOT)
    state.put_agent(msgspec.structs.replace(agent, roles=agent.roles - {data.role}))


def key_delegated(event: Event, state: Layer, _life: object) -> None:
    """An agent delegates a key of its own."""
    data = typed(event, authority.KeyDelegated)
    _require_stream(event, event.author)
    if to_ms(data.expires_at) <= event.accepted_ms:
        raise Refused("KEY_EXPIRED", "the session key would be expired already", expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)
    state.put_key(data.key, delegated(event.author, event.index, data))


def key_revoked(event: Event, state: Layer, _life: object) -> None:
    """An agent revokes its own keys, an admin anybody's."""
    data = typed(event, authority.KeyRevoked)
    record = state.key(data.key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered in this ledger", key=data.key)
    _require_stream(event, record.agent)
    if record.agent != event.author:
        require_role(event, state, "admin")
    if record.agent in RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"the key of {record.agent} cannot be revoked", name=record.agent)
    if record.revoked_index is not None:
        raise Refused("KEY_REVOKED", f"the key was revoked at entry {record.revoked_index}", key=data.key)
    state.put_key(data.key, msgspec.structs.replace(record, revoked_index=event.index))


def _require_stream(event: Event, name: str) -> None:
    if event.name != name:
        raise Refused("INVALID_FIELD", f"{event.kind} about {name} belongs on agent/{name}", path="$.stream")


def _require_new_key(event: Event, state: Layer, agent: str, key: str, proof: str) -> None:
    if state.key(key) is not None:
        raise Refused("KEY_EXISTS", "this key is registered already", key=key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the key does not prove that it belongs to {agent}", path="$.data.proof")
