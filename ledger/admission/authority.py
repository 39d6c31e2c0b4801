"""The rules of agents, roles and keys: who may say who signs. Replayable, as all of ``admission.rules``.

- An admin registers agents, or invites them; grants roles, revokes keys and removes agents; an agent revokes its own
  keys. Who was invited registers itself, once, with the very name and roles of the invitation.
- Nodes are registered or invited by root alone, because each of them signs checkpoints. A node signs terms and
  registers services; it has no other role, and its checkpoint key ends when it is removed.
- ``root``, ``node`` and the checkpoint keys never end, they are replaced: only root says so of them.
- Whoever may put a key of his in the place of another's could approve in that one's name. So a lost key is replaced by
  root; by an admin only for agents that are neither human, reviewer, admin nor node.
- A key compromised is declared by its agent (with whatever key it still has: the declaration only lowers trust, and
  may be repeated only with an earlier index) or by an admin; of root's and the node's own once they are replaced.
- Identity, session, checkpoint and bus keys are each used once and for one purpose: a key that was ever any of them
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
from deedbook.ledger.lifecycle import authority as life
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import agent_key, invitation_key, key_key
from deedbook.ledger.log.records import StreamState

D = TypeVar("D", bound=EventData)
Life: TypeAlias = StreamState | None
Rule: TypeAlias = "Callable[[Event, Layer, Life], Life]"


def typed(event: Event, wanted: type[D]) -> D:
    """Return the event's data as its kind's type."""
    assert isinstance(event.data, wanted)  # noqa: S101 - the table pairs each kind with its data type
    return event.data


def require_role(event: Event, state: Layer, *roles: str) -> None:
    """Refuse an author who has none of ``roles``."""
    agent = state.agent(event.author)
    if agent is None or agent.roles.isdisjoint(roles):
        wanted = " or ".join(roles)
        hint = "act as who has it (`deed agent list`)"
        message = f"{event.kind} needs the role {wanted}; {event.author} lacks it: {hint}"
        raise Refused("NOT_AUTHORIZED", message, role=wanted)


def known_agent(state: Layer, name: str) -> life.AgentRecord:
    """Return an agent that is registered and was not removed."""
    agent = state.agent(name)
    if agent is None:
        raise Refused("AGENT_UNKNOWN", f"there is no agent {name} (`deed agent add {name}` registers one)", name=name)
    if agent.removed_index is not None:
        message = f"{name} was removed at entry {agent.removed_index}: name another agent (`deed agent list`)"
        raise Refused("AGENT_UNKNOWN", message, name=name, index=agent.removed_index)
    return agent


def _created(event: Event, state: Layer, _: Life) -> None:
    """Entry 0, signed by the root key that it names."""
    data = typed(event, authority.LedgerCreated)
    if event.index != 0 or event.key != data.root or event.author != life.ROOT:
        raise Refused("NOT_AUTHORIZED", "ledger.created is entry 0, signed by the root key it names, as root")
    if event.ledger != ledger_id(bytes.fromhex(data.root)):
        raise Refused("WRONG_LEDGER", "the ledger's id is not that of its root key", ledger=event.ledger)
    if len({data.root, data.node_key, data.checkpoint_key}) != len(("root", "node", "checkpoint")):
        raise Refused("INVALID_FIELD", "root, node and checkpoint keys differ from each other", path="$.data")
    state.ledger = event.ledger
    for name, key, roles in ((life.ROOT, data.root, ("admin",)), (life.NODE, data.node_key, ())):
        state.put(agent_key(name), life.AgentRecord(name, key, frozenset(roles)))
        state.put(key_key(key), life.KeyRecord(name, is_identity=True, since_index=0))
    _put_checkpoint_key(event, state, data.checkpoint_key)


def _history_reset(event: Event, _state: Layer, _: Life) -> None:
    """The root alone says that acknowledged entries are given up.

    Which head that was cannot be asked of this log, which does not hold it: its size may be smaller than this log's
    (a copy was put back and written to) or larger.
    """
    data = typed(event, authority.HistoryReset)
    if event.author != life.ROOT:
        raise Refused("NOT_AUTHORIZED", f"only {life.ROOT} signs ledger.history_reset", name=event.author)
    if data.abandoned_size == 0:
        raise Refused("INVALID_FIELD", "a log without entries has no head to abandon", path="$.data.abandoned_size")


def _clock_set(event: Event, _state: Layer, _: Life) -> None:
    """The root alone says what time it is; the entry's own time is the one that was signed."""
    data = typed(event, authority.ClockSet)
    if event.author != life.ROOT:
        message = f"only {life.ROOT} sets the ledger's clock: add `--as {life.ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    if event.accepted_ms != life.to_ms(data.time):
        raise Refused("INVALID_FIELD", f"the entry's time is not {data.time}, which was signed", path="$.data.time")


