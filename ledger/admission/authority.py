"""The rules of agents, roles and keys: which agent may change them. Replayable, like all of ``admission.rules``.

- An admin registers or invites agents, grants roles, revokes keys and removes agents. An agent revokes its own keys.
  An invited agent registers itself, once, with exactly the name and roles of the invitation.
- Only root registers or invites nodes, because each node signs checkpoints. A node signs terms and registers services.
  It has no other role, and its checkpoint key ends when it is removed.
- The keys of ``root`` and ``node`` and the checkpoint keys are never revoked. They are replaced, by root only.
- An agent that could replace another agent's key could approve in its name. So root replaces lost keys. An admin may
  do so only for agents that are neither human, reviewer, admin nor node.
- An agent declares its own key compromised (with any key it still has, because the declaration only lowers trust and
  may be repeated only with an earlier index), or an admin does. Keys of root and node must be replaced first.
- Identity, session, checkpoint and bus keys are each used once and for one purpose: a key that was ever one of them
  cannot become another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import authority
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.identity import joining, ledger_id, possession, verify
from deedbook.ledger.lifecycle import authority as registry
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.machine import check_roles
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import agent_key, invitation_key, key_key
from deedbook.ledger.log.records import StreamState

D = TypeVar("D", bound=EventData)
Rule: TypeAlias = "Callable[[Event, Layer, StreamState | None], StreamState | None]"


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


def _created(event: Event, state: Layer, _: StreamState | None) -> None:
    """The root key that entry 0 names signs it."""
    data = typed(event, authority.LedgerCreated)
    if event.index != 0 or event.key != data.root or event.author != registry.ROOT:
        raise Refused("NOT_AUTHORIZED", "ledger.created must be entry 0, by root, signed with the root key it names")
    if event.ledger != ledger_id(bytes.fromhex(data.root)):
        raise Refused("WRONG_LEDGER", "the ledger's id does not match its root key", ledger=event.ledger)
    if len({data.root, data.node_key, data.checkpoint_key}) != len(("root", "node", "checkpoint")):
        raise Refused("INVALID_FIELD", "the root, node and checkpoint keys must be three keys", path="$.data")
    state.ledger = event.ledger
    for name, key, roles in ((registry.ROOT, data.root, ("admin",)), (registry.NODE, data.node_key, ())):
        state.put(agent_key(name), registry.AgentRecord(name, key, frozenset(roles)))
        state.put(key_key(key), registry.KeyRecord(name, is_identity=True, since_index=0))
    _put_checkpoint_key(event, state, data.checkpoint_key)


def _history_reset(event: Event, _state: Layer, _: StreamState | None) -> None:
    """Only root declares that acknowledged entries are abandoned.

    This log does not hold the abandoned head, so the rule cannot check it. Its size may be smaller than this log's
    (somebody restored a copy and wrote to it) or larger.
    """
    data = typed(event, authority.HistoryReset)
    if event.author != registry.ROOT:
        raise Refused("NOT_AUTHORIZED", f"only {registry.ROOT} may sign ledger.history_reset", name=event.author)
    if data.abandoned_size == 0:
        raise Refused("INVALID_FIELD", "an empty log has no head to abandon", path="$.data.abandoned_size")


def _clock_set(event: Event, _state: Layer, _: StreamState | None) -> None:
    """Only root sets the clock. The entry's time is the time that root signed."""
    data = typed(event, authority.ClockSet)
    if event.author != registry.ROOT:
        message = f"only {registry.ROOT} may set the ledger's clock: add `--as {registry.ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    if event.accepted_ms != registry.to_ms(data.time):
        raise Refused("INVALID_FIELD", f"the entry's time is not the signed time {data.time}", path="$.data.time")


def _term_started(event: Event, state: Layer, _: StreamState | None) -> None:
    """A node declares that it leads. Terms are numbered, so if two nodes declare it at once, one is refused."""
    data = typed(event, authority.TermStarted)
    if event.author != data.node or not registry.is_node(state, data.node):
        raise Refused("NOT_AUTHORIZED", f"{event.author} is not the node {data.node} of the term", name=event.author)
    before = state.record(keys.TERM_KEY)
    number = 1 if before is None else before.number + 1
    if data.term != number:
        raise Refused("TRANSITION_NOT_ALLOWED", f"the next term is {number}, not {data.term}", term=number)
    state.put(keys.TERM_KEY, registry.Term(number, data.node, event.index))


def _invited(event: Event, state: Layer, _: StreamState | None) -> None:
    """An admin may invite the agents that they may register. The token's keys belong to that name for good."""
    data = typed(event, authority.AgentInvited)
    _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    until_ms = registry.to_ms(data.expires_at)
    if until_ms <= event.accepted_ms:
        message = "the invitation expires in the past: choose a later expires_at"
        raise Refused("INVALID_FIELD", message, path="$.data.expires_at")
    if state.key(data.token_key) is not None:
        raise Refused("KEY_EXISTS", "this token is already used: create another invitation", key=data.token_key)
    _take_bus_key(state, data.name, data.nkey)
    state.put(
        key_key(data.token_key),
        registry.KeyRecord(registry.INVITATION_KEYS, is_identity=False, since_index=event.index),
    )
    span, roles = Span(event.accepted_ms, until_ms), frozenset(data.roles)
    by = event.author, event.key
    record = registry.InvitationRecord(data.name, roles, data.token_key, data.nkey, event.index, span, *by)
    state.put(invitation_key(data.name), record)


