"""Delivering what is in the outbox: one sender a channel, so that a slow receiver holds up nobody else's notifications.

What may pass is tried again, by default twelve times over more than a day, because Standard Webhooks advises a schedule
that spans days. A ``Retry-After`` (RFC 9110 §10.2.3) can make a wait longer, up to the same maximum, never shorter.
Of a webhook's answer the status decides; its body is never read.
"""

from __future__ import annotations

import base64
import hmac
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import structlog

from deedbook.consumers.handoffs.notifier.episodes import Notification
from deedbook.consumers.handoffs.notifier.settings import Channel, ChannelSettings, Secret
from deedbook.consumers.handoffs.notifier.store import Delivery, NotifierStore
from deedbook.consumers.sdk.command import run_command
from deedbook.consumers.sdk.http import NoAnswer, request

retry_wait_first_s: Final = 5.0
retry_wait_factor: Final = 4

Result: TypeAlias = Literal["delivered", "passing", "refused"]

_PASSING: Final = frozenset({408, 429})


class Outcome(NamedTuple):
    """What came of one attempt, in our own words; ``wait_s`` is what the receiver asked for."""

    result: Result
    text: str
    wait_s: float | None = None


def next_try_ms(outcome: Outcome, attempt: int, channel: ChannelSettings, now_ms: int) -> int | None:
    """Return when a delivery that failed at its ``attempt``-th attempt is tried again; None for never."""
    if outcome.result != "passing" or attempt >= channel.attempts_max:
        return None
    wait_s = max(retry_wait_first_s * retry_wait_factor ** (attempt - 1), outcome.wait_s or 0.0)
    return now_ms + int(1000 * min(wait_s, channel.retry_wait_max_s))


def post_notification(channel: Channel, notification: Notification, now_ms: int) -> Outcome:
    """Post a notification to the channel's webhook, signed as an attempt of ``now_ms``; return what came of it."""
    url, secret, limit_s = channel.settings.webhook, channel.secret, channel.settings.timeout_s
    assert url is not None  # noqa: S101 - the caller chose by it
    assert secret is not None  # noqa: S101 - a channel that is ready has one
    headers = signed_headers(notification.id, now_ms // 1000, notification.document, secret)
    headers |= {"content-type": "application/json", "user-agent": "deedbook-notifier"}
    try:
        answer = request("POST", url, notification.document, headers, limit_s=limit_s)
    except NoAnswer as error:
        return Outcome("passing" if error.may_pass else "refused", error.problem)
    text = f"the receiver answered {answer.status}"
    if 200 <= answer.status < 300:
        return Outcome("delivered", text)
    if answer.status in _PASSING or answer.status >= 500:
        return Outcome("passing", text, answer.wait_s)
    return Outcome("refused", f"{text}: redirects are not followed" if 300 <= answer.status < 400 else text)


def signed_headers(message_id: str, timestamp_s: int, body: bytes, secret: Secret) -> dict[str, str]:
    """Return the three headers of one attempt to deliver ``body``.

    >>> key = Secret(b"0123456789abcdef01234567")
    >>> signed_headers("5f0c", 1674087231, b"{}", key)["webhook-signature"]
    'v1,lDWGVlZTeqQGMF43uU3L8N9eRhV8SelSktCJ0NU6qKI='
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(secret.key, signed, "sha256")).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": f"v1,{signature}"}


_ENDED: Final = Outcome("passing", "the notifier ended while it sent this")

log = structlog.get_logger("deedbook.notifier")

outbox_poll_s: Final = 0.5


def attempt(
    channel: Channel, notification: Notification, now_ms: int, *, stop: threading.Event | None = None
) -> Outcome:
    """Try once to deliver a notification to a channel; return what came of it. ``stop`` ends a command early."""
    command = channel.settings.command
    if command is None:
        return post_notification(channel, notification, now_ms)
    words = {"DEEDBOOK_TITLE": notification.title, "DEEDBOOK_TEXT": notification.text}
    environment = {"DEEDBOOK_NOTIFICATION_ID": notification.id} | words
    document, limit_s = notification.document + b"\n", channel.settings.timeout_s
    ended = run_command(command, document, environment, limit_s=limit_s, stop=stop, drops_output=True)
    if ended.problem is not None:
        return Outcome("passing", ended.problem)
    return Outcome("delivered", "the command ended with exit code 0")


class Sender:
    """Delivers what the outbox holds for one channel."""

    def __init__(self, channel: Channel, path: Path, clock_ms: Callable[[], int]) -> None:
        """Send to ``channel`` what the store at ``path`` holds for it; ``clock_ms`` is unix time in milliseconds."""
        self._channel = channel
        self._path = path
        self._clock_ms = clock_ms

    def run(self, stop: threading.Event) -> None:
        """Send whatever is due until ``stop`` is set."""
        with closing(NotifierStore(self._path)) as store:
            while not stop.is_set():
                self.send_due(store, stop)
                stop.wait(outbox_poll_s)

    def send_due(self, store: NotifierStore, stop: threading.Event) -> None:
        """Send everything that is due now, once, in the order in which it came to be due."""
        name = self._channel.name
        while not stop.is_set() and (delivery := store.due(name, self._clock_ms())) is not None:
            if delivery.attempts >= self._channel.settings.attempts_max:
                store.failed(delivery, _ENDED.text, None)
            else:
                now_ms = self._clock_ms()
                again_ms = next_try_ms(_ENDED, delivery.attempts + 1, self._channel.settings, now_ms)
                store.begin_attempt(delivery, again_ms or now_ms)
                outcome = attempt(self._channel, delivery.notification, now_ms, stop=stop)
                self._record(store, delivery, outcome)

    def _record(self, store: NotifierStore, delivery: Delivery, outcome: Outcome) -> None:
        if outcome.result == "delivered":
            store.delivered(delivery)
            return
        count, now_ms = delivery.attempts + 1, self._clock_ms()
        next_ms = next_try_ms(outcome, count, self._channel.settings, now_ms)
        told = log.bind(channel=self._channel.name, id=delivery.notification.id, attempt=count, error=outcome.text)
        store.failed(delivery, outcome.text, next_ms)
        if next_ms is None:
            told.error("notification given up")
        else:
            told.warning("notification failed", again_in_s=(next_ms - now_ms) / 1000)
