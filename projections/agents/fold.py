"""The fold of agents: one state an agent, with its roles (sorted: sets have no order) and every key it ever had."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.events import authority as kinds
from ledger.events.body import Event
from ledger.lifecycle.authority import NODE, ROOT
from projections.projection import Projection, Row, Rows, Table, json_text, row_of
from projections.views import VIEW_VERSIONS


class AgentRow(Row, frozen=True):
    """An agent; ``roles`` is JSON."""

    name: str
    roles: str
    key: str
    nkey: str | None
    ai_id: str
    registered_index: int
    registered_ms: int


class KeyRow(Row, frozen=True):
    """A key of an agent; ``kinds`` and ``streams`` are JSON."""

    agent: str
    key: str
    sort: str
    since_index: int
    expires_at: str | None
    kinds: str
    streams: str
    max_events: int | None
    revoked_index: int | None
    revoked_because: str | None


AGENTS: Final = Table("agents", AgentRow, primary_key=("name",), owner="name")
KEYS: Final = Table("agent_keys", KeyRow, primary_key=("agent", "key"), owner="agent", indexes=(("key",),))


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    """One key of an agent: an ``identity`` or a delegated ``session`` key with its scope."""

    key: str
    sort: str
    since_index: int
    expires_at: str | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_events: int | None = None
    revoked_index: int | None = None
    revoked_because: str | None = None


class AgentState(msgspec.Struct, frozen=True, array_like=True):
    """An agent as its events left it."""

    name: str
    roles: tuple[str, ...] = ()
    key: str = ""
    nkey: str | None = None
    ai_id: str = ""
    registered_index: int = -1
    registered_ms: int = 0
    keys: tuple[KeyState, ...] = ()


def keys(event: Event) -> tuple[str, ...]:
    """Return the agents an event is about: the ledger's creation registers two."""
    return (ROOT, NODE) if event.kind == "ledger.created" else (event.name,)


def fold(state: AgentState, event: Event) -> AgentState:
    """Return the agent after one more event about it."""
    match event.data:
        case kinds.LedgerCreated() as data:
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
                expires_at=data.expires_at,
                kinds=tuple(data.kinds),
                streams=tuple(data.streams),
                max_events=data.max_events,
            )
            return msgspec.structs.replace(state, keys=(*state.keys, delegated))
        case kinds.KeyRevoked() as data:
            revoked = {"revoked_index": event.index, "revoked_because": data.reason}
            left = (msgspec.structs.replace(key, **revoked) if key.key == data.key else key for key in state.keys)
            return msgspec.structs.replace(state, keys=tuple(left))
        case _:  # no other kind is handled
            return state


def rows(state: AgentState) -> Rows:
    """Return the agent's row and one for each of its keys."""
    keys_of_agent = (
        row_of(KeyRow, key, agent=state.name, kinds=json_text(key.kinds), streams=json_text(key.streams))
        for key in state.keys
    )
    return (row_of(AgentRow, state, roles=json_text(state.roles)), *keys_of_agent)


def _registered(state: AgentState, event: Event, key: str, roles: tuple[str, ...]) -> AgentState:
    return AgentState(
        name=state.name,
        roles=roles,
        key=key,
        registered_index=event.index,
        registered_ms=event.accepted_ms,
        keys=(KeyState(key, "identity", event.index),),
    )


VIEW: Final = Projection(
    name="agents",
    version=VIEW_VERSIONS["agents"],
    handles=frozenset(
        {"ledger.created", "agent.registered", "role.granted", "role.revoked", "key.delegated", "key.revoked"}
    ),
    tables=(AGENTS, KEYS),
    state=AgentState,
    keys=keys,
    fold=fold,
    rows=rows,
)
