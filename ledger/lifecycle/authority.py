"""The keys and roles of agents by log index.

A key is valid for an event if it begins before the event (registration, rotation, delegation) and ends after it
(revoked, replaced, compromised, or its agent removed). A session key ends with the identity key that delegated it. The
functions here are pure: ``admission.authority`` looks up the records and stores the results.

A signature is *compromised* if its key made it at or after the index since which that key is reported compromised. So
are the signatures of session keys that the key delegated there. An agent's later key is not compromised because an
earlier one is: the owner or the thief may have rotated it. Report the later key too, if it was the thief.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.authority import (
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    KeyDelegated,
    LedgerCreated,
)
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format import forms
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.rules import needs_identity_key

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ROOT: Final = forms.ROOT
NODE: Final = forms.NODE
CHECKPOINT: Final = "checkpoint"
RESERVED_NAMES: Final = frozenset({ROOT, NODE, CHECKPOINT})
# The owners of checkpoint keys and invitation keys among all keys. They are not agent names: these keys sign no events.
CHECKPOINT_KEYS: Final = "the checkpoints"
INVITATION_KEYS: Final = "the invitations"
# The role of further nodes. It excludes other roles, comes with a checkpoint key, and ends with the agent.
NODE_ROLE: Final = "node"

AUTHORITY_STREAMS: Final = frozenset({"ledger", "agent"})
"""The types of the streams whose events change keys and roles."""

KeyEnd: TypeAlias = Literal["revoked", "replaced", "compromised", "removed"]
InvitationEnd: TypeAlias = Literal["used", "revoked"]


class AgentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A registered agent: its identity key (hex), bus key and roles, and the index of its removal."""

    name: str
    key: str
    roles: frozenset[str]
    nkey: str | None = None
    ai_id: str = ""
    removed_index: int | None = None


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A signing key: its agent, its first index and its scope; the index and the way it ended.

    ``delegated_by`` is the identity key (hex) of a session key, which holds for its ``span``. Its signatures from
    ``compromised_since`` on are compromised, as the entry ``compromised_index`` reports.
    """

    agent: str
    is_identity: bool
    since_index: int
    span: Span | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_events: int | None = None
    used: int = 0
    ended_index: int | None = None
    ended_as: KeyEnd | None = None
    delegated_by: str = ""
    compromised_since: int | None = None
    compromised_index: int | None = None

    @property
    def is_valid(self) -> bool:
        """Whether no event has ended it (a session key may still have expired)."""
        return self.ended_index is None

    def ended(self, index: int, how: KeyEnd) -> KeyRecord:
        """Return the record after the key's end. A record that has already ended is unchanged."""
        return self if not self.is_valid else replace(self, ended_index=index, ended_as=how)


class Agents(Protocol):
    """Looks up agents and keys."""

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""


def why_unregistered(agents: Agents, name: str) -> tuple[str, dict[str, Any]] | None:
    """Return why an event cannot name this agent, and details: it was never registered, or removed. None if it can."""
    agent = agents.agent(name)
    if agent is None:
        return f"there is no agent {name}: register it with `deed agent add {name}`", {"name": name}
    if agent.removed_index is not None:
        message = f"agent {name} was removed at entry {agent.removed_index}: name another agent (`deed agent list`)"
        return message, {"name": name, "index": agent.removed_index}
    return None


def is_node(agents: Agents, name: str) -> bool:
    """Return whether this is the name of the first node, or of a registered node that was not removed."""
    agent = agents.agent(name)
    return name == NODE or (agent is not None and NODE_ROLE in agent.roles)


