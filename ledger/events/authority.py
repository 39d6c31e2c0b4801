"""Who may sign: the ledger's creation, its resets, clock and terms, invitations, agents, roles and keys."""

from __future__ import annotations

from typing import Literal

from deedbook.ledger.events.fields import (
    Count,
    EventData,
    Label,
    Line,
    Name,
    NatsKey,
    PublicKey,
    Signature,
    Time,
    TreeHash,
)

Role = Literal["agent", "reviewer", "admin", "human", "service", "node"]


class LedgerCreated(EventData, frozen=True):
    """Entry 0: names the keys of the ledger and its origin (the name on its checkpoints)."""

    origin: Label
    root: PublicKey
    checkpoint_key: PublicKey
    node_key: PublicKey


class HistoryReset(EventData, frozen=True):
    """The ledger goes on without entries that were acknowledged and are lost, or on another branch of its history.

    ``abandoned_size`` and ``abandoned_root`` (hex) are the last head known of what is left behind: whoever remembers a
    checkpoint of at most that size, and finds it in conflict with this log, tells it once and follows from here.
    """

    abandoned_size: Count
    abandoned_root: TreeHash
    reason: Line


class ClockSet(EventData, frozen=True):
    """The root says what time it is, because the ledger's clock stood wrong, or nothing was recorded for long.

    ``time`` is this entry's own time, even when the entry before it has a later one.
    """

    time: Time
    reason: Line


class TermStarted(EventData, frozen=True):
    """A node leads from here on: it alone orders what is submitted, until the next term begins (Raft's word)."""

    term: Count
    node: Name


class AgentInvited(EventData, frozen=True):
    """Lets who holds a one-time token register as this agent, once, before ``expires_at`` by the ledger's clock.

    The token stays secret: here are two public keys that it leads to. ``token_key`` checks that the holder signed, and
    with ``nkey`` a server lets him in, for that one event. A later invitation of the same name takes the place of this.
    """

    name: Name
    roles: list[Role]
    token_key: PublicKey
    nkey: NatsKey
    expires_at: Time


class AgentInvitationRevoked(EventData, frozen=True):
    """Takes back an invitation that nobody has used."""

    name: Name
    reason: Line = "no reason given"


class AgentRegistered(EventData, frozen=True):
    """Binds a name to an identity key, the key of its bus connection, and roles.

    ``proof`` is the identity key's own signature over ``identity.possession``: nobody can register a key that
    they do not hold. ``ai_id`` (as ``claude-sonnet-4.5``) is a label without authority. With ``token_proof``, the
    signature of an invitation's token over ``identity.joining``, an agent registers itself, by the key named here. A
    node names the key that it signs checkpoints with; ``checkpoint_proof`` is for the name ``checkpoint/NAME``.
    """

    name: Name
    key: PublicKey
    proof: Signature
    roles: list[Role]
    nkey: NatsKey | None = None
    ai_id: str = ""
    token_proof: Signature | None = None
    checkpoint_key: PublicKey | None = None
    checkpoint_proof: Signature | None = None


class RoleGranted(EventData, frozen=True):
    """Gives an agent one more role."""

    agent: Name
    role: Role


class RoleRevoked(EventData, frozen=True):
    """Takes one role from an agent."""

    agent: Name
    role: Role
    reason: Line = "no reason given"


class KeyDelegated(EventData, frozen=True):
    """An identity key lets another key sign for its agent, for a time and within a scope.

    An empty ``kinds`` or ``streams`` means any (but approvals are never delegable); an item ending in ``*`` is a
    prefix. ``expires_at`` is compared with the ledger's clock.
    """

    key: PublicKey
    proof: Signature
    expires_at: Time
    kinds: list[Label] = []
    streams: list[Line] = []
    max_events: Count | None = None


class KeyRevoked(EventData, frozen=True):
    """From this entry on, nothing signed with the key is accepted."""

    key: PublicKey
    reason: Line = "no reason given"


class KeyRotated(EventData, frozen=True):
    """Replaces the identity key of an agent and the key of its bus connection (None: it has none from now on).

    Signed with the old key, or by root where that is lost (``admission.authority`` says who else may). The old key and
    what it delegated sign nothing from here on; what they signed before stays valid. Of ``root``, the ledger's id
    and its fingerprint stay those of the first root key.
    """

    agent: Name
    key: PublicKey
    proof: Signature
    nkey: NatsKey | None = None
    reason: Line = "no reason given"


class CheckpointKeyRotated(EventData, frozen=True):
    """Replaces the checkpoint key that entry 0 named: of the tree that holds this entry, and of each larger one.

    The key of another node ends with that node. ``proof`` is over ``identity.possession`` for the name ``checkpoint``.
    """

    key: PublicKey
    proof: Signature
    reason: Line = "no reason given"


class KeyCompromised(EventData, frozen=True):
    """Says that somebody else may have signed with a key from the entry ``since`` on, and ends it.

    Deletes nothing and makes nothing invalid: signatures of the key from there on are shown as compromised.
    """

    key: PublicKey
    since: Count
    reason: Line = "no reason given"


class AgentRemoved(EventData, frozen=True):
    """Ends an agent: its keys sign nothing, it has no role, and nobody bears its name again."""

    agent: Name
    reason: Line = "no reason given"
