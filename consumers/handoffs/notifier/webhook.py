"""One attempt to deliver a notification to a webhook, over HTTP.

- one deadline bounds the whole attempt, also with a receiver that sends a byte a minute (only a name server that does
  not answer can hold it up longer);
- the status decides; the body of an answer is never read, so it cannot be too large;
- redirects are not followed, and no proxy or password file of the environment is used: the settings alone decide where
  a notification goes;
- what is said of a failure are our own words: neither address, secret nor anything the receiver wrote.

An attempt runs its own event loop, so it is made in a thread that has none.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumers.handoffs.notifier.attempts import Outcome, outcome_of_status
from consumers.handoffs.notifier.signature import signed_headers
from consumers.sdk.llm.client import retry_after_s

if TYPE_CHECKING:
    from consumers.handoffs.notifier.message import Notification
    from consumers.handoffs.notifier.settings import Channel


def post(channel: Channel, notification: Notification, now_ms: int) -> Outcome:
    """Post a notification to the channel's webhook, signed as an attempt of ``now_ms``; return what came of it."""
    limit_s = channel.settings.timeout_s
    try:
        return asyncio.run(_within(limit_s, channel, notification, now_ms))
    except TimeoutError:
        return Outcome("passing", f"the receiver did not answer within {limit_s:g} s")


async def _within(limit_s: float, channel: Channel, notification: Notification, now_ms: int) -> Outcome:
    import httpx  # noqa: PLC0415 - slow to load, and listing channels sends nothing

    url, secret = channel.settings.webhook, channel.secret
    assert url is not None  # noqa: S101 - the caller chose by it
    assert secret is not None  # noqa: S101 - configured_channels demands it
    headers = signed_headers(notification.id, now_ms // 1000, notification.document, secret)
    headers |= {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "baton-notifier"}
    try:
        async with (
            asyncio.timeout(limit_s),
            httpx.AsyncClient(timeout=None, follow_redirects=False, trust_env=False) as http,  # noqa: S113 - one limit
            http.stream("POST", url, content=notification.document, headers=headers) as response,
        ):
            wait_s = retry_after_s(response.headers.get("retry-after"), datetime.now(UTC))
            return outcome_of_status(response.status_code, wait_s)
    except httpx.InvalidURL:
        return Outcome("refused", "the address cannot be used")
    except httpx.TransportError as error:
        return Outcome("passing", f"the connection failed ({type(error).__name__})")
