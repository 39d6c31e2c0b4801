"""The fold of agents: one state an agent, with its roles (sorted: sets have no order) and every key it ever had."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ledger.events import KINDS
from ledger.events import authority as kinds
from ledger.events.body import Event
from ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT, KeyEnd
from projections.projection import Projection, Row, Rows, Table, json_text, row_of
from projections.views import VIEW_VERSIONS


class AgentRow(Row, frozen=True):
    """An agent; ``roles`` is JSON. One that was removed stays, without roles."""

    name: str
    roles: str
    key: str
    nkey: str | None
    ai_id: str
    registered_index: int
    registered_ms: int
    removed_index: int | None
    removed_because: str | None


class KeyRow(Row, frozen=True):
    """A key of an agent, or (``sort`` is ``checkpoint``) of the ledger's checkpoints; its scope is JSON.

    ``ended_as`` is ``revoked``, ``replaced``, ``compromised`` or ``removed``, at ``ended_index`` by ``ended_by``. What
    it signed since ``suspect_since`` is suspect, as the entry ``suspect_index`` says.
    """

    agent: str
    key: str
    sort: str
    since_index: int
    since_ms: int
    expires_at: str | None
    kinds: str
    streams: str
    max_events: int | None
    delegated_by: str | None
    ended_index: int | None
    ended_as: str | None
    ended_by: str | None
    ended_because: str | None
    suspect_since: int | None
    suspect_index: int | None


AGENTS: Final = Table("agents", AgentRow, primary_key=("name",), owner="name")
KEYS: Final = Table(
    "agent_keys", KeyRow, primary_key=("agent", "key"), owner="agent", indexes=(("key",), ("suspect_since",))
)


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    """One key of an agent: an ``identity``, or a delegated ``session`` key with its scope."""

    key: str
    sort: str
    since_index: int
    since_ms: int
    expires_at: str | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_events: int | None = None
    delegated_by: str | None = None
    ended_index: int | None = None
    ended_as: KeyEnd | None = None
    ended_by: str | None = None
    ended_because: str | None = None
    suspect_since: int | None = None
    suspect_index: int | None = None


class AgentState(msgspec.Struct, frozen=True, array_like=True):
    """An agent as its events left it."""

    name: str
    roles: tuple[str, ...] = ()
    key: str = ""
    nkey: str | None = None
    ai_id: str = ""
    registered_index: int = -1
    registered_ms: int = 0
    removed_index: int | None = None
    removed_because: str | None = None
    keys: tuple[KeyState, ...] = ()


def keys(event: Event) -> tuple[str, ...]:
    """Return the agents an event is about: the ledger's creation registers two, and names the checkpoint key."""
    if event.kind == "ledger.created":
        return (ROOT, NODE, CHECKPOINT)
    return (event.name or CHECKPOINT,)


def fold(state: AgentState, event: Event) -> AgentState:
    """Return the agent after one more event about it."""
    match event.data:
        case kinds.LedgerCreated() as data:
            if state.name == CHECKPOINT:
                return _with_key(state, KeyState(data.checkpoint_key, "checkpoint", event.index, event.accepted_ms))
            is_root = state.name == ROOT
            return _registered(state, event, data.root if is_root else data.node_key, ("admin",) if is_root else ())
        case kinds.AgentRegistered() as data:
            state = _registered(state, event, data.key, tuple(sorted(set(data.roles))))
            return msgspec.structs.replace(state, nkey=data.nkey, ai_id=data.ai_id)
        case kinds.RoleGranted() as data:
            return msgspec.structs.replace(state, roles=tuple(sorted({*state.roles, data.role})))
        case kinds.RoleRevoked() as data:
            return msgspec.structs.replace(state, roles=tuple(role for role in state.roles if role != data.role))
        case kinds.KeyDelegated() as data:
            delegated = KeyState(
                key=data.key,
                sort="session",
                since_index=event.index,
                since_ms=event.accepted_ms,
                expires_at=data.expires_at,
                kinds=tuple(data.kinds),
                streams=tuple(data.streams),
                max_events=data.max_events,
                delegated_by=event.key,
            )
            return _with_key(state, delegated)
        case kinds.AgentRemoved() as data:
            state = _ended(state, event, state.key, "removed", data.reason)
            removed = {"removed_index": event.index, "removed_because": data.reason}
            return msgspec.structs.replace(state, roles=(), **removed)
        case _:  # what else is handled changes keys
            return _with_changed_keys(state, event)


def _with_changed_keys(state: AgentState, event: Event) -> AgentState:
    match event.data:
        case kinds.KeyRevoked() as data:
            return _ended(state, event, data.key, "revoked", data.reason)
        case kinds.KeyRotated() as data:
            state = _ended(state, event, state.key, "replaced", data.reason)
            state = msgspec.structs.replace(state, key=data.key, nkey=data.nkey)
            return _with_key(state, KeyState(data.key, "identity", event.index, event.accepted_ms))
        case kinds.CheckpointKeyRotated() as data:
            state = _ended(state, event, state.keys[-1].key, "replaced", data.reason)
            return _with_key(state, KeyState(data.key, "checkpoint", event.index, event.accepted_ms))
        case kinds.KeyCompromised() as data:
            state = _ended(state, event, data.key, "compromised", data.reason)
            return _changed(state, data.key, suspect_since=data.since, suspect_index=event.index)
        case _:  # no other kind is handled
            return state


def rows(state: AgentState) -> Rows:
    """Return the agent's row and one for each of its keys."""
    keys_of_agent = (
        row_of(KeyRow, key, agent=state.name, kinds=json_text(key.kinds), streams=json_text(key.streams))
        for key in state.keys
    )
    if state.name == CHECKPOINT:  # no agent, but has keys
        return tuple(keys_of_agent)
    return (row_of(AgentRow, state, roles=json_text(state.roles)), *keys_of_agent)


def _with_key(state: AgentState, key: KeyState) -> AgentState:
    return msgspec.structs.replace(state, keys=(*state.keys, key))


def _ended(state: AgentState, event: Event, key: str, how: KeyEnd, because: str) -> AgentState:
    """Return the agent after a key ended; what ended already stays as it is."""
    if any(one.key == key and one.ended_index is not None for one in state.keys):
        return state
    end = {"ended_index": event.index, "ended_as": how, "ended_by": event.author, "ended_because": because}
    return _changed(state, key, **end)


def _changed(state: AgentState, key: str, **fields: Any) -> AgentState:
    changed = (msgspec.structs.replace(one, **fields) if one.key == key else one for one in state.keys)
    return msgspec.structs.replace(state, keys=tuple(changed))


def _registered(state: AgentState, event: Event, key: str, roles: tuple[str, ...]) -> AgentState:
    return AgentState(
        name=state.name,
        roles=roles,
        key=key,
        registered_index=event.index,
        registered_ms=event.accepted_ms,
        keys=(KeyState(key, "identity", event.index, event.accepted_ms),),
    )


VIEW: Final = Projection(
    name="agents",
    version=VIEW_VERSIONS["agents"],
    handles=frozenset(name for name, kind in KINDS.items() if kind.stream == "agent")
    | {"ledger.created", "checkpoint_key.rotated"},
    tables=(AGENTS, KEYS),
    state=AgentState,
    keys=keys,
    fold=fold,
    rows=rows,
)
