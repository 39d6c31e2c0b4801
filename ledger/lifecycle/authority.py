"""The keys and roles of agents by log index.

A key is valid for an event if it begins before the event (registration, rotation, delegation) and ends after it
(revoked, replaced, compromised, or its agent removed). A session key ends with the identity key that delegated it. The
functions here are pure. ``changes`` says what an accepted event changes: the gate, its check of stored records and the
view of agents use it. ``admission.authority`` decides which events are accepted.

A signature is *compromised* if its key made it at or after the index since which that key is reported compromised. So
are the signatures of session keys that the key delegated from that index on. An agent's later key is not compromised
because an earlier one is: either the owner or the thief may have rotated the key. If it was the thief, report the later
key, too.

A role *counts* unless its last grant rests on a compromised signature: that of the grant itself, or of an earlier grant
that gave its author the right to grant it. A role that does not count allows nothing until somebody grants it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.events.authority import (
    AgentInvitationRevoked,
    AgentInvited,
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    ClockSet,
    HistoryReset,
    KeyCompromised,
    KeyDelegated,
    KeyRevoked,
    KeyRotated,
    LedgerCreated,
    Protection,
    Redaction,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format import forms
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.gate_state import TRUSTED_ROLES, GateState
from deedbook.ledger.lifecycle.rules import needs_identity_key, roles_for
from deedbook.ledger.limits import json_integer_max

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ROOT: Final = forms.ROOT
NODE: Final = forms.NODE
CHECKPOINT: Final = forms.CHECKPOINT
RESERVED_NAMES: Final = forms.RESERVED_NAMES
# The role of further nodes. It excludes other roles, comes with a checkpoint key, and ends with the agent.
NODE_ROLE: Final = "node"

AUTHORITY_STREAMS: Final = frozenset({"ledger", "agent", "kind"})
"""The types of the streams whose events change keys, roles and the list of kinds."""

KeyType: TypeAlias = Literal["identity", "session", "checkpoint", "invitation"]
KeyEnd: TypeAlias = Literal["revoked", "replaced", "compromised", "removed"]
InvitationEnd: TypeAlias = Literal["used", "revoked"]


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A role that an agent got: the entry, the key (hex) and the author of the grant, and the entry that ended it.

    The invitation grants the roles of an invited agent.
    """

    role: str
    index: int
    key: str
    by: str
    ended_index: int | None = None


class AgentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A registered agent: its identity key (hex), bus key and sorted roles, its registration and its removal.

    ``grants`` are all roles that it ever got, in order. The agents of entry 0 have none: nobody granted their roles.
    """

    name: str
    key: str
    roles: tuple[str, ...]
    nkey: str | None = None
    ai_id: str = ""
    registered_index: int = 0
    registered_ms: int = 0
    removed_index: int | None = None
    removed_because: str | None = None
    grants: tuple[Grant, ...] = ()

    def grant(self, role: str, index: int | None = None) -> Grant | None:
        """Return the last grant of a role that it has now, or that it had just before the entry ``index``."""
        for grant in reversed(self.grants):
            end = grant.ended_index
            is_held = end is None if index is None else grant.index < index and (end is None or index <= end)
            if grant.role == role and is_held:
                return grant
        return None

    def ended_grants(self, index: int, roles: Collection[str]) -> tuple[Grant, ...]:
        """Return its grants, with those of ``roles`` ended at the entry ``index``."""
        return tuple(
            replace(grant, ended_index=index) if grant.ended_index is None and grant.role in roles else grant
            for grant in self.grants
        )


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A key (hex): its agent, type, first entry and scope; and its end: the entry, the cause and the author.

    Only identity and session keys sign events. The first node's checkpoint keys belong to the name ``CHECKPOINT``.
    ``delegated_by`` is the identity key (hex) of a session key, which is valid for its ``span``, until ``expires_at``.
    Its signatures from ``compromised_since`` on are compromised, as the entry ``compromised_index`` reports.
    ``protection`` is how an identity key is stored, as its registration claims.
    """

    agent: str
    key: str
    type: KeyType
    since_index: int
    since_ms: int = 0
    expires_at: str | None = None
    span: Span | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_events: int | None = None
    used: int = 0
    ended_index: int | None = None
    ended_as: KeyEnd | None = None
    ended_by: str | None = None
    ended_because: str | None = None
    delegated_by: str = ""
    compromised_since: int | None = None
    compromised_index: int | None = None
    protection: Protection | None = None

    @property
    def owner(self) -> str:
        """The owner, as a message names it."""
        return self.agent if self.type in ("identity", "session") else f"the {self.type}s"

    @property
    def is_identity(self) -> bool:
        """Whether it is an identity key, which no scope limits."""
        return self.type == "identity"

    @property
    def is_valid(self) -> bool:
        """Whether no event has ended it (a session key may still have expired)."""
        return self.ended_index is None


