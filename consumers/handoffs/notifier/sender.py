"""Sending what is in the outbox: one sender a channel, so that a slow receiver holds up nobody else's notifications.

What happens if we crash here: an attempt was counted before it was made. If the process ends during it, the next start
makes the next one, with the same id; a delivery that ended its process as often as it may be tried is a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from consumers.handoffs.notifier.attempts import Outcome, next_try_ms
from consumers.handoffs.notifier.store import NotifierStore
from consumers.handoffs.notifier.webhook import post_notification
from consumers.sdk.command import run_command

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from consumers.handoffs.notifier.message import Notification
    from consumers.handoffs.notifier.settings import Channel
    from consumers.handoffs.notifier.store import Delivery

log = structlog.get_logger("baton.notifier")

outbox_poll_s: Final = 0.5


def attempt(
    channel: Channel, notification: Notification, now_ms: int, *, stop: threading.Event | None = None
) -> Outcome:
    """Try once to deliver a notification to a channel; return what came of it. ``stop`` ends a command early."""
    command = channel.settings.command
    if command is None:
        return post_notification(channel, notification, now_ms)
    environment = {
        "BATON_NOTIFICATION_ID": notification.id,
        "BATON_TITLE": notification.title,
        "BATON_TEXT": notification.text,
    }
    document = notification.document + b"\n"
    limit_s = channel.settings.timeout_s
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
        """Send whatever is due until ``stop`` is set.

        Raises:
            Unavailable: the store cannot be used.
        """
        store = NotifierStore(self._path)
        try:
            while not stop.is_set():
                self.send_due(store, stop)
                stop.wait(outbox_poll_s)
        finally:
            store.close()

    def send_due(self, store: NotifierStore, stop: threading.Event) -> None:
        """Send everything that is due now, once, in the order in which it came to be due."""
        name = self._channel.name
        while not stop.is_set() and (delivery := store.due(name, self._clock_ms())) is not None:
            if (error := store.stopped().get(name)) is not None:
                store.stop_channel(name, error, self._clock_ms())
            elif delivery.attempts >= self._channel.settings.attempts_max:
                store.failed(delivery, "the notifier ended while it sent this", None)
            else:
                store.count_attempt(delivery)
                outcome = attempt(self._channel, delivery.notification, self._clock_ms(), stop=stop)
                self._record(store, delivery, outcome)

    def _record(self, store: NotifierStore, delivery: Delivery, outcome: Outcome) -> None:
        if outcome.result == "delivered":
            store.delivered(delivery)
            return
        count, now_ms = delivery.attempts + 1, self._clock_ms()
        next_ms = next_try_ms(outcome, count, self._channel.settings, now_ms)
        said = {"channel": self._channel.name, "id": delivery.notification.id, "attempt": count, "error": outcome.said}
        if outcome.result == "gone":
            store.stop_channel(self._channel.name, outcome.said, now_ms)
            log.error("channel stopped", **said)
            return
        store.failed(delivery, outcome.said, next_ms)
        if next_ms is None:
            log.error("notification given up", **said)
        else:
            log.warning("notification failed", **said, again_in_s=(next_ms - now_ms) / 1000)
