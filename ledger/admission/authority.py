"""The rules of agents, roles, keys and redactions: who may change them. Replayable, like all of ``admission.rules``.

- An admin registers or invites agents, grants roles, revokes keys and removes agents. An agent revokes its own keys.
  An invited agent registers itself, once, with exactly the name and roles of the invitation.
- Only root registers or invites nodes, because each node signs checkpoints. A node signs terms and registers services.
  It has no other role, and its checkpoint key ends when it is removed.
- The keys of ``root`` and ``node`` and the checkpoint keys are never revoked. They are replaced, by root only.
- An agent that could replace another agent's key could approve in its name. So root replaces lost keys. An admin may
  do so only for agents that are neither human, reviewer, admin nor node.
- An agent or an admin declares a key of that agent compromised. Any valid key of the agent may sign this, because a
  declaration can only lower trust. It may be repeated only with an earlier index. Keys of root and node must be
  replaced first.
- Identity, session, checkpoint and bus keys are each used once and for one purpose: a key can never change its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import authority
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.identity import joining, ledger_id, possession, verify
from deedbook.ledger.lifecycle import authority as registry
from deedbook.ledger.lifecycle import redaction
from deedbook.ledger.lifecycle.gate_state import TRUSTED_ROLES, GateState
from deedbook.ledger.lifecycle.machine import check_roles
from deedbook.ledger.log import keys
from deedbook.ledger.log.records import StreamState

D = TypeVar("D", bound=EventData)
Rule: TypeAlias = "Callable[[Event, Layer, StreamState | None], StreamState | None]"
# Only root replaces a lost key of an agent with one of these roles.
_ROOT_REPLACES: Final = TRUSTED_ROLES | {registry.NODE_ROLE}


def typed(event: Event, data_type: type[D]) -> D:
    """Return the event's data as its kind's type."""
    assert isinstance(event.data, data_type)  # noqa: S101 - the table pairs each kind with its data type
    return event.data


def require_role(event: Event, state: Layer, *roles: str) -> None:
    """Refuse an author that has none of ``roles``."""
    check_roles(frozenset(roles), event, state)


def known_agent(state: Layer, name: str) -> registry.AgentRecord:
    """Return the record of an agent that is registered and not removed."""
    why, agent = registry.why_unregistered(state, name), state.agent(name)
    if why is not None or agent is None:
        message, details = why or ("", {})
        raise Refused("AGENT_UNKNOWN", message, **details)
    return agent


def _created(event: Event, state: Layer) -> None:
    """The event must be signed by the root key that entry 0 names."""
    data = typed(event, authority.LedgerCreated)
    if event.index != 0 or event.key != data.root or event.author != registry.ROOT:
        raise Refused("NOT_AUTHORIZED", "ledger.created must be entry 0, by root, signed with the root key it names")
    if event.ledger != ledger_id(bytes.fromhex(data.root)):
        raise Refused("WRONG_LEDGER", "the ledger's id does not match its root key", ledger=event.ledger)
    if len({data.root, data.node_key, data.checkpoint_key}) != len(("root", "node", "checkpoint")):
        raise Refused("INVALID_FIELD", "the root, node and checkpoint keys must be three keys", path="$.data")
    state.ledger = event.ledger


def _history_reset(event: Event, _state: Layer) -> None:
    """Only root declares that acknowledged entries are abandoned.

    This log does not hold the abandoned head, so the rule cannot check it. Its size may be smaller than this log's
    (somebody restored a copy and wrote to it) or larger.
    """
    data = typed(event, authority.HistoryReset)
    if event.author != registry.ROOT:
        raise Refused("NOT_AUTHORIZED", f"only {registry.ROOT} may sign ledger.history_reset", name=event.author)
    if data.abandoned_size == 0:
        raise Refused("INVALID_FIELD", "an empty log has no head to abandon", path="$.data.abandoned_size")


def _clock_set(event: Event, _state: Layer) -> None:
    """Only root sets the clock. The entry's time is the time that root signed."""
    data = typed(event, authority.ClockSet)
    if event.author != registry.ROOT:
        message = f"only {registry.ROOT} may set the ledger's clock: add `--as {registry.ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    if event.accepted_ms != registry.to_ms(data.time):
        raise Refused("INVALID_FIELD", f"the entry's time is not the signed time {data.time}", path="$.data.time")