class Agents(Protocol):
    """Looks up agents and keys."""

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""


def why_unregistered(agents: Agents, name: str, *, role: str = "") -> tuple[str, dict[str, Any]] | None:
    """Return why an event cannot name this agent, and details: it was never registered, or removed. None if it can.

    ``role`` is the one that the agent needs.
    """
    agent = agents.agent(name)
    if agent is None:
        command = f"deed agent add {name}{role and f' --role {role}'}"
        return f"there is no agent {name} (`{command}` registers it)", {"name": name}
    if agent.removed_index is not None:
        message = f"agent {name} was removed at entry {agent.removed_index}: name another agent (`deed agent list`)"
        return message, {"name": name, "index": agent.removed_index}
    return None


def is_node(agents: Agents, name: str) -> bool:
    """Return whether this is the name of the first node, or of a registered node that was not removed."""
    agent = agents.agent(name)
    return name == NODE or (agent is not None and NODE_ROLE in agent.roles)


class InvitationRecord(msgspec.Struct, frozen=True, array_like=True):
    """The last invitation of a name: its roles, keys (hex) and time span; the index and the cause of its end.

    ``inviter`` signed it with ``inviter_key`` (hex). It is valid only while the inviter may still invite.
    """

    name: str
    roles: tuple[str, ...]
    token_key: str
    nkey: str
    index: int
    span: Span
    expires_at: str
    inviter: str
    inviter_key: str
    ended_index: int | None = None
    ended_as: InvitationEnd | None = None
    ended_by: str | None = None
    ended_because: str | None = None

    def is_open(self, now_ms: int, agents: Agents) -> bool:
        """Return whether it admits its holder at a time of the ledger's clock, given the ``agents`` of that time."""
        return self.ended_as is None and self.span.holds(now_ms) and self._is_backed(agents)

    def _is_backed(self, agents: Agents) -> bool:
        inviter = agents.agent(self.inviter)
        key = None if inviter is None or not has_role(agents, self.inviter, {"admin"}) else agents.key(inviter.key)
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

    def of(self, node: str) -> list[str]:
        """Return the current and former keys (hex) of a node."""
        return [record.key for record in self.keys if record.node == node]

    def named(self, index: int, node: str, key: str) -> CheckpointKeys:
        """Return the keys after a node's key was replaced by a new one."""
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


E = TypeVar("E", KeyRecord, InvitationRecord)
AuthorityRecord: TypeAlias = AgentRecord | KeyRecord | InvitationRecord | CheckpointKeys | GateState


class AuthorityReads(Agents, Protocol):
    """Looks up the records of authority."""

    def invitation(self, name: str) -> InvitationRecord | None:
        """Return the record of the last invitation of a name."""

    def checkpoint_keys(self) -> CheckpointKeys:
        """Return the current and former keys of checkpoints."""

    def gate_state(self) -> GateState:
        """Return whether the gate is open, and why (``lifecycle.gate_state``)."""


def changes(event: Event, before: AuthorityReads) -> Iterator[AuthorityRecord]:
    """Yield the records that an accepted event of authority changes, in their new state."""
    records = [*_changes(event, before)]
    yield from records
    gate, created = before.gate_state(), event.data if isinstance(event.data, LedgerCreated) else None
    after = gate.after(event.index, _unprotected(records, before), trial=created is not None and created.trial)
    if created is not None or after != gate:
        yield after


def _changes(event: Event, before: AuthorityReads) -> Iterator[AuthorityRecord]:
    data, checkpoints = event.data, before.checkpoint_keys()
    match data:
        case LedgerCreated():
            yield from _registered(event, AgentRecord(ROOT, data.root, ("admin",)), data.root_protection)
            yield from _registered(event, AgentRecord(NODE, data.node_key, ()), "none")
            yield _key(event, CHECKPOINT, data.checkpoint_key, "checkpoint")
        case AgentInvited() | AgentInvitationRevoked() | AgentRegistered():
            yield from _joining(event, data, before)
        case AgentRemoved() | RoleGranted() | RoleRevoked() | KeyRotated():
            yield from _changed(event, data, before)
        case KeyDelegated():
            yield delegated(event, data)
        case KeyRevoked() | KeyCompromised():
            yield from _key_ended_by(event, data, before)
        case CheckpointKeyRotated():
            yield from _ended(map(before.key, checkpoints.of(NODE)), event, "replaced", data.reason)
            yield _key(event, CHECKPOINT, data.key, "checkpoint")
        case ClockSet() | HistoryReset() | Redaction():
            return
        case _:  # event data is an open set
            raise NotImplementedError(f"{event.kind} is an event of authority, and this function has no case for it")
    if (after := checkpoints.after(event.index, data)) != checkpoints:
        yield after


