"""Notifications: agents and people are told, once per waiting episode, that something waits for them.

    from consumers.handoffs.notifier import NotifierWorker, configured_channels

    worker = NotifierWorker(client, reader.answer, settings.home / STORE_FILE, configured_channels(settings))
    worker.run(stop)

Who is waited for is what ``handoffs.next`` answers (``baton next``). A *waiting episode* is a subject, an agent and an
action that hold without interruption; a *channel* is a command of the operator's own or a signed webhook, named in
``config.toml``; a *delivery* is an episode's one notification on its way to one channel. A delivery is made at least
once, with one id per episode, by which a receiver drops what a crash or a lost answer repeats. What was recorded is
sent even if the wait is over by then: a receiver that was away must be able to trust that it missed nothing.

Options refused: telling of each event (a handoff changes often while it waits for one thing), keeping channels in the
ledger (addresses and secrets are the operator's, and nobody else's to read), one summary for many (an id per episode
would be lost; a channel's ``actions`` and ``agents`` keep it narrow).
"""

from __future__ import annotations

from typing import Final

from consumers.handoffs.notifier.delivery import Outcome, attempt
from consumers.handoffs.notifier.episodes import Key, Notification, Open, Waiting, episodes, interrupted, trial
from consumers.handoffs.notifier.settings import Channel, ChannelSettings, configured_channels, read_channels
from consumers.handoffs.notifier.store import Delivery, NotifierStore
from consumers.handoffs.notifier.worker import NotifierWorker, unix_ms

STORE_FILE: Final = "notifier.db"

__all__ = [
    "STORE_FILE",
    "Channel",
    "ChannelSettings",
    "Delivery",
    "Key",
    "Notification",
    "NotifierStore",
    "NotifierWorker",
    "Open",
    "Outcome",
    "Waiting",
    "attempt",
    "configured_channels",
    "episodes",
    "interrupted",
    "read_channels",
    "trial",
    "unix_ms",
]