class InvitationRecord(msgspec.Struct, frozen=True, array_like=True):
    """The last invitation of a name: its roles, keys (hex) and time span; the index and the way it ended.

    ``inviter`` signed it with ``inviter_key`` (hex). It is valid only while the inviter may still invite.
    """

    name: str
    roles: frozenset[str]
    token_key: str
    nkey: str
    index: int
    span: Span
    inviter: str
    inviter_key: str
    ended_index: int | None = None
    ended_as: InvitationEnd | None = None

    def ended(self, index: int, how: InvitationEnd) -> InvitationRecord:
        """Return the record after its end. A record that has already ended is unchanged."""
        return replace(self, ended_index=index, ended_as=how) if self.ended_as is None else self

    def is_open(self, now_ms: int, agents: Agents) -> bool:
        """Return whether it admits its holder at a time of the ledger's clock, given the ``agents`` of that time."""
        return self.ended_as is None and self.span.holds(now_ms) and self._is_backed(agents)

    def _is_backed(self, agents: Agents) -> bool:
        inviter = agents.agent(self.inviter)
        key = None if inviter is None or "admin" not in inviter.roles else agents.key(inviter.key)
        return key is not None and key.is_valid and compromised_at(agents.key, self.inviter_key, self.index) is None

    def check(self, now_ms: int, agents: Agents) -> None:
        """Raises Refused: ``NOT_INVITED`` when the invitation is not valid (any more), with the reason."""
        if self.is_open(now_ms, agents):
            return
        if self.ended_as is not None:
            reason, how = f"was {self.ended_as} at entry {self.ended_index}", str(self.ended_as)
        elif not self.span.holds(now_ms):
            reason, how = "has expired", "expired"
        else:
            reason, how = f"is void, because {self.inviter} may no longer invite agents", "inviter"
        message = f"the invitation of {self.name} {reason}: ask an admin for another (`deed agent invite`)"
        raise Refused("NOT_INVITED", message, name=self.name, how=how, index=self.ended_index)


class CheckpointKeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint key (hex) of a node: valid for trees that contain entry ``since`` and not entry ``until``."""

    since: int
    key: str
    node: str
    until: int | None = None


class CheckpointKeys(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint keys in the order of their registration: one for each node at a time."""

    keys: tuple[CheckpointKeyRecord, ...] = ()

    def at(self, size: int) -> tuple[str, ...]:
        """Return the keys (hex) that may sign the checkpoint of a tree of ``size`` entries."""
        size = max(size, 1)  # an empty log: entry 0 will name the keys
        return tuple(
            record.key for record in self.keys if record.since < size and (record.until is None or size <= record.until)
        )

    def named(self, index: int, node: str, key: str) -> CheckpointKeys:
        """Return the keys after a node got a new key in place of its old one."""
        return CheckpointKeys((*self.ended(index, node).keys, CheckpointKeyRecord(index, key, node)))

    def ended(self, index: int, node: str) -> CheckpointKeys:
        """Return the keys after a node's key ended."""
        return CheckpointKeys(
            tuple(
                replace(record, until=index) if record.node == node and record.until is None else record
                for record in self.keys
            )
        )

    def after(self, index: int, data: EventData) -> CheckpointKeys:
        """Return the keys after an accepted event of authority."""
        match data:
            case LedgerCreated():
                return self.named(index, NODE, data.checkpoint_key)
            case CheckpointKeyRotated():
                return self.named(index, NODE, data.key)
            case AgentRegistered() if data.checkpoint_key is not None:
                return self.named(index, data.name, data.checkpoint_key)
            case AgentRemoved():
                return self.ended(index, data.agent)
            case _:  # any other event: it neither names a node's key nor ends one
                return self


class Term(msgspec.Struct, frozen=True, array_like=True):
    """The term of one leader: its number, counted from 1, the leading node, and the index of its entry."""

    number: int
    node: str
    index: int


def delegated(agent: str, index: int, now_ms: int, data: KeyDelegated, by: str) -> KeyRecord:
    """Return the record of a session key that ``agent`` delegated at ``index`` and ``now_ms`` with the key ``by``."""
    return KeyRecord(
        agent=agent,
        is_identity=False,
        since_index=index,
        span=Span(now_ms, to_ms(data.expires_at)),
        kinds=tuple(data.kinds),
        streams=tuple(data.streams),
        max_events=data.max_events,
        delegated_by=by,
    )