def _key_ended_by(event: Event, data: KeyRevoked | KeyCompromised, before: AuthorityReads) -> Iterator[AuthorityRecord]:
    keys = [before.key(data.key)]
    if isinstance(data, KeyRevoked):
        yield from _ended(keys, event, "revoked", data.reason)
        return
    for record in _ended(keys, event, "compromised", data.reason):
        yield replace(record, compromised_since=data.since, compromised_index=event.index)


def _joining(
    event: Event, data: AgentInvited | AgentInvitationRevoked | AgentRegistered, before: AuthorityReads
) -> Iterator[AuthorityRecord]:
    match data:
        case AgentInvited():
            yield _key(event, data.name, data.token_key, "invitation")
            span, keys, by = Span(event.accepted_ms, to_ms(data.expires_at)), (data.token_key, data.nkey), event.author
            roles, until = tuple(sorted({*data.roles})), data.expires_at
            yield InvitationRecord(data.name, roles, *keys, event.index, span, until, by, event.key)
        case AgentInvitationRevoked():
            yield from _ended([before.invitation(data.name)], event, "revoked", data.reason)
        case AgentRegistered():
            source = (event.index, event.key, event.author)
            if data.token_proof is not None and (invitation := before.invitation(data.name)) is not None:
                source = (invitation.index, invitation.inviter_key, invitation.inviter)
                yield from _ended([invitation], event, "used", None)
            roles = tuple(sorted({*data.roles}))
            grants = tuple(Grant(role, *source) for role in roles)
            agent = AgentRecord(data.name, data.key, roles, data.nkey, data.ai_id, grants=grants)
            yield from _registered(event, agent, data.protection)
            if data.checkpoint_key is not None:
                yield _key(event, data.name, data.checkpoint_key, "checkpoint")
        case _:
            assert_never(data)


def _changed(
    event: Event, data: AgentRemoved | RoleGranted | RoleRevoked | KeyRotated, before: AuthorityReads
) -> Iterator[AuthorityRecord]:
    agent = before.agent(data.agent)
    if agent is None:
        return
    match data:
        case AgentRemoved():
            keys = [agent.key, *before.checkpoint_keys().of(agent.name)]
            yield from _ended(map(before.key, keys), event, "removed", data.reason)
            end = {"removed_index": event.index, "removed_because": data.reason}
            yield replace(agent, roles=(), grants=agent.ended_grants(event.index, agent.roles), **end)
        case RoleGranted():
            grant = Grant(data.role, event.index, event.key, event.author)
            yield replace(agent, roles=tuple(sorted({*agent.roles, data.role})), grants=(*agent.grants, grant))
        case RoleRevoked():
            roles = tuple(role for role in agent.roles if role != data.role)
            yield replace(agent, roles=roles, grants=agent.ended_grants(event.index, {data.role}))
        case KeyRotated():
            yield from _ended([before.key(agent.key)], event, "replaced", data.reason)
            yield replace(_key(event, agent.name, data.key, "identity"), protection=data.protection)
            yield replace(agent, key=data.key, nkey=data.nkey)
        case _:
            assert_never(data)


def _registered(event: Event, agent: AgentRecord, protection: Protection) -> Iterator[AuthorityRecord]:
    yield replace(agent, registered_index=event.index, registered_ms=event.accepted_ms)
    yield replace(_key(event, agent.name, agent.key, "identity"), protection=protection)


def _unprotected(records: Iterable[AuthorityRecord], before: Agents) -> dict[str, bool]:
    """Return whether the agents in changed records have a trusted role and a valid key without a passphrase."""
    agents = {record.name: record for record in records if isinstance(record, AgentRecord)}
    keys = {record.key: record for record in records if isinstance(record, KeyRecord)}
    for record in keys.values():
        if record.is_identity and (agent := before.agent(record.agent)) is not None:
            agents.setdefault(agent.name, agent)
    unprotected = {}
    for name, agent in agents.items():
        key = keys.get(agent.key) or before.key(agent.key)
        has_none = key is not None and key.is_valid and key.protection == "none"
        unprotected[name] = has_none and not TRUSTED_ROLES.isdisjoint(agent.roles)
    return unprotected


