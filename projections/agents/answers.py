"""The types of answers about agents and their keys."""

from __future__ import annotations

from typing import Literal, TypeAlias

from deedbook.ledger.events.authority import Protection, Role
from deedbook.ledger.events.session import Calibration
from deedbook.ledger.lifecycle.authority import InvitationEnd, KeyEnd, KeyType
from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Untrusted

KeyState: TypeAlias = KeyEnd | Literal["valid", "expired", "exhausted"]
InvitationState: TypeAlias = InvitationEnd | Literal["open", "expired"]


class AgentLine(Marked, frozen=True, kw_only=True):
    """A registered agent, its identity key (hex) and the nkey of its connections. A removed agent has no roles."""

    name: str
    roles: list[Role]
    key: str
    registered_index: Index
    registered_ms: Ms
    nkey: str | None
    ai_id: Untrusted
    removed_index: Index | None
    removed_because: Untrusted | None


class ShownInvitation(Marked, frozen=True, kw_only=True):
    """The last invitation of a name; ``ended_*`` is its use or revocation."""

    name: str
    roles: list[Role]
    invited_index: Index
    invited_ms: Ms
    invited_by: str
    expires_at: str
    ended_index: Index | None
    ended_as: InvitationEnd | None
    ended_by: str | None
    ended_because: Untrusted | None
    state: InvitationState


class AgentKey(Answer, frozen=True, kw_only=True):
    """A key (hex) of an agent, or of a node's checkpoints.

    ``kinds``, ``streams`` and ``max_events`` are the scope of a session key, which ``delegated_by`` (an identity key)
    delegated; it may still sign ``events_left``. It ends with that key, and then has that key's end. Signatures from
    ``compromised_since`` on are compromised, as the entry ``compromised_index`` reports. ``protection`` is how an
    identity key is stored, as its registration claims.
    """

    agent: str
    key: str
    type: KeyType
    since_index: Index
    since_ms: Ms
    expires_at: str | None
    kinds: list[str]
    streams: list[str]
    max_events: int | None
    events_left: int | None
    delegated_by: str | None
    ended_index: Index | None
    ended_ms: Ms | None
    ended_as: KeyEnd | None
    ended_by: str | None
    ended_because: Untrusted | None
    compromised_since: Index | None
    compromised_index: Index | None
    protection: Protection | None
    state: KeyState


class AgentLists(Answer, frozen=True, kw_only=True):
    """The agents by name, how many they are, and the invitations that are neither used nor revoked."""

    agents: list[AgentLine]
    invitations: list[ShownInvitation]
    total: int


class ShownAgent(AgentLine, frozen=True, kw_only=True):
    """An agent with its invitation and keys."""

    invitation: ShownInvitation | None
    keys: list[AgentKey]


class ClaimedName(Answer, frozen=True, kw_only=True):
    """A name that imported records claim as their author, and the times that they claim; null: none is dated.

    ``is_registered``: an agent of this ledger has the same name, and did not sign them.
    """

    name: Untrusted
    is_registered: bool
    records: int
    sessions: int
    first_ms: Ms | None
    last_ms: Ms | None


class LastEvent(Marked, frozen=True, kw_only=True):
    """The last event that an agent signed; ``did`` says in words what the agent did."""

    event_index: Index
    kind: str
    did: Untrusted
    accepted_ms: Ms


class ClaimedHandoff(Answer, frozen=True, kw_only=True):
    """A handoff in progress or blocked; ``lease_until_ms`` null: its claim has no lease."""

    id: str
    title: Untrusted
    status: Literal["in_progress", "blocked"]
    lease_until_ms: Ms | None


class WorkingAgent(AgentLine, frozen=True, kw_only=True):
    """An agent and its work; ``handoffs`` are the 20 newest that the agent claimed and has not completed.

    ``calibration`` counts the reports of the last 30 days that it signed, by their label.
    """

    keys: list[AgentKey]
    last: LastEvent | None
    open_sessions: int
    handoffs: list[ClaimedHandoff]
    calibration: dict[Calibration, int]
