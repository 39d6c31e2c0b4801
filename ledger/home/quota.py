"""The limits for one agent: the table ``[quota]`` of ``config.toml``, and the counting of events.

Root and the node are exempt. Events are counted as a leaking bucket: each event raises the level, and the level falls
with time at the allowed rate. A submission that would raise the level above the limit is refused. So the refusal can
say when the same submission will be accepted.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.format.forms import NODE, ROOT

EXEMPT: Final = frozenset({ROOT, NODE})
_minute_ms: Final = 60_000
_day_ms: Final = 24 * 60 * _minute_ms

_Limit = Annotated[int, msgspec.Meta(ge=1, le=2**46)]


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits for each agent: events and bytes of events per time, and bytes of blobs, in all and unreferenced."""

    events_per_minute: _Limit = limits.events_per_minute_max
    event_bytes_per_day: _Limit = limits.event_per_day_max_bytes
    blob_bytes_unreferenced: _Limit = limits.blobs_unreferenced_max_bytes
    blob_bytes: _Limit = limits.blobs_of_agent_max_bytes


class QuotaUsage(msgspec.Struct, frozen=True, array_like=True):
    """The levels of an agent's two buckets, events and bytes of events, at a time of the ledger's clock."""

    events: float = 0.0
    size: float = 0.0
    at_ms: int = 0


def spend(usage: QuotaUsage, quota: Quota, *, author: str, events: int, size: int, now_ms: int) -> QuotaUsage:
    """Return the usage with a submission of ``events`` events and ``size`` bytes added.

    An empty bucket accepts any submission, so that a limit below the size of one submission does not exclude the agent
    for ever. Raises Unavailable: ``QUOTA_EXCEEDED``. The events themselves are valid: the caller can stop here, as if
    the store were full, and continue later.
    """
    elapsed_ms = max(0, now_ms - usage.at_ms)
    left_events = max(0.0, usage.events - elapsed_ms * quota.events_per_minute / _minute_ms)
    left_size = max(0.0, usage.size - elapsed_ms * quota.event_bytes_per_day / _day_ms)
    after = QuotaUsage(left_events + events, left_size + size, now_ms)
    if left_events and after.events > quota.events_per_minute:
        raise _exceeded("events_per_minute", author, after.events, quota.events_per_minute, _minute_ms)
    if left_size and after.size > quota.event_bytes_per_day:
        raise _exceeded("event_bytes_per_day", author, after.size, quota.event_bytes_per_day, _day_ms)
    return after


def _exceeded(setting: str, author: str, level: float, limit: int, span_ms: int) -> Unavailable:
    wait_s = -(-int((level - limit) * span_ms / limit) // 1000) + 1
    message = (
        f"{author} has appended as much as one agent may ({setting} = {limit}): try again in {wait_s} s, or let"
        f" the operator raise {setting} under [quota] in config.toml"
    )
    return Unavailable("QUOTA_EXCEEDED", message, setting=setting, limit=limit, wait_s=wait_s, author=author)