def _invitation_revoked(event: Event, state: Layer, _: StreamState | None) -> None:
    """An admin revokes an invitation, expired or not, unless it was used."""
    data = typed(event, authority.AgentInvitationRevoked)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.name)
    invitation = _known_invitation(state, data.name)
    if invitation.ended_as is not None:
        message = f"the invitation of {data.name} was already {invitation.ended_as} at entry {invitation.ended_index}"
        hint = f": to remove the agent, run `deed agent remove {data.name}`" if invitation.ended_as == "used" else ""
        raise Refused("TRANSITION_NOT_ALLOWED", message + hint, name=data.name, index=invitation.ended_index)
    state.put(invitation_key(data.name), invitation.ended(event.index, "revoked"))


def _registered(event: Event, state: Layer, _: StreamState | None) -> None:
    """An admin registers agents, a node registers services, and an invited agent registers itself."""
    data = typed(event, authority.AgentRegistered)
    if data.token_proof is not None:
        _use_invitation(event, data, state)
    elif data.roles != ["service"] or not registry.is_node(state, event.author):
        _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    _take_bus_key(state, data.name, data.nkey)
    state.put(
        agent_key(data.name), registry.AgentRecord(data.name, data.key, frozenset(data.roles), data.nkey, data.ai_id)
    )
    state.put(key_key(data.key), registry.KeyRecord(data.name, is_identity=True, since_index=event.index))
    if (data.checkpoint_key is not None) != (registry.NODE_ROLE in data.roles):
        message = "a node needs a checkpoint key, and other agents must not have one"
        raise Refused("INVALID_FIELD", message, path="$.data.checkpoint_key")
    if data.checkpoint_key is not None:
        whose = f"{registry.CHECKPOINT}/{data.name}"
        _require_new_key(event, state, whose, data.checkpoint_key, data.checkpoint_proof or "")
        _put_checkpoint_key(event, state, data.checkpoint_key)


def _use_invitation(event: Event, data: authority.AgentRegistered, state: Layer) -> None:
    """Let an invited agent register itself. Nothing before this has checked that the key in the event signed it."""
    if (event.author, event.key) != (data.name, data.key):
        message = f"an invited agent must sign its registration as {data.name}, with the key that it registers"
        raise Refused("AUTHOR_MISMATCH", message, name=data.name)
    invitation = _known_invitation(state, data.name)
    invitation.check(event.accepted_ms, state)
    if frozenset(data.roles) != invitation.roles or len(data.roles) != len(invitation.roles):
        invited_as = ", ".join(sorted(invitation.roles)) or "no role"
        message = f"{data.name} was invited with {invited_as}: register with exactly these roles"
        raise Refused("NOT_INVITED", message, name=data.name, how="roles")
    signed = joining(event.ledger, data.name, bytes.fromhex(data.key))
    if not verify(bytes.fromhex(invitation.token_key), signed, bytes.fromhex(data.token_proof or "")):
        message = f"the token does not match the invitation of {data.name} at entry {invitation.index}"
        raise Refused("SIGNATURE_INVALID", message, path="$.data.token_proof")
    state.put(invitation_key(data.name), invitation.ended(event.index, "used"))


def _known_invitation(state: Layer, name: str) -> registry.InvitationRecord:
    invitation = state.record(invitation_key(name))
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


def _removed(event: Event, state: Layer, _: StreamState | None) -> None:
    """An admin removes an agent. Its session keys end with its identity key."""
    data = typed(event, authority.AgentRemoved)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if data.agent in registry.RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"{data.agent} cannot be removed", name=data.agent)
    _end_key(state, agent.key, event, "removed")
    if registry.NODE_ROLE in agent.roles:
        _end_checkpoint_key(event, state, data.agent, "removed")
    state.put(agent_key(data.agent), replace(agent, roles=frozenset(), removed_index=event.index))


def _role_changed(event: Event, state: Layer, _: StreamState | None) -> None:
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
    roles = agent.roles | {data.role} if is_granted else agent.roles - {data.role}
    state.put(agent_key(data.agent), replace(agent, roles=roles))


def _key_delegated(event: Event, state: Layer, _: StreamState | None) -> None:
    """An agent delegates a key of its own."""
    data = typed(event, authority.KeyDelegated)
    _require_agent_stream(event, event.author)
    if registry.to_ms(data.expires_at) <= event.accepted_ms:
        message = "the session key expires in the past: choose a later expires_at"
        raise Refused("KEY_EXPIRED", message, expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)
    state.put(key_key(data.key), registry.delegated(event.author, event.index, event.accepted_ms, data, event.key))