def check_key(
    record: KeyRecord | None,
    delegator: KeyRecord | None,
    *,
    author: str,
    kind: str,
    stream: str,
    data: Any,
    now_ms: int,
) -> KeyRecord:
    """Return the record with this use counted, if the key may sign an event of ``kind`` with ``data`` now.

    ``delegator`` is the record of the identity key that delegated it, if any: the key ends with it. Raises Refused:
    ``KEY_UNKNOWN``, ``KEY_REVOKED``, ``KEY_EXPIRED``, ``KEY_OUT_OF_SCOPE``, ``KEY_EXHAUSTED`` or ``AUTHOR_MISMATCH``.
    """
    if record is None:
        raise Refused("KEY_UNKNOWN", f"the key that signed as {author} is not registered in this ledger", author=author)
    if record.agent != author:
        message = f"the signing key belongs to {record.agent}, but the event names {author} as its author"
        raise Refused("AUTHOR_MISMATCH", message, owner=record.agent)
    for key in (record, delegator):
        if key is not None and key.ended_as is not None:
            raise _key_ended(author, key.ended_as, key.ended_index)
    if record.is_identity:
        return record
    if record.span is not None and not record.span.holds(now_ms):
        raise Refused("KEY_EXPIRED", f"the session key of {author} has expired: delegate another", author=author)
    if not (is_delegable(kind, data) and covers(record.kinds, record.streams, kind, stream)):
        message = f"the session key of {author} may not sign this {kind} on {stream}: sign it with the identity key"
        raise Refused("KEY_OUT_OF_SCOPE", message, kind=kind)
    if record.max_events is None:
        return record
    if record.used >= record.max_events:
        message = f"the session key of {author} has signed all its {record.max_events} events: delegate another"
        raise Refused("KEY_EXHAUSTED", message)
    return replace(record, used=record.used + 1)


def _key_ended(author: str, how: KeyEnd, index: int | None) -> Refused:
    renew = f"to get a new key, have root sign `deed key rotate --as {author} --lost`"
    match how:
        case "replaced":
            message = f"the key of {author} was replaced at entry {index}: sign with the new key"
        case "revoked":
            message = f"the key of {author} was revoked at entry {index}: {renew}"
        case "compromised":
            message = f"the key of {author} was reported compromised at entry {index}: {renew}"
        case "removed":
            message = f"agent {author} was removed at entry {index}: register a new agent under another name"
        case _:
            assert_never(how)
    return Refused("KEY_REVOKED", message, author=author, index=index, how=how)


def compromised_at(key_of: Callable[[str], KeyRecord | None], public_key: str, index: int) -> int | None:
    """Return the entry that reports the signature of ``public_key`` at ``index`` as compromised, or None."""
    record = key_of(public_key)
    if record is None:
        return None
    if record.compromised_since is not None and index >= record.compromised_since:
        return record.compromised_index
    # A key that a thief delegated belongs to the thief; a key delegated before the theft does not.
    return compromised_at(key_of, record.delegated_by, record.since_index) if record.delegated_by else None


def is_delegable(kind: str, data: Any) -> bool:
    """Return whether a session key may ever sign such an event; ``data`` is a struct or a dict of plain values.

    It never signs what changes authority, and nothing for which the rules ask for an identity key: what a reviewer or a
    human decides.
    """
    stream = KINDS[kind].stream
    return stream not in AUTHORITY_STREAMS and not needs_identity_key(stream, kind, data)


def covers(kinds: tuple[str, ...] | list[str], streams: tuple[str, ...] | list[str], kind: str, stream: str) -> bool:
    """Return whether a delegation's scope covers an event of a delegable kind. An empty list covers everything."""
    return _matches(kinds, kind) and _matches(streams, stream)


def to_ms(time: str) -> int:
    """Return an event's RFC 3339 time as Unix milliseconds.

    Raises Refused: ``INVALID_FIELD`` for a date or time that does not exist.
    """
    try:
        return (datetime.fromisoformat(time) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        message = f"the time {time} does not exist: write it like 2026-01-31T12:00:00Z"
        raise Refused("INVALID_FIELD", message) from error


def _matches(patterns: tuple[str, ...] | list[str], name: str) -> bool:
    if not patterns:
        return True
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)
