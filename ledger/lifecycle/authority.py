"""Who holds which key and role, decided by log index.

A key is valid for an event when its beginning (registration, rotation, delegation) < event < its end (revoked,
replaced, compromised, or its agent removed). A session key ends with the identity key that delegated it. The functions
here are pure: ``admission.authority`` looks the records up and stores what they return.

*Suspect* is what a key signed at or after the index since which it is said to be compromised, and what a session key
signed that it delegated there. An agent's later key is never suspect because an earlier one is: owner or thief may have
rotated it, and who knows which says so of that key, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ROOT: Final = forms.ROOT
NODE: Final = forms.NODE
CHECKPOINT: Final = "checkpoint"
RESERVED_NAMES: Final = frozenset({ROOT, NODE, CHECKPOINT})
# Whose checkpoint keys, and those of invitations, are among all keys: no name of an agent: they sign no event.
CHECKPOINT_KEYS: Final = "the checkpoints"
INVITATION_KEYS: Final = "the invitations"
# The role of further nodes. It stands alone, comes with a checkpoint key, and ends with the agent.
NODE_ROLE: Final = "node"

KeyEnd: TypeAlias = Literal["revoked", "replaced", "compromised", "removed"]
InvitationEnd: TypeAlias = Literal["used", "revoked"]

# A reviewer decides with the identity key in hand: these kinds are never delegable.
NEVER_DELEGABLE: Final = frozenset(
    {
        "ledger.history_reset",
        "ledger.clock_set",
        "ledger.term_started",
        "agent.invited",
        "agent.invitation_revoked",
        "agent.registered",
        "agent.removed",
        "role.granted",
        "role.revoked",
        "key.delegated",
        "key.revoked",
        "key.rotated",
        "key.compromised",
        "checkpoint_key.rotated",
        "handoff.approved",
        "handoff.rejected",
        "handoff.criterion_waived",
        "handoff.changes_requested",
        "handoff.verified",
        "review.answered",
    }
)
# What names no reviewer is approved by the very event, and who hands a review over lets another one approve.
_MAY_APPROVE: Final = frozenset({"handoff.created", "handoff.amended"})


class AgentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A registered agent: its identity key (hex), bus key and roles, and where it was removed."""

    name: str
    key: str
    roles: frozenset[str]
    nkey: str | None = None
    ai_id: str = ""
    removed_index: int | None = None


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A signing key: whose it is, since when and within which scope; where and how it ended.

    ``delegated_by`` is the identity key (hex) of a session key, which holds for its ``span``. From ``suspect_since``
    on, as the entry ``suspect_index`` says, what it signed is suspect.
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
    suspect_since: int | None = None
    suspect_index: int | None = None

    @property
    def is_valid(self) -> bool:
        """Whether nothing has ended it (a session key may have expired all the same)."""
        return self.ended_index is None

    def ended(self, index: int, how: KeyEnd) -> KeyRecord:
        """Return the record of the key after it ended; what ended already stays as it is."""
        return self if not self.is_valid else replace(self, ended_index=index, ended_as=how)


class Agents(Protocol):
    """Where agents and keys are looked up."""

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""


def is_node(agents: Agents, name: str) -> bool:
    """Whether a name is of the first node, or of one that was let in since and not removed."""
    agent = agents.agent(name)
    return name == NODE or (agent is not None and NODE_ROLE in agent.roles)


class InvitationRecord(msgspec.Struct, frozen=True, array_like=True):
    """The last invitation of a name: with which roles, for how long, by which keys; where and how it ended.

    Whose it is, and the key (hex) that signed it: it holds while that one could still invite.
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
        """Return it after it ended; what ended already stays as it is."""
        ends = self.ended_as is None
        return replace(self, ended_index=index, ended_as=how) if ends else self

    def is_open(self, now_ms: int, agents: Agents) -> bool:
        """Return whether it lets its holder in at a time of the ledger's clock, among ``agents`` as they are then."""
        return self.ended_as is None and self.span.holds(now_ms) and self._is_backed(agents)

    def _is_backed(self, agents: Agents) -> bool:
        inviter = agents.agent(self.inviter)
        key = None if inviter is None or "admin" not in inviter.roles else agents.key(inviter.key)
        return key is not None and key.is_valid and suspect_at(agents.key, self.inviter_key, self.index) is None

    def check(self, now_ms: int, agents: Agents) -> None:
        """Raises Refused: ``NOT_INVITED`` when it does not hold (any more), with what became of it."""
        if self.is_open(now_ms, agents):
            return
        if self.ended_as is not None:
            words, how = f"was {self.ended_as} at entry {self.ended_index}", str(self.ended_as)
        elif not self.span.holds(now_ms):
            words, how = "has expired", "expired"
        else:
            words, how = f"is by {self.inviter}, who may invite nobody any more", "inviter"
        message = f"the invitation of {self.name} {words}: ask an admin for another (`deed agent invite`)"
        raise Refused("NOT_INVITED", message, name=self.name, how=how, index=self.ended_index)


class CheckpointKeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A key (hex) of a node's checkpoints: it signs those of trees that hold entry ``since``, and not ``until``."""

    since: int
    key: str
    node: str
    until: int | None = None


