"""The view of agents: the gate's own records of agents, of all keys that they ever had, and of their invitations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec.structs import replace

from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT, AgentRecord, AgentRecords, KeyEnd, KeyRecord
from deedbook.projections.views.projection import Projection, Row, Table, json_text, kinds_of, row_of
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
    are compromised, as the entry ``compromised_index`` reports. ``protection`` is how an identity key is stored, as its
    registration claims: ``passphrase`` or ``none``.
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
    protection: str | None = None


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


class GrantRow(Row, frozen=True):
    """A role that an agent got, by the entry ``granted_index`` with a key of ``granted_by``, until ``ended_index``."""

    agent: str
    position: int
    role: str
    granted_index: int
    granted_key: str
    granted_by: str
    ended_index: int | None


AGENTS: Final = Table("agents", AgentRow, primary_key=("name",), owner="name")
KEYS: Final = Table(
    "agent_keys", KeyRow, primary_key=("agent", "key"), owner="agent", indexes=(("key",), ("compromised_since",))
)


GRANTS: Final = Table(
    "role_grants", GrantRow, primary_key=("agent", "position"), owner="agent", indexes=(("granted_by",),)
)
INVITATIONS: Final = Table("invitations", InvitationRow, primary_key=("name",), owner="name")


class AgentStates:
    """The records of agents, as ``ledger.lifecycle.authority.Agents``.

    ``read`` returns the records of agents by name. The records of ``names`` are read together, any other one on demand.
    A key is found only if the record of its agent was read.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, AgentRecords]], names: Collection[str]) -> None:
        self._read = read
        self._records: dict[str, AgentRecords | None] = {**read(names)}

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""
        if name not in self._records:
            self._records[name] = self._read([name]).get(name)
        records = self._records[name]
        return None if records is None else records.registered

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""
        records = (records for records in self._records.values() if records is not None)
        return next((agent.keys[public_key] for agent in records if public_key in agent.keys), None)


def keys(event: Event) -> tuple[str, ...]:
    """Return the keys of the states that an event changes: names of agents, or CHECKPOINT for the checkpoint keys.

    ``ledger.created`` registers the agents root and node, and sets the first checkpoint key.
    """
    if event.kind == "ledger.created":
        return (ROOT, NODE, CHECKPOINT)
    return (event.name or CHECKPOINT,)


def fold(state: AgentRecords, event: Event) -> AgentRecords:
    """Return the records after one more event."""
    after = replace(state, keys={**state.keys})
    after.apply(event)
    return after


def rows(records: AgentRecords) -> list[Row]:
    """Return the rows of an agent, its invitation and its keys."""
    made: list[Row] = []
    if (agent := records.registered) is not None:
        made.append(row_of(AgentRow, agent, roles=json_text(agent.roles)))
        for at, grant in enumerate(agent.grants):
            by = (grant.index, grant.key, grant.by)
            made.append(GrantRow(agent.name, at, grant.role, *by, grant.ended_index))
    if (invitation := records.invited) is not None:
        first = {"invited_index": invitation.index, "invited_ms": invitation.span.from_ms}
        roles = json_text(invitation.roles)
        made.append(row_of(InvitationRow, invitation, invited_roles=roles, invited_by=invitation.inviter, **first))
    for key in records.keys.values():
        if key.type != "invitation":  # the key of a token is part of the invitation
            scope = {"kinds": json_text(key.kinds), "streams": json_text(key.streams)}
            made.append(row_of(KeyRow, key, **scope | {"delegated_by": key.delegated_by or None}))
    return made


VIEW: Final = Projection(
    name="agents",
    version=VIEW_VERSIONS["agents"],
    handles=kinds_of("agent") | {"ledger.created", "checkpoint_key.rotated"},
    tables=(AGENTS, KEYS, INVITATIONS, GRANTS),
    state=AgentRecords,
    keys=keys,
    fold=fold,
    rows=rows,
)
