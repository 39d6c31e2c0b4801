"""The fold of agents: a state for each agent, with its sorted roles (a set has no order) and every key it ever had."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.ledger.events import authority as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT, KeyEnd
from deedbook.projections.views.projection import Projection, Row, Table, json_text, kinds_of, unfolded
from deedbook.projections.views.registry import VIEW_VERSIONS


class AgentRow(Row, frozen=True):
    """An agent; ``roles`` is JSON. A removed agent keeps its row, without roles."""

    name: str
    roles: str
    key: str
    registered_index: int
    registered_ms: int
    nkey: str | None = None
    ai_id: str = ""
    removed_index: int | None = None
    removed_because: str | None = None


class KeyRow(Row, frozen=True):
    """A key of an agent or, if ``type`` is ``checkpoint``, of a node's checkpoints; its scope is JSON.

    ``type`` is ``identity``, or ``session`` for a delegated key. ``ended_as`` is ``revoked``, ``replaced``,
    ``compromised`` or ``removed``; ``ended_by`` ended it at ``ended_index``. Signatures from ``compromised_since`` on
    are compromised, as the entry ``compromised_index`` reports.
    """

    agent: str
    key: str
    type: str
    since_index: int
    since_ms: int
    expires_at: str | None = None
    kinds: str = "[]"
    streams: str = "[]"
    max_events: int | None = None
    delegated_by: str | None = None
    ended_index: int | None = None
    ended_as: KeyEnd | None = None
    ended_by: str | None = None
    ended_because: str | None = None
    compromised_since: int | None = None
    compromised_index: int | None = None


class InvitationRow(Row, frozen=True):
    """The last invitation of a name; ``roles`` is JSON. ``ended_as`` is ``used`` or ``revoked``, by ``ended_by``."""

    name: str
    invited_roles: str
    invited_index: int
    invited_ms: int
    invited_by: str
    expires_at: str
    ended_index: int | None = None
    ended_as: str | None = None
    ended_by: str | None = None
    ended_because: str | None = None


AGENTS: Final = Table("agents", AgentRow, primary_key=("name",), owner="name")
KEYS: Final = Table(
    "agent_keys", KeyRow, primary_key=("agent", "key"), owner="agent", indexes=(("key",), ("compromised_since",))
)


INVITATIONS: Final = Table("invitations", InvitationRow, primary_key=("name",), owner="name")


class AgentState(msgspec.Struct, frozen=True, array_like=True):
    """An agent after its events, with all its keys. The name ``CHECKPOINT`` is not an agent, but has keys."""

    name: str
    agent: AgentRow | None = None
    keys: tuple[KeyRow, ...] = ()
    invitation: InvitationRow | None = None


def keys(event: Event) -> tuple[str, ...]:
    """Return the keys of the states that an event changes: names of agents, or CHECKPOINT for the checkpoint keys.

    ``ledger.created`` registers the agents root and node, and sets the first checkpoint key.
    """
    if event.kind == "ledger.created":
        return (ROOT, NODE, CHECKPOINT)
    return (event.name or CHECKPOINT,)


def fold(state: AgentState, event: Event) -> AgentState:
    """Return the state of an agent, or of the checkpoint keys, after one more event."""
    match event.data:
        case kinds.LedgerCreated() as data:
            if state.name == CHECKPOINT:
                return _with_key(state, event, data.checkpoint_key, "checkpoint")
            is_root = state.name == ROOT
            return _registered(state, event, data.root if is_root else data.node_key, ["admin"] if is_root else [])
        case kinds.AgentRegistered() as data:
            return _joined(state, event, data)
        case kinds.RoleGranted() as data:
            return _with(state, roles=json_text(sorted({*_roles(state), data.role})))
        case kinds.RoleRevoked() as data:
            return _with(state, roles=json_text([role for role in _roles(state) if role != data.role]))
        case kinds.KeyDelegated() as data:
            return _with_key(
                state,
                event,
                data.key,
                "session",
                expires_at=data.expires_at,
                kinds=json_text(data.kinds),
                streams=json_text(data.streams),
                max_events=data.max_events,
                delegated_by=event.key,
            )
        case kinds.AgentRemoved() as data:
            for key in [row.key for row in state.keys if row.type != "session"]:
                state = _ended(state, event, key, "removed", data.reason)
            return _with(state, roles="[]", removed_index=event.index, removed_because=data.reason)
        case _:  # the other handled kinds change keys or invitations
            return _with_changed_keys(state, event)


def _with_changed_keys(state: AgentState, event: Event) -> AgentState:
    match event.data:
        case kinds.AgentInvited() as data:
            roles = json_text(sorted(set(data.roles)))
            row = InvitationRow(data.name, roles, event.index, event.accepted_ms, event.author, data.expires_at)
            return msgspec.structs.replace(state, invitation=row)
        case kinds.AgentInvitationRevoked() as data:
            return _uninvited(state, event, "revoked", data.reason)
        case kinds.KeyRevoked() as data:
            return _ended(state, event, data.key, "revoked", data.reason)
        case kinds.KeyRotated() as data:
            state = _ended(state, event, _key(state), "replaced", data.reason)
            return _with_key(_with(state, key=data.key, nkey=data.nkey), event, data.key, "identity")
        case kinds.CheckpointKeyRotated() as data:
            state = _ended(state, event, _key(state), "replaced", data.reason)
            return _with_key(state, event, data.key, "checkpoint")
        case kinds.KeyCompromised() as data:
            state = _ended(state, event, data.key, "compromised", data.reason)
            return _changed(state, data.key, compromised_since=data.since, compromised_index=event.index)
        case _:  # event data is an open set; the handled kinds are listed in VIEW
            raise unfolded(event)


def _roles(state: AgentState) -> list[str]:
    return [] if state.agent is None else msgspec.json.decode(state.agent.roles)


def _key(state: AgentState) -> str:
    type_ = CHECKPOINT if state.name == CHECKPOINT else "identity"
    return next((row.key for row in reversed(state.keys) if row.type == type_), "")


def _with(state: AgentState, **fields: Any) -> AgentState:
    agent = None if state.agent is None else msgspec.structs.replace(state.agent, **fields)
    return msgspec.structs.replace(state, agent=agent)


def _with_key(state: AgentState, event: Event, key: str, type_: str, **scope: Any) -> AgentState:
    row = KeyRow(state.name, key, type_, event.index, event.accepted_ms, **scope)
    return msgspec.structs.replace(state, keys=(*state.keys, row))


def _ended(state: AgentState, event: Event, key: str, how: KeyEnd, because: str) -> AgentState:
    """Return the agent after a key ended; a key that ended before stays as it is."""
    if any(row.key == key and row.ended_index is not None for row in state.keys):
        return state
    end = {"ended_index": event.index, "ended_as": how, "ended_by": event.author, "ended_because": because}
    return _changed(state, key, **end)


def _changed(state: AgentState, key: str, **fields: Any) -> AgentState:
    changed = (msgspec.structs.replace(row, **fields) if row.key == key else row for row in state.keys)
    return msgspec.structs.replace(state, keys=tuple(changed))


def _registered(state: AgentState, event: Event, key: str, roles: list[str]) -> AgentState:
    agent = AgentRow(state.name, json_text(roles), key, event.index, event.accepted_ms)
    return _with_key(AgentState(state.name, agent, invitation=state.invitation), event, key, "identity")


def _joined(state: AgentState, event: Event, data: kinds.AgentRegistered) -> AgentState:
    if data.token_proof is not None:
        state = _uninvited(state, event, "used")
    state = _registered(state, event, data.key, sorted(set(data.roles)))
    if data.checkpoint_key is not None:
        state = _with_key(state, event, data.checkpoint_key, CHECKPOINT)
    return _with(state, nkey=data.nkey, ai_id=data.ai_id)


def _uninvited(state: AgentState, event: Event, how: str, because: str | None = None) -> AgentState:
    if state.invitation is None:
        return state
    end = {"ended_index": event.index, "ended_as": how, "ended_by": event.author, "ended_because": because}
    return msgspec.structs.replace(state, invitation=msgspec.structs.replace(state.invitation, **end))


VIEW: Final = Projection(
    name="agents",
    version=VIEW_VERSIONS["agents"],
    handles=kinds_of("agent") | {"ledger.created", "checkpoint_key.rotated"},
    tables=(AGENTS, KEYS, INVITATIONS),
    state=AgentState,
    keys=keys,
    fold=fold,
    rows=lambda state: [row for row in (state.agent, state.invitation, *state.keys) if row is not None],
)