def _invited(event: Event, state: Layer) -> None:
    """An admin may invite the agents that they may register. Keys from the token belong to this name for ever."""
    data = typed(event, authority.AgentInvited)
    _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    if registry.to_ms(data.expires_at) <= event.accepted_ms:
        message = "the invitation expires in the past: choose a later expires_at"
        raise Refused("INVALID_FIELD", message, path="$.data.expires_at")
    if state.key(data.token_key) is not None:
        raise Refused("KEY_EXISTS", "this token is already used: create another invitation", key=data.token_key)
    _take_bus_key(state, data.name, data.nkey)


def _invitation_revoked(event: Event, state: Layer) -> None:
    """An admin revokes an invitation, expired or not, unless it was used."""
    data = typed(event, authority.AgentInvitationRevoked)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.name)
    invitation = _known_invitation(state, data.name)
    if invitation.ended_as is not None:
        message = f"the invitation of {data.name} was already {invitation.ended_as} at entry {invitation.ended_index}"
        hint = f": to remove the agent, run `deed agent remove {data.name}`" if invitation.ended_as == "used" else ""
        raise Refused("TRANSITION_NOT_ALLOWED", message + hint, name=data.name, index=invitation.ended_index)


def _registered(event: Event, state: Layer) -> None:
    """An admin registers agents, a node registers services, and an invited agent registers itself."""
    data = typed(event, authority.AgentRegistered)
    if data.token_proof is not None:
        _use_invitation(event, data, state)
    elif data.roles != ["service"] or not registry.is_node(state, event.author):
        _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    _take_bus_key(state, data.name, data.nkey)
    if (data.checkpoint_key is not None) != (registry.NODE_ROLE in data.roles):
        message = "a node needs a checkpoint key, and other agents must not have one"
        raise Refused("INVALID_FIELD", message, path="$.data.checkpoint_key")
    if data.checkpoint_key is not None:
        if data.checkpoint_key == data.key:
            raise _known(data.key)
        whose = f"{registry.CHECKPOINT}/{data.name}"
        _require_new_key(event, state, whose, data.checkpoint_key, data.checkpoint_proof or "")


def _use_invitation(event: Event, data: authority.AgentRegistered, state: Layer) -> None:
    """Let an invited agent register itself. No earlier check has shown that the registered key signed the event."""
    if (event.author, event.key) != (data.name, data.key):
        message = f"an invited agent must sign its registration as {data.name}, with the key that it registers"
        raise Refused("AUTHOR_MISMATCH", message, name=data.name)
    invitation = _known_invitation(state, data.name)
    invitation.check(event.accepted_ms, state)
    if tuple(sorted(data.roles)) != invitation.roles:
        invited_as = ", ".join(invitation.roles) or "no role"
        message = f"{data.name} was invited with {invited_as}: register with exactly these roles"
        raise Refused("NOT_INVITED", message, name=data.name, how="roles")
    signed = joining(event.ledger, data.name, bytes.fromhex(data.key))
    if not verify(bytes.fromhex(invitation.token_key), signed, bytes.fromhex(data.token_proof or "")):
        message = f"the token does not match the invitation of {data.name} at entry {invitation.index}"
        raise Refused("SIGNATURE_INVALID", message, path="$.data.token_proof")


def _known_invitation(state: Layer, name: str) -> registry.InvitationRecord:
    invitation = state.invitation(name)
    if invitation is None:
        message = f"nobody invited {name}: ask an admin to run `deed agent invite {name}`"
        raise Refused("NOT_INVITED", message, name=name, how="unknown")
    return invitation


def _require_may_register(event: Event, state: Layer, roles: list[authority.Role]) -> None:
    if registry.NODE_ROLE not in roles:
        require_role(event, state, "admin")
    elif event.author != registry.ROOT:
        message = f"a node signs checkpoints, so only {registry.ROOT} may add one: add `--as {registry.ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    elif roles != [registry.NODE_ROLE]:
        raise Refused("INVALID_FIELD", "a node has only the role node: leave out the other roles", path="$.data.roles")


