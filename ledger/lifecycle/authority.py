"""Who holds which key and role, decided by log index.

A key is valid for an event when delegation < event < revocation. The functions here are pure: ``admission.rules``
looks the records up and stores what they return.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.errors import Refused

if TYPE_CHECKING:
    from ledger.events.authority import KeyDelegated

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ROOT: Final = "root"
NODE: Final = "node"
RESERVED_NAMES: Final = frozenset({ROOT, NODE})

# A reviewer decides with the identity key in hand: these kinds are never delegable.
NEVER_DELEGABLE: Final = frozenset(
    {
        "ledger.epoch_started",
        "agent.registered",
        "role.granted",
        "role.revoked",
        "key.delegated",
        "key.revoked",
        "handoff.approved",
        "handoff.rejected",
        "handoff.criterion_waived",
        "handoff.changes_requested",
        "handoff.verified",
        "review.answered",
    }
)


class AgentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A registered agent: its identity key (hex), bus key and roles."""

    name: str
    key: str
    roles: frozenset[str]
    nkey: str | None = None
    ai_id: str = ""


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A signing key: whose it is, since when, within which scope, and whether it was revoked."""

    agent: str
    is_identity: bool
    since_index: int
    expires_ms: int | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    max_events: int | None = None
    used: int = 0
    revoked_index: int | None = None


def delegated(agent: str, index: int, data: KeyDelegated) -> KeyRecord:
    """Return the record of a session key that ``agent`` delegated at ``index``."""
    return KeyRecord(
        agent=agent,
        is_identity=False,
        since_index=index,
        expires_ms=to_ms(data.expires_at),
        kinds=tuple(data.kinds),
        streams=tuple(data.streams),
        max_events=data.max_events,
    )


def check_key(
    record: KeyRecord | None, identity: KeyRecord | None, *, author: str, kind: str, stream: str, now_ms: int
) -> KeyRecord:
    """Return the record with this use counted, if the key may sign such an event now.

    ``identity`` is the record of the author's identity key: what it delegated falls with it.

    Raises:
        Refused: ``KEY_UNKNOWN``, ``KEY_REVOKED``, ``KEY_EXPIRED``, ``KEY_OUT_OF_SCOPE``, ``KEY_EXHAUSTED`` or
            ``AUTHOR_MISMATCH``.
    """
    if record is None:
        raise Refused("KEY_UNKNOWN", f"the key that signed as {author} is not registered in this ledger", author=author)
    if record.agent != author:
        raise Refused("AUTHOR_MISMATCH", f"the key belongs to {record.agent}, not to {author}", owner=record.agent)
    for held in (record, identity):
        if held is not None and held.revoked_index is not None:
            message = f"the key of {author} was revoked at entry {held.revoked_index}"
            raise Refused("KEY_REVOKED", message, author=author)
    if record.is_identity:
        return record
    if record.expires_ms is not None and now_ms >= record.expires_ms:
        raise Refused("KEY_EXPIRED", f"the session key of {author} has expired: delegate another", author=author)
    if not covers(record.kinds, record.streams, kind, stream):
        raise Refused("KEY_OUT_OF_SCOPE", f"the session key of {author} may not sign {kind} on {stream}", kind=kind)
    if record.max_events is None:
        return record
    if record.used >= record.max_events:
        raise Refused("KEY_EXHAUSTED", f"the session key of {author} has signed its {record.max_events} events")
    return msgspec.structs.replace(record, used=record.used + 1)


def covers(kinds: tuple[str, ...] | list[str], streams: tuple[str, ...] | list[str], kind: str, stream: str) -> bool:
    """Return whether a delegation's scope covers an event; an empty list covers all that is delegable."""
    if kind in NEVER_DELEGABLE:
        return False
    return _matches(kinds, kind) and _matches(streams, stream)


def to_ms(time: str) -> int:
    """Return an event's RFC 3339 time as Unix milliseconds.

    Raises:
        Refused: ``INVALID_FIELD`` for a day or time that does not exist.
    """
    try:
        return (datetime.fromisoformat(time) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        raise Refused("INVALID_FIELD", f"{time} is not a time: {error}") from error


def _matches(patterns: tuple[str, ...] | list[str], name: str) -> bool:
    if not patterns:
        return True
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)
