"""The kinds of authority: the ledger's creation, resets, clock, terms and redactions; agents, roles and keys."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from deedbook.ledger.events.fields import (
    BlobId,
    Count,
    EventData,
    EventId,
    Label,
    Line,
    Name,
    NatsKey,
    PublicKey,
    Signature,
    Time,
    TreeHash,
    Version,
)

redacted_blobs_max: Final = 64
redacted_versions_max: Final = 256

Role = Literal["agent", "reviewer", "admin", "human", "service", "node"]

Protection = Literal["passphrase", "none"]
"""How an identity key is stored: sealed with a passphrase, or so that every program of its user can sign with it.

The program that made the key says so. No reader can check it.
"""


class LedgerCreated(EventData, frozen=True):
    """Entry 0: it names the ledger's keys and its origin (the name on its checkpoints).

    ``root_protection`` is how the first root key is stored. ``trial`` marks the ledger of a first try for ever.
    """

    origin: Label
    root: PublicKey
    checkpoint_key: PublicKey
    node_key: PublicKey
    root_protection: Protection = "none"
    trial: bool = False


class HistoryReset(EventData, frozen=True):
    """Root accepts that acknowledged entries are lost, or that the log continues on another branch of its history.

    ``abandoned_size`` and ``abandoned_root`` (hex) are the last known head of the abandoned history. If a
    reader trusts a checkpoint of at most that size, and it contradicts this log, the reader reports this once, and
    trusts this log from here on.
    """

    abandoned_size: Count
    abandoned_root: TreeHash
    reason: Line


class ClockSet(EventData, frozen=True):
    """Root sets the ledger's clock, because it was wrong or because nothing was recorded for a long time.

    ``time`` is the time of this entry, even if the entry before it has a later time.
    """

    time: Time
    reason: Line


class AgentInvited(EventData, frozen=True):
    """Allows the holder of a one-time token to register as this agent once, before ``expires_at`` (ledger's clock).

    The token stays secret. The event holds two public keys derived from it: ``token_key`` verifies the holder's
    signature, and with ``nkey`` a server admits the holder for that one event. A later invitation of the same name
    replaces this one.
    """

    name: Name
    roles: list[Role]
    token_key: PublicKey
    nkey: NatsKey
    expires_at: Time


class AgentInvitationRevoked(EventData, frozen=True):
    """Revokes an unused invitation."""

    name: Name
    reason: Line = "no reason given"


class AgentRegistered(EventData, frozen=True):
    """Registers an agent: binds its name to an identity key, the key of its bus connection, and roles.

    ``proof`` is the identity key's signature over ``identity.possession``, so nobody can register a key that they do
    not hold. ``ai_id`` (like ``claude-sonnet-4.5``) is a label without authority. With ``token_proof``, the signature
    of an invitation's token over ``identity.joining``, an agent registers itself, and ``key`` signs the event. A node
    names its ``checkpoint_key``; its ``checkpoint_proof`` is for the name ``checkpoint/NAME``. ``protection`` is how
    ``key`` is stored.
    """

    name: Name
    key: PublicKey
    proof: Signature
    roles: list[Role]
    protection: Protection = "none"
    nkey: NatsKey | None = None
    ai_id: str = ""
    token_proof: Signature | None = None
    checkpoint_key: PublicKey | None = None
    checkpoint_proof: Signature | None = None


class RoleGranted(EventData, frozen=True):
    """Grants an agent a role."""

    agent: Name
    role: Role


class RoleRevoked(EventData, frozen=True):
    """Revokes a role of an agent."""

    agent: Name
    role: Role
    reason: Line = "no reason given"


class KeyDelegated(EventData, frozen=True):
    """An identity key allows another key to sign for its agent, for a time and within a scope.

    Empty ``kinds`` or ``streams`` allow all (but approvals are never delegable). An item that ends in ``*`` is a
    prefix. ``expires_at`` is compared with the ledger's clock.
    """

    key: PublicKey
    proof: Signature
    expires_at: Time
    kinds: list[Label] = []
    streams: list[Line] = []
    max_events: Count | None = None


class KeyRevoked(EventData, frozen=True):
    """Revokes a key: from this entry on, the ledger accepts no event signed with it."""

    key: PublicKey
    reason: Line = "no reason given"


class KeyRotated(EventData, frozen=True):
    """Replaces an agent's identity key and the key of its bus connection (None: it has no bus key from now on).

    The old key signs it, or root if the old key is lost (for other signers see ``admission.authority``). The old key
    and its session keys sign nothing from here on; their earlier events stay valid. If the key is root's, the ledger's
    id and fingerprint stay those of the first root key. ``protection`` is how the new key is stored.
    """

    agent: Name
    key: PublicKey
    proof: Signature
    protection: Protection = "none"
    nkey: NatsKey | None = None
    reason: Line = "no reason given"


class CheckpointKeyRotated(EventData, frozen=True):
    """Replaces the checkpoint key of the ledger's first node; root signs it.

    The new key signs the checkpoint of the tree that ends with this entry, and of every larger tree. The checkpoint
    key of any other node is never replaced: it ends when that node is removed. ``proof`` is the new key's signature
    over ``identity.possession``, with ``checkpoint`` as the agent's name.
    """

    key: PublicKey
    proof: Signature
    reason: Line = "no reason given"


class KeyCompromised(EventData, frozen=True):
    """Reports that somebody else may have signed with a key from entry ``since`` on, and ends the key.

    It deletes nothing and makes nothing invalid: events that the key signed from there on are shown as compromised.
    """

    key: PublicKey
    since: Count
    reason: Line = "no reason given"


class AgentRemoved(EventData, frozen=True):
    """Removes an agent: its keys sign nothing, it has no roles, and its name is never used again."""

    agent: Name
    reason: Line = "no reason given"


class Redaction(EventData, frozen=True):
    """Names the entry whose body is to be erased (index ``entry``, event id ``event``), and the remnant of the body.

    ``remnant`` is the SHA-256 of the remnant that every holder of the log stores in place of the body. ``blobs`` are
    erased with it. ``versions`` maps version numbers of the entry's reasoning to the refs of these versions before the
    erasure. These refs are hashes of its texts, so nobody can compute them afterwards. The gate does not check
    ``versions``, and nothing trusts them.
    """

    entry: Count
    event: EventId
    remnant: Version
    reason: Line
    blobs: Annotated[list[BlobId], msgspec.Meta(max_length=redacted_blobs_max)] = []
    versions: Annotated[dict[Count, Version], msgspec.Meta(max_length=redacted_versions_max)] = {}


class RedactionProposed(Redaction, frozen=True):
    """A human proposes to erase the body of an entry. Nothing is erased until another human does it."""


class EntryRedacted(Redaction, frozen=True):
    """Erases the body of an entry. Root may do so alone, a human if another human has proposed exactly the same."""