class CheckpointKeys(msgspec.Struct, frozen=True, array_like=True):
    """The keys that sign checkpoints, in the order in which they were named: one for each node at a time."""

    keys: tuple[CheckpointKeyRecord, ...] = ()

    def at(self, size: int) -> tuple[str, ...]:
        """Return the keys (hex) that may sign the checkpoint of a tree of ``size`` entries."""
        size = max(size, 1)  # of a log without entries: whose entry 0 will name them
        return tuple(one.key for one in self.keys if one.since < size and (one.until is None or size <= one.until))

    def named(self, index: int, node: str, key: str) -> CheckpointKeys:
        """Return them with another key of a node, in place of the one it had."""
        return CheckpointKeys((*self.ended(index, node).keys, CheckpointKeyRecord(index, key, node)))

    def ended(self, index: int, node: str) -> CheckpointKeys:
        """Return them after a node's key ended."""
        return CheckpointKeys(
            tuple(replace(one, until=index) if one.node == node and one.until is None else one for one in self.keys)
        )

    def after(self, index: int, data: EventData) -> CheckpointKeys:
        """Return them after an event of authority that counts."""
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
    """The time of one leader: its number, counted from 1, the node that leads, and the entry that says so."""

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

    ``delegator`` is the record of the identity key that delegated it, if one did: it ends with that. Raises Refused:
    ``KEY_UNKNOWN``, ``KEY_REVOKED``, ``KEY_EXPIRED``, ``KEY_OUT_OF_SCOPE``, ``KEY_EXHAUSTED`` or ``AUTHOR_MISMATCH``.
    """
    if record is None:
        raise Refused("KEY_UNKNOWN", f"the key that signed as {author} is not registered in this ledger", author=author)
    if record.agent != author:
        raise Refused("AUTHOR_MISMATCH", f"the key belongs to {record.agent}, not to {author}", owner=record.agent)
    for held in (record, delegator):
        if held is not None and held.ended_as is not None:
            raise _key_ended(author, held.ended_as, held.ended_index)
    if record.is_identity:
        return record
    if record.span is not None and not record.span.holds(now_ms):
        raise Refused("KEY_EXPIRED", f"the session key of {author} has expired: delegate another", author=author)
    if not (is_delegable(kind, data) and covers(record.kinds, record.streams, kind, stream)):
        message = f"the session key of {author} may not sign this {kind} on {stream}: the identity key of {author} may"
        raise Refused("KEY_OUT_OF_SCOPE", message, kind=kind)
    if record.max_events is None:
        return record
    if record.used >= record.max_events:
        raise Refused("KEY_EXHAUSTED", f"the session key of {author} has signed its {record.max_events} events")
    return replace(record, used=record.used + 1)


def _key_ended(author: str, how: KeyEnd, index: int | None) -> Refused:
    renew = f"`deed key rotate --as {author} --lost`, signed by root, gives it another"
    match how:
        case "replaced":
            words = f"the key of {author} was replaced at entry {index}: sign with the one that took its place"
        case "revoked":
            words = f"the key of {author} was revoked at entry {index}: {renew}"
        case "compromised":
            words = f"the key of {author} was called compromised at entry {index}: {renew}"
        case "removed":
            words = f"{author} was removed at entry {index}: register another agent, under another name"
        case _:
            assert_never(how)
    return Refused("KEY_REVOKED", words, author=author, index=index, how=how)


def suspect_at(key_of: Callable[[str], KeyRecord | None], public_key: str, index: int) -> int | None:
    """Return the entry that makes what ``public_key`` signed at ``index`` suspect; None when it is not."""
    record = key_of(public_key)
    if record is None:
        return None
    if record.suspect_since is not None and index >= record.suspect_since:
        return record.suspect_index
    # What a thief delegated is the thief's; what was delegated before the theft is not.
    return suspect_at(key_of, record.delegated_by, record.since_index) if record.delegated_by else None


def is_delegable(kind: str, data: Any) -> bool:
    """Return whether a session key may ever sign such an event; ``data`` is its type, or plain values."""
    if kind not in _MAY_APPROVE:
        return kind not in NEVER_DELEGABLE
    fields = data if isinstance(data, dict) else msgspec.structs.asdict(data)
    return fields.get("reviewer") is not None and not fields.get("hands_over")


def covers(kinds: tuple[str, ...] | list[str], streams: tuple[str, ...] | list[str], kind: str, stream: str) -> bool:
    """Return whether a delegation's scope covers an event of a delegable kind; an empty list covers all."""
    return _matches(kinds, kind) and _matches(streams, stream)


def to_ms(time: str) -> int:
    """Return an event's RFC 3339 time as Unix milliseconds.

    Raises Refused: ``INVALID_FIELD`` for a day or time that does not exist.
    """
    try:
        return (datetime.fromisoformat(time) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        raise Refused("INVALID_FIELD", "there is no such time: write it as 2026-01-31T12:00:00Z") from error


def _matches(patterns: tuple[str, ...] | list[str], name: str) -> bool:
    if not patterns:
        return True
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)