def _require_free_name(event: Event, state: Layer, name: str) -> None:
    _require_agent_stream(event, name)
    before = state.agent(name)
    if before is not None and before.removed_index is not None:
        message = f"agent {name} was removed at entry {before.removed_index}. Names are not reused: choose another"
        raise Refused("AGENT_EXISTS", message, name=name, index=before.removed_index)
    if name in registry.RESERVED_NAMES or before is not None:
        raise Refused("AGENT_EXISTS", f"agent {name} already exists", name=name)


def _removed(event: Event, state: Layer) -> None:
    """An admin removes an agent. Its session keys end with its identity key."""
    data = typed(event, authority.AgentRemoved)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    known_agent(state, data.agent)
    if data.agent in registry.RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"{data.agent} cannot be removed", name=data.agent)


def _role_changed(event: Event, state: Layer) -> None:
    """An admin grants and revokes roles. Root keeps its own."""
    is_granted = isinstance(event.data, authority.RoleGranted)
    data = event.data if is_granted else typed(event, authority.RoleRevoked)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if data.agent == registry.ROOT and not is_granted:
        raise Refused("NOT_AUTHORIZED", "root cannot lose a role", name=registry.ROOT)
    if registry.NODE_ROLE in {data.role, *agent.roles}:
        message = "the roles of a node never change, and no other agent can get the role node: use another agent"
        raise Refused("NOT_AUTHORIZED", message, name=data.agent)


def _key_delegated(event: Event, state: Layer) -> None:
    """An agent delegates a key of its own."""
    data = typed(event, authority.KeyDelegated)
    _require_agent_stream(event, event.author)
    if registry.to_ms(data.expires_at) <= event.accepted_ms:
        message = "the session key expires in the past: choose a later expires_at"
        raise Refused("KEY_EXPIRED", message, expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)


def _key_revoked(event: Event, state: Layer) -> None:
    """An agent revokes its own keys, an admin those of any agent."""
    data = typed(event, authority.KeyRevoked)
    record = _known_key(event, state, data.key)
    if record.agent != event.author:
        require_role(event, state, "admin")
    if record.agent in registry.RESERVED_NAMES or registry.is_node(state, record.agent):
        message = f"a key of {record.agent} can only be replaced: run `deed key rotate --as {record.agent}`"
        raise Refused("NOT_AUTHORIZED", message, name=record.agent)
    if record.ended_index is not None:
        message = f"the key was already {record.ended_as} at entry {record.ended_index}"
        raise Refused("KEY_REVOKED", message, key=data.key, index=record.ended_index)


def _key_rotated(event: Event, state: Layer) -> None:
    """An agent replaces its own keys. Root replaces lost keys; for plain workers an admin may, too."""
    data = typed(event, authority.KeyRotated)
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if event.author not in (data.agent, registry.ROOT):
        require_role(event, state, "admin")
        if data.agent in registry.RESERVED_NAMES or not _ROOT_REPLACES.isdisjoint(agent.roles):
            why = f"only root may replace the lost key of {data.agent}, because of its roles"
            message = f"{why}: who holds root's key adds `--as root`"
            raise Refused("NOT_AUTHORIZED", message, name=data.agent)
    if data.agent == registry.ROOT != event.author:
        raise Refused("NOT_AUTHORIZED", "only the root key may replace the root key", name=registry.ROOT)
    _require_new_key(event, state, data.agent, data.key, data.proof)
    _take_bus_key(state, data.agent, data.nkey)


def _checkpoint_key_rotated(event: Event, state: Layer) -> None:
    """Root replaces the checkpoint key."""
    data = typed(event, authority.CheckpointKeyRotated)
    if event.author != registry.ROOT:
        raise Refused(
            "NOT_AUTHORIZED", "only root may do this: who holds root's key adds `--as root`", name=event.author
        )
    _require_new_key(event, state, registry.CHECKPOINT, data.key, data.proof)


