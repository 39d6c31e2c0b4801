"""What one agent may append and store: the table ``[quota]`` of ``config.toml``, and the counting of events.

Root and the node are exempt. Events are counted as a bucket that leaks: each adds to the level, time takes away as much
as is allowed in it, and a level above the limit refuses. So a refusal knows when the same submission will be taken.
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
    """What each agent may: events and their bytes over time, and blobs in all and before an event refers to them."""

    events_per_minute: _Limit = limits.events_per_minute_max
    event_bytes_per_day: _Limit = limits.event_per_day_max_bytes
    blob_bytes_unreferenced: _Limit = limits.blobs_unreferenced_max_bytes
    blob_bytes: _Limit = limits.blobs_of_agent_max_bytes


class QuotaUsage(msgspec.Struct, frozen=True, array_like=True):
    """How full an agent's buckets are, of events and of their bytes, at a time of the ledger's clock."""

    events: float = 0.0
    size: float = 0.0
    at_ms: int = 0


def spend(spent: QuotaUsage, quota: Quota, *, author: str, events: int, size: int, now_ms: int) -> QuotaUsage:
    """Return the record with a submission added.

    Who has spent nothing may always append one: else a limit below one submission would shut an agent out for good.
    Raises Unavailable: ``QUOTA_EXCEEDED``: time heals it, or the operator, and nothing about the events is wrong. So
    whoever appends many stops where it is, as when the store is full, and goes on later.
    """
    elapsed_ms = max(0, now_ms - spent.at_ms)
    left_events = max(0.0, spent.events - elapsed_ms * quota.events_per_minute / _minute_ms)
    left_size = max(0.0, spent.size - elapsed_ms * quota.event_bytes_per_day / _day_ms)
    after = QuotaUsage(left_events + events, left_size + size, now_ms)
    if left_events and after.events > quota.events_per_minute:
        raise _exceeded("events_per_minute", author, after.events, quota.events_per_minute, _minute_ms)
    if left_size and after.size > quota.event_bytes_per_day:
        raise _exceeded("event_bytes_per_day", author, after.size, quota.event_bytes_per_day, _day_ms)
    return after


def _exceeded(setting: str, author: str, level: float, limit: int, span_ms: int) -> Unavailable:
    wait_s = -(-int((level - limit) * span_ms / limit) // 1000) + 1
    message = (
        f"{author} has appended as much as one agent may ({setting} = {limit}): go on in {wait_s} s, or let the"
        f" operator raise {setting} under [quota] in config.toml"
    )
    return Unavailable("QUOTA_EXCEEDED", message, setting=setting, limit=limit, wait_s=wait_s, author=author)