def _term_started(event: Event, state: Layer, _: Life) -> None:
    """A node says that it leads; terms are counted, so that of two who say so at once one is refused."""
    data = typed(event, authority.TermStarted)
    if event.author != data.node or not life.is_node(state, data.node):
        raise Refused("NOT_AUTHORIZED", f"{event.author} is not the node {data.node}", name=event.author)
    before = state.record(keys.TERM_KEY)
    number = 1 if before is None else before.number + 1
    if data.term != number:
        raise Refused("TRANSITION_NOT_ALLOWED", f"the next term is {number}, not {data.term}", term=number)
    state.put(keys.TERM_KEY, life.Term(number, data.node, event.index))


def _invited(event: Event, state: Layer, _: Life) -> None:
    """An admin invites whom he could register, for as long as he could; the token's keys are of that name for good."""
    data = typed(event, authority.AgentInvited)
    _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    until_ms = life.to_ms(data.expires_at)
    if until_ms <= event.accepted_ms:
        raise Refused("INVALID_FIELD", "the invitation would have expired already", path="$.data.expires_at")
    if state.key(data.token_key) is not None:
        raise Refused("KEY_EXISTS", "this token was used for an invitation before: make another", key=data.token_key)
    _take_bus_key(state, data.name, data.nkey)
    state.put(key_key(data.token_key), life.KeyRecord(life.INVITATION_KEYS, is_identity=False, since_index=event.index))
    span, roles = Span(event.accepted_ms, until_ms), frozenset(data.roles)
    by = event.author, event.key
    record = life.InvitationRecord(data.name, roles, data.token_key, data.nkey, event.index, span, *by)
    state.put(invitation_key(data.name), record)


def _invitation_revoked(event: Event, state: Layer, _: Life) -> None:
    """An admin takes an invitation back, expired or not, unless it was used."""
    data = typed(event, authority.AgentInvitationRevoked)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.name)
    invitation = _known_invitation(state, data.name)
    if invitation.ended_as is not None:
        message = f"the invitation of {data.name} was {invitation.ended_as} at entry {invitation.ended_index}"
        hint = f": to shut the agent out, `deed agent remove {data.name}`" if invitation.ended_as == "used" else ""
        raise Refused("TRANSITION_NOT_ALLOWED", message + hint, name=data.name, index=invitation.ended_index)
    state.put(invitation_key(data.name), invitation.ended(event.index, "revoked"))


def _registered(event: Event, state: Layer, _: Life) -> None:
    """An admin registers agents, a node service agents, and who was invited itself; the key proves whose it is."""
    data = typed(event, authority.AgentRegistered)
    if data.token_proof is not None:
        _use_invitation(event, data, state)
    elif data.roles != ["service"] or not life.is_node(state, event.author):
        _require_may_register(event, state, data.roles)
    _require_free_name(event, state, data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    _take_bus_key(state, data.name, data.nkey)
    state.put(agent_key(data.name), life.AgentRecord(data.name, data.key, frozenset(data.roles), data.nkey, data.ai_id))
    state.put(key_key(data.key), life.KeyRecord(data.name, is_identity=True, since_index=event.index))
    if (data.checkpoint_key is not None) != (life.NODE_ROLE in data.roles):
        raise Refused("INVALID_FIELD", "a node, and nobody else, has a checkpoint key", path="$.data.checkpoint_key")
    if data.checkpoint_key is not None:
        whose = f"{life.CHECKPOINT}/{data.name}"
        _require_new_key(event, state, whose, data.checkpoint_key, data.checkpoint_proof or "")
        _put_checkpoint_key(event, state, data.checkpoint_key)


def _use_invitation(event: Event, data: authority.AgentRegistered, state: Layer) -> None:
    """Let an agent register itself as it was invited; that the key in the event has signed it, nobody asked before."""
    if (event.author, event.key) != (data.name, data.key):
        message = f"who was invited signs as {data.name}, with the key that is registered"
        raise Refused("AUTHOR_MISMATCH", message, name=data.name)
    invitation = _known_invitation(state, data.name)
    invitation.check(event.accepted_ms, state)
    if frozenset(data.roles) != invitation.roles or len(data.roles) != len(invitation.roles):
        message = f"{data.name} was invited as {', '.join(sorted(invitation.roles)) or 'an agent without a role'}"
        raise Refused("NOT_INVITED", message, name=data.name, how="roles")
    signed = joining(event.ledger, data.name, bytes.fromhex(data.key))
    if not verify(bytes.fromhex(invitation.token_key), signed, bytes.fromhex(data.token_proof or "")):
        message = f"the token is not that of the invitation of {data.name} at entry {invitation.index}"
        raise Refused("SIGNATURE_INVALID", message, path="$.data.token_proof")
    state.put(invitation_key(data.name), invitation.ended(event.index, "used"))


def _known_invitation(state: Layer, name: str) -> life.InvitationRecord:
    invitation = state.record(invitation_key(name))
    if invitation is None:
        message = f"nobody invited {name}: an admin does (`deed agent invite {name}`)"
        raise Refused("NOT_INVITED", message, name=name, how="unknown")
    return invitation


def _require_may_register(event: Event, state: Layer, roles: list[authority.Role]) -> None:
    if life.NODE_ROLE not in roles:
        require_role(event, state, "admin")
    elif event.author != life.ROOT:
        message = f"a node signs checkpoints, so only {life.ROOT} brings one in: add `--as {life.ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    elif roles != [life.NODE_ROLE]:
        raise Refused("INVALID_FIELD", "a node has no other role", path="$.data.roles")


def _require_free_name(event: Event, state: Layer, name: str) -> None:
    _require_agent_stream(event, name)
    before = state.agent(name)
    if before is not None and before.removed_index is not None:
        message = f"{name} was removed at entry {before.removed_index}: a name is never used again, choose another"
        raise Refused("AGENT_EXISTS", message, name=name, index=before.removed_index)
    if name in life.RESERVED_NAMES or before is not None:
        raise Refused("AGENT_EXISTS", f"there is an agent {name} already", name=name)


def _removed(event: Event, state: Layer, _: Life) -> None:
    """An admin removes an agent; its session keys end with its identity key."""
    data = typed(event, authority.AgentRemoved)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if data.agent in life.RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"{data.agent} cannot be removed", name=data.agent)
    _end_key(state, agent.key, event, "removed")
    if life.NODE_ROLE in agent.roles:
        _end_checkpoint_key(event, state, data.agent, "removed")
    state.put(agent_key(data.agent), replace(agent, roles=frozenset(), removed_index=event.index))