def _key_revoked(event: Event, state: Layer, _: StreamState | None) -> None:
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
    _end_key(state, data.key, event, "revoked")


def _key_rotated(event: Event, state: Layer, _: StreamState | None) -> None:
    """An agent replaces its own keys. Root replaces lost keys; for plain workers an admin may, too."""
    data = typed(event, authority.KeyRotated)
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if event.author not in (data.agent, registry.ROOT):
        require_role(event, state, "admin")
        if data.agent in registry.RESERVED_NAMES or agent.roles & {"admin", "human", "reviewer", registry.NODE_ROLE}:
            message = f"only root may replace the lost key of {data.agent}, because of its roles: add `--as root`"
            raise Refused("NOT_AUTHORIZED", message, name=data.agent)
    if data.agent == registry.ROOT != event.author:
        raise Refused("NOT_AUTHORIZED", "only the root key may replace the root key", name=registry.ROOT)
    _require_new_key(event, state, data.agent, data.key, data.proof)
    _take_bus_key(state, data.agent, data.nkey)
    _end_key(state, agent.key, event, "replaced")
    state.put(key_key(data.key), registry.KeyRecord(data.agent, is_identity=True, since_index=event.index))
    state.put(agent_key(data.agent), replace(agent, key=data.key, nkey=data.nkey))


def _checkpoint_key_rotated(event: Event, state: Layer, _: StreamState | None) -> None:
    """Root replaces the checkpoint key."""
    data = typed(event, authority.CheckpointKeyRotated)
    if event.author != registry.ROOT:
        raise Refused("NOT_AUTHORIZED", f"only root may sign {event.kind}: add `--as root`", name=event.author)
    _require_new_key(event, state, registry.CHECKPOINT, data.key, data.proof)
    _end_checkpoint_key(event, state, registry.NODE, "replaced")
    _put_checkpoint_key(event, state, data.key)


def _key_compromised(event: Event, state: Layer, _: StreamState | None) -> None:
    """An agent reports its own keys, an admin those of any agent, and only root those of root and node."""
    data = typed(event, authority.KeyCompromised)
    record = _known_key(event, state, data.key)
    if record.agent in registry.RESERVED_NAMES:
        if event.author != registry.ROOT:
            message = f"only root may report a key of {record.agent} as compromised: add `--as root`"
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
    ended = record.ended(event.index, "compromised")
    state.put(key_key(data.key), replace(ended, compromised_since=data.since, compromised_index=event.index))


def _known_key(event: Event, state: Layer, key: str) -> registry.KeyRecord:
    record = state.key(key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered here: `deed key list` shows the keys", key=key)
    if record.agent == registry.CHECKPOINT_KEYS:
        message = "a checkpoint key can only be replaced: run `deed key rotate --checkpoint`"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    if record.agent == registry.INVITATION_KEYS:
        message = "this is the key of an invitation: revoke the invitation (`deed agent invite --revoke`)"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    _require_agent_stream(event, record.agent)
    return record


def _end_key(state: Layer, key: str, event: Event, how: registry.KeyEnd) -> None:
    if (record := state.key(key)) is not None:
        state.put(key_key(key), record.ended(event.index, how))


def _put_checkpoint_key(event: Event, state: Layer, key: str) -> None:
    state.put(key_key(key), registry.KeyRecord(registry.CHECKPOINT_KEYS, is_identity=False, since_index=event.index))
    state.put(keys.CHECKPOINT_KEYS_KEY, state.checkpoint_keys().after(event.index, event.data))


def _end_checkpoint_key(event: Event, state: Layer, node: str, how: registry.KeyEnd) -> None:
    active = state.checkpoint_keys()
    for record in active.keys:
        if record.node == node:
            _end_key(state, record.key, event, how)
    state.put(keys.CHECKPOINT_KEYS_KEY, active.ended(event.index, node))


def _take_bus_key(state: Layer, agent: str, nkey: str | None) -> None:
    """Refuse a bus key that any agent has or had: a server would admit one user by it and shut out the other."""
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
        raise Refused("KEY_EXISTS", "this key is or was registered already: create another", key=key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the proof does not show that {agent} has this key", path="$.data.proof")


OF_KIND: Final[dict[str, Rule]] = {
    "ledger.created": _created,
    "ledger.history_reset": _history_reset,
    "ledger.clock_set": _clock_set,
    "ledger.term_started": _term_started,
    "agent.invited": _invited,
    "agent.invitation_revoked": _invitation_revoked,
    "agent.registered": _registered,
    "agent.removed": _removed,
    "role.granted": _role_changed,
    "role.revoked": _role_changed,
    "key.delegated": _key_delegated,
    "key.revoked": _key_revoked,
    "key.rotated": _key_rotated,
    "key.compromised": _key_compromised,
    "checkpoint_key.rotated": _checkpoint_key_rotated,
}
