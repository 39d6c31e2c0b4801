"""What came of an attempt, and what follows from it. Pure.

What may pass is tried again, first after ``retry_wait_first_s`` and each time ``retry_wait_factor`` times later, up to
the channel's ``retry_wait_max_s``: with the defaults twelve attempts over more than a day, because Standard Webhooks
advises a schedule that spans days. A ``Retry-After`` (RFC 9110 §10.2.3) can make a wait longer, up to the same maximum,
never shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from consumers.handoffs.notifier.settings import ChannelSettings

retry_wait_first_s: Final = 5.0
retry_wait_factor: Final = 4

Result: TypeAlias = Literal["delivered", "passing", "refused", "gone"]

_GONE: Final = 410
_PASSING: Final = frozenset({408, 429})
_SERVER_ERRORS: Final = 500


class Outcome(NamedTuple):
    """What came of one attempt, in our own words; ``wait_s`` is what the receiver asked for."""

    result: Result
    said: str
    wait_s: float | None = None


def outcome_of_status(status: int, wait_s: float | None = None) -> Outcome:
    """Return what an HTTP status means for a delivery."""
    said = f"the receiver answered {status}"
    if 200 <= status < 300:
        return Outcome("delivered", said)
    if status in _PASSING or status >= _SERVER_ERRORS:
        return Outcome("passing", said, wait_s)
    if status == _GONE:
        return Outcome("gone", f"{said}: it wants no more")
    return Outcome("refused", f"{said}: redirects are not followed" if 300 <= status < 400 else said)


def next_try_ms(outcome: Outcome, attempt: int, channel: ChannelSettings, now_ms: int) -> int | None:
    """Return when a delivery that failed at its ``attempt``-th attempt is tried again; None for never."""
    if outcome.result != "passing" or attempt >= channel.attempts_max:
        return None
    wait_s = max(retry_wait_first_s * retry_wait_factor ** (attempt - 1), outcome.wait_s or 0.0)
    return now_ms + int(1000 * min(wait_s, channel.retry_wait_max_s))