def _key_compromised(event: Event, state: Layer) -> None:
    """An agent reports its own keys, an admin those of any agent, and only root those of root and node."""
    data = typed(event, authority.KeyCompromised)
    record = _known_key(event, state, data.key)
    if record.agent in registry.RESERVED_NAMES:
        if event.author != registry.ROOT:
            message = (
                f"only root may report a key of {record.agent} as compromised: who holds root's key adds `--as root`"
            )
            raise Refused("NOT_AUTHORIZED", message, name=record.agent)
    elif record.agent != event.author:
        require_role(event, state, "admin")
    if record.is_valid and (record.agent in registry.RESERVED_NAMES or registry.is_node(state, record.agent)):
        message = f"the key of {record.agent} must be replaced first: run `deed key rotate --as {record.agent}`"
        raise Refused("NOT_AUTHORIZED", message, name=record.agent)
    if data.since > event.index:
        message = (
            f"entry {data.since} does not exist yet: give the index of the first entry that a thief may have signed"
        )
        raise Refused("INVALID_FIELD", message, path="$.data.since")
    if record.compromised_since is not None and data.since >= record.compromised_since:
        message = f"the key is compromised since entry {record.compromised_since} already: name an earlier entry"
        raise Refused("TRANSITION_NOT_ALLOWED", message, since=record.compromised_since, index=record.compromised_index)


def _known_key(event: Event, state: Layer, key: str) -> registry.KeyRecord:
    record = state.key(key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered here: `deed key list` shows the keys", key=key)
    if record.type == "checkpoint":
        message = "a checkpoint key can only be replaced: run `deed key rotate --checkpoint`"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    if record.type == "invitation":
        message = "this is the key of an invitation: revoke the invitation (`deed agent invite --revoke`)"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    _require_agent_stream(event, record.agent)
    return record


def _take_bus_key(state: Layer, agent: str, nkey: str | None) -> None:
    """Refuse a bus key that any agent has or had: a server would admit one user with it and refuse the other."""
    if nkey is None:
        return
    if (owner := state.record(keys.bus_key_key(nkey))) is not None:
        raise Refused("KEY_EXISTS", f"the bus key belongs or belonged to {owner}: create another", path="$.data.nkey")
    state.put(keys.bus_key_key(nkey), agent)


def _require_agent_stream(event: Event, name: str) -> None:
    if event.name != name:
        raise Refused("INVALID_FIELD", f"{event.kind} of {name} must be on the stream agent/{name}", path="$.stream")


def _require_new_key(event: Event, state: Layer, agent: str, key: str, proof: str) -> None:
    if state.key(key) is not None:
        raise _known(key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the proof does not show that {agent} has this key", path="$.data.proof")


def _known(key: str) -> Refused:
    return Refused("KEY_EXISTS", "this key is or was registered already: create another", key=key)


def _key_of(record: registry.AuthorityRecord) -> keys.Key[Any]:
    match record:
        case registry.AgentRecord():
            return keys.agent_key(record.name)
        case registry.KeyRecord():
            return keys.key_key(record.key)
        case registry.InvitationRecord():
            return keys.invitation_key(record.name)
        case registry.CheckpointKeys():
            return keys.CHECKPOINT_KEYS_KEY
        case GateState():
            return keys.GATE_STATE_KEY
        case _:
            assert_never(record)


def _rule(check: Callable[[Event, Layer], None]) -> Rule:
    """Return a rule that calls ``check``, then stores the records that the event changes."""

    def rule(event: Event, state: Layer, _: StreamState | None) -> None:
        check(event, state)
        for record in [*registry.changes(event, state)]:
            state.put(_key_of(record), record)

    return rule


def _redaction(event: Event, state: Layer, _: StreamState | None) -> None:
    """Root or two humans erase a body. Only the gate can check the remnant (``admission.erasure``)."""
    data = typed(event, authority.Redaction)
    if event.author != registry.ROOT or isinstance(data, authority.RedactionProposed):
        require_role(event, state, "human")
    key = keys.redaction_key(data.entry)
    state.put(key, redaction.after(state.record(key), event, state))


OF_KIND: Final[dict[str, Rule]] = {
    "ledger.created": _rule(_created),
    "ledger.history_reset": _rule(_history_reset),
    "ledger.clock_set": _rule(_clock_set),
    "agent.invited": _rule(_invited),
    "agent.invitation_revoked": _rule(_invitation_revoked),
    "agent.registered": _rule(_registered),
    "agent.removed": _rule(_removed),
    "role.granted": _rule(_role_changed),
    "role.revoked": _rule(_role_changed),
    "key.delegated": _rule(_key_delegated),
    "key.revoked": _rule(_key_revoked),
    "key.rotated": _rule(_key_rotated),
    "key.compromised": _rule(_key_compromised),
    "checkpoint_key.rotated": _rule(_checkpoint_key_rotated),
    "entry.redaction_proposed": _redaction,
    "entry.redacted": _redaction,
}