def _role_changed(event: Event, state: Layer, _: Life) -> None:
    """An admin grants roles and takes them back; the root keeps its own."""
    is_granted = isinstance(event.data, authority.RoleGranted)
    data = event.data if is_granted else typed(event, authority.RoleRevoked)
    require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if data.agent == life.ROOT and not is_granted:
        raise Refused("NOT_AUTHORIZED", "the root keeps its role", name=life.ROOT)
    if life.NODE_ROLE in {data.role, *agent.roles}:
        message = "a node is one from its registration until it is removed, and has no other role"
        raise Refused("NOT_AUTHORIZED", message, name=data.agent)
    roles = agent.roles | {data.role} if is_granted else agent.roles - {data.role}
    state.put(agent_key(data.agent), replace(agent, roles=roles))


def _key_delegated(event: Event, state: Layer, _: Life) -> None:
    """An agent delegates a key of its own."""
    data = typed(event, authority.KeyDelegated)
    _require_agent_stream(event, event.author)
    if life.to_ms(data.expires_at) <= event.accepted_ms:
        raise Refused("KEY_EXPIRED", "the session key would be expired already", expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)
    state.put(key_key(data.key), life.delegated(event.author, event.index, event.accepted_ms, data, event.key))


def _key_revoked(event: Event, state: Layer, _: Life) -> None:
    """An agent revokes its own keys, an admin anybody's."""
    data = typed(event, authority.KeyRevoked)
    record = _known_key(event, state, data.key)
    if record.agent != event.author:
        require_role(event, state, "admin")
    if record.agent in life.RESERVED_NAMES or life.is_node(state, record.agent):
        message = f"a key of {record.agent} is not revoked but replaced: run `deed key rotate --as {record.agent}`"
        raise Refused("NOT_AUTHORIZED", message, name=record.agent)
    if record.ended_index is not None:
        message = f"the key was {record.ended_as} at entry {record.ended_index} and signs nothing"
        raise Refused("KEY_REVOKED", message, key=data.key, index=record.ended_index)
    _end_key(state, data.key, event, "revoked")


def _key_rotated(event: Event, state: Layer, _: Life) -> None:
    """An agent replaces its own keys; lost ones are replaced by root, of mere workers by an admin, too."""
    data = typed(event, authority.KeyRotated)
    _require_agent_stream(event, data.agent)
    agent = known_agent(state, data.agent)
    if event.author not in (data.agent, life.ROOT):
        require_role(event, state, "admin")
        if data.agent in life.RESERVED_NAMES or agent.roles & {"admin", "human", "reviewer", life.NODE_ROLE}:
            message = f"{data.agent} approves, administers or leads: its lost key is replaced by root (`--as root`)"
            raise Refused("NOT_AUTHORIZED", message, name=data.agent)
    if data.agent == life.ROOT != event.author:
        raise Refused("NOT_AUTHORIZED", "only the root key replaces the root key", name=life.ROOT)
    _require_new_key(event, state, data.agent, data.key, data.proof)
    _take_bus_key(state, data.agent, data.nkey)
    _end_key(state, agent.key, event, "replaced")
    state.put(key_key(data.key), life.KeyRecord(data.agent, is_identity=True, since_index=event.index))
    state.put(agent_key(data.agent), replace(agent, key=data.key, nkey=data.nkey))