def _key(event: Event, agent: str, key: str, type_: KeyType) -> KeyRecord:
    return KeyRecord(agent, key, type_, event.index, event.accepted_ms)


def _ended(records: Iterable[E | None], event: Event, how: str, because: str | None) -> Iterator[E]:
    """Yield the records after their end. A record that has already ended is unchanged."""
    end = {"ended_index": event.index, "ended_as": how, "ended_by": event.author, "ended_because": because}
    for record in records:
        if record is not None:
            yield record if record.ended_as is not None else replace(record, **end)


def delegated(event: Event, data: KeyDelegated) -> KeyRecord:
    """Return the record of a session key that the author of ``event`` delegated."""
    return replace(
        _key(event, event.author, data.key, "session"),
        expires_at=data.expires_at,
        span=Span(event.accepted_ms, to_ms(data.expires_at)),
        kinds=tuple(data.kinds),
        streams=tuple(data.streams),
        max_events=data.max_events,
        delegated_by=event.key,
    )


class AgentRecords(msgspec.Struct, array_like=True):
    """The records of one agent or of ``CHECKPOINT``, built from its events and those of the stream ``ledger``."""

    name: str
    registered: AgentRecord | None = None
    keys: dict[str, KeyRecord] = {}
    invited: InvitationRecord | None = None
    checkpoints: CheckpointKeys = CheckpointKeys()

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""
        return self.registered if name == self.name else None

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""
        return self.keys.get(public_key)

    def invitation(self, name: str) -> InvitationRecord | None:
        """Return the record of the last invitation of a name."""
        return self.invited if name == self.name else None

    def checkpoint_keys(self) -> CheckpointKeys:
        """Return the current and former keys of checkpoints."""
        return self.checkpoints

    def gate_state(self) -> GateState:
        """Return the state before any event: the gate's state does not follow from the records of one agent."""
        return GateState()

    def apply(self, event: Event) -> None:
        """Make the changes of an accepted event to these records."""
        for record in [*changes(event, self)]:
            match record:
                case CheckpointKeys():
                    self.checkpoints = record
                case KeyRecord() if record.agent == self.name:
                    self.keys[record.key] = record
                case AgentRecord() if record.name == self.name:
                    self.registered = record
                case InvitationRecord():
                    self.invited = record
                case _:  # ``ledger.created`` registers several agents; the gate's state belongs to no agent
                    pass


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
    if record.owner != author:
        message = f"the signing key belongs to {record.owner}, but the event names {author} as its author"
        raise Refused("AUTHOR_MISMATCH", message, owner=record.owner)
    for key in (record, delegator):
        if key is not None and key.ended_as is not None:
            raise _key_ended(author, key, is_session=not record.is_identity)
    if record.is_identity:
        return record
    if record.span is not None and not record.span.holds(now_ms):
        raise Refused("KEY_EXPIRED", f"the session key of {author} has expired: {_delegate(author)}", author=author)
    if not (is_delegable(kind, stream, data) and covers(record.kinds, record.streams, kind, stream)):
        message = f"the session key of {author} may not sign this {kind} on {stream}: sign it with the identity key"
        raise Refused("KEY_OUT_OF_SCOPE", message, kind=kind)
    if record.max_events is None:
        return record
    if record.used >= record.max_events:
        message = f"the session key of {author} has signed all its {record.max_events} events: {_delegate(author)}"
        raise Refused("KEY_EXHAUSTED", message, author=author, max_events=record.max_events)
    return replace(record, used=record.used + 1)


def check_allows_secret(agents: Agents, key: str, author: str) -> None:
    """Refuse ``allow_secret`` by anyone but a human with their identity key.

    Raises Refused: ``NOT_AUTHORIZED``, ``KEY_OUT_OF_SCOPE``.
    """
    if not has_role(agents, author, {"human"}):
        message = f"{author} may not allow a secret: only a human may. Have a human sign this, or remove the secret"
        raise Refused("NOT_AUTHORIZED", message, name=author)
    record = agents.key(key)
    if record is None or not record.is_identity:
        message = f"a session key of {author} may not allow a secret: sign it with the identity key"
        raise Refused("KEY_OUT_OF_SCOPE", message)