def _checkpoint_key_rotated(event: Event, state: Layer, _: Life) -> None:
    """Root replaces the key of checkpoints."""
    data = typed(event, authority.CheckpointKeyRotated)
    if event.author != life.ROOT:
        raise Refused("NOT_AUTHORIZED", f"{event.kind} is signed by root: add `--as root`", name=event.author)
    _require_new_key(event, state, life.CHECKPOINT, data.key, data.proof)
    _end_checkpoint_key(event, state, life.NODE, "replaced")
    _put_checkpoint_key(event, state, data.key)


def _key_compromised(event: Event, state: Layer, _: Life) -> None:
    """An agent says so of its own keys, an admin of anybody's, root alone of those of root and node."""
    data = typed(event, authority.KeyCompromised)
    record = _known_key(event, state, data.key)
    if record.agent in life.RESERVED_NAMES:
        if event.author != life.ROOT:
            raise Refused("NOT_AUTHORIZED", f"only root says so of a key of {record.agent}", name=record.agent)
    elif record.agent != event.author:
        require_role(event, state, "admin")
    if record.is_valid and (record.agent in life.RESERVED_NAMES or life.is_node(state, record.agent)):
        message = f"replace the key of {record.agent} first: run `deed key rotate --as {record.agent}`"
        raise Refused("NOT_AUTHORIZED", message, name=record.agent)
    if data.since > event.index:
        message = f"entry {data.since} does not exist yet: name the first entry that may not be its agent's"
        raise Refused("INVALID_FIELD", message, path="$.data.since")
    if record.suspect_since is not None and data.since >= record.suspect_since:
        message = f"the key is suspect since entry {record.suspect_since} already: only an earlier one changes that"
        raise Refused("TRANSITION_NOT_ALLOWED", message, since=record.suspect_since, index=record.suspect_index)
    ended = record.ended(event.index, "compromised")
    state.put(key_key(data.key), replace(ended, suspect_since=data.since, suspect_index=event.index))


def _known_key(event: Event, state: Layer, key: str) -> life.KeyRecord:
    record = state.key(key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered in this ledger: `deed key list` shows them", key=key)
    if record.agent == life.CHECKPOINT_KEYS:
        message = "a checkpoint key signs no events, it is replaced: run `deed key rotate --checkpoint`"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    if record.agent == life.INVITATION_KEYS:
        message = "the key of an invitation signs no events: take the invitation back (`deed agent invite --revoke`)"
        raise Refused("NOT_AUTHORIZED", message, key=key)
    _require_agent_stream(event, record.agent)
    return record


def _end_key(state: Layer, key: str, event: Event, how: life.KeyEnd) -> None:
    if (record := state.key(key)) is not None:
        state.put(key_key(key), record.ended(event.index, how))


def _put_checkpoint_key(event: Event, state: Layer, key: str) -> None:
    state.put(key_key(key), life.KeyRecord(life.CHECKPOINT_KEYS, is_identity=False, since_index=event.index))
    state.put(keys.CHECKPOINT_KEYS_KEY, state.checkpoint_keys().after(event.index, event.data))


def _end_checkpoint_key(event: Event, state: Layer, node: str, how: life.KeyEnd) -> None:
    active = state.checkpoint_keys()
    for one in active.keys:
        if one.node == node:
            _end_key(state, one.key, event, how)
    state.put(keys.CHECKPOINT_KEYS_KEY, active.ended(event.index, node))


def _take_bus_key(state: Layer, agent: str, nkey: str | None) -> None:
    """Refuse the bus key that somebody has, or had: a server lets one user in by it, and shuts out the other."""
    if nkey is None:
        return
    if (owner := state.record(keys.bus_key_key(nkey))) is not None:
        raise Refused("KEY_EXISTS", f"the bus key is, or was, that of {owner}: make another", path="$.data.nkey")
    state.put(keys.bus_key_key(nkey), agent)


def _require_agent_stream(event: Event, name: str) -> None:
    if event.name != name:
        raise Refused("INVALID_FIELD", f"{event.kind} about {name} belongs on agent/{name}", path="$.stream")


def _require_new_key(event: Event, state: Layer, agent: str, key: str, proof: str) -> None:
    if state.key(key) is not None:
        raise Refused("KEY_EXISTS", "this key is registered already, or was once: make another", key=key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the key does not prove that it belongs to {agent}", path="$.data.proof")


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