def _delegate(author: str) -> str:
    return f"delegate another with `deed key delegate --as {author}`"


def _key_ended(author: str, key: KeyRecord, *, is_session: bool) -> Refused:
    """Return the refusal of a key that ended; ``is_session``: a session key signed, and it or its delegator ended."""
    how, index = key.ended_as, key.ended_index
    assert how is not None  # noqa: S101 - the caller asked
    renew = f"to get a new key, have root sign `deed key rotate --as {author} --lost`"
    if is_session and (not key.is_identity or how == "replaced"):
        whose = (
            f"the session key of {author}" if not key.is_identity else f"the key of {author} that delegated this one"
        )
        message = f"{whose} was {how} at entry {index}: {_delegate(author)}"
        return Refused("KEY_REVOKED", message, author=author, index=index, how=how)
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


class Voided(msgspec.Struct, frozen=True):
    """A grant that does not count, and the entry that reports a key on which the grant rests as compromised."""

    grant: Grant
    report: int


def report_on(agents: Agents, grant: Grant) -> int | None:
    """Return the entry because of which a grant does not count, or None if it counts.

    The signature of the grant must not be compromised, and the role by which its author granted it must count, too.
    """
    rests_on: Grant | None = grant
    while rests_on is not None:
        author = agents.agent(rests_on.by)
        if (report := compromised_at(agents.key, rests_on.key, rests_on.index)) is not None:
            return report
        roles = ("admin", NODE_ROLE)
        grants = () if author is None else (author.grant(role, rests_on.index) for role in roles)
        rests_on = next(filter(None, grants), None)  # each grant is earlier than the one before
    return None


def voided(agents: Agents, name: str, roles: Collection[str], index: int | None = None) -> Voided | None:
    """Return why an agent's right to these roles does not count now, or did not before the entry ``index``.

    None if one of them counts, or if it has none of them.
    """
    agent = agents.agent(name)
    if agent is None:
        return None
    first: Voided | None = None
    for role in sorted(roles):
        grant = agent.grant(role, index)
        if grant is None and role in agent.roles and role not in {each.role for each in agent.grants}:
            return None  # root has its role by entry 0
        if grant is not None:
            if (report := report_on(agents, grant)) is None:
                return None
            first = first or Voided(grant, report)
    return first


def report_on_signature(agents: Agents, key: str, kind: str, stream: str, index: int) -> int | None:
    """Return the entry because of which the signature of an event does not count, or None.

    The signature is compromised, or the role that its author needed rested on one that is.
    """
    report = compromised_at(agents.key, key, index)
    record = agents.key(key) if report is None else None
    if record is None:
        return report
    for_every, for_some = roles_for(stream.partition("/")[0], kind)
    void = voided(agents, record.agent, for_every if _held(agents, record.agent, for_every, index) else for_some, index)
    return None if void is None else void.report


def _held(agents: Agents, name: str, roles: Collection[str], index: int) -> bool:
    """Return whether an agent had one of these roles before an entry, by any grant, even one that does not count."""
    agent = agents.agent(name)
    if agent is None:
        return False
    granted = {grant.role for grant in agent.grants}
    return any(agent.grant(role, index) is not None or (role in agent.roles and role not in granted) for role in roles)


def is_doubtful(agents: Agents, key: str) -> bool:
    """Return whether a signature of a key may be compromised, or a role of its agent may rest on a compromised one."""
    record = agents.key(key)
    if record is None:
        return False
    agent = agents.agent(record.agent)
    grants = () if agent is None else agent.grants
    return compromised_at(agents.key, key, json_integer_max) is not None or any(report_on(agents, g) for g in grants)


def has_role(agents: Agents, name: str, roles: Collection[str]) -> bool:
    """Return whether an agent has one of these roles now, by a grant that counts."""
    agent = agents.agent(name)
    return agent is not None and not set(roles).isdisjoint(agent.roles) and voided(agents, name, roles) is None


def is_delegable(kind: str, stream: str, data: Any) -> bool:
    """Return whether a session key may ever sign such an event; ``data`` is a struct or a dict of plain values.

    It never signs an event that changes authority. It never signs the decision of a reviewer or a human either, for
    which the rules require an identity key.
    """
    # the family of the stream, because an imported record may belong to one of several families
    family = stream.partition("/")[0]
    is_authority = kind in CORE_KINDS and CORE_KINDS[kind].stream in AUTHORITY_STREAMS
    return not is_authority and not needs_identity_key(family, kind, data)


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
