"""The stored state of the notifier: open episodes and an outbox, in the file of its subscription.

An episode, its deliveries and the position in the log are written in one transaction: after any crash an episode is
either stored with all of its deliveries or will be found again. An attempt is counted before it is made, so an attempt
that ends the process counts as a failed one, and its retry waits as long. Otherwise a dozen quick restarts would use up
all attempts of a notification that was never sent. Each thread has its own store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.handoffs.notifier.episodes import EpisodeKey, Notification, OpenEpisode, WaitRecord
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import msgpack_decoder

STORE_FILE: Final = "notifier.db"
dead_letters_max: Final = 1_000
listed_max: Final = 500


class Delivery(NamedTuple):
    """One notification on its way to one channel; ``next_ms`` is None for a dead letter."""

    number: int
    channel: str
    notification: Notification
    attempts: int
    next_ms: int | None
    error: str
    created_ms: int


class NotifierStore(Subscriptions):
    """The notifier's tables and its position in the log, in one file."""

    schema = """
    CREATE TABLE IF NOT EXISTS episodes (
        kind TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL, action TEXT NOT NULL,
        episode_id TEXT NOT NULL, seen_size INTEGER NOT NULL, began_ms INTEGER NOT NULL, title TEXT NOT NULL,
        PRIMARY KEY (kind, id, agent, action)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS deliveries (
        number INTEGER PRIMARY KEY, episode_id TEXT NOT NULL, channel TEXT NOT NULL, notification BLOB NOT NULL,
        attempts INTEGER NOT NULL, next_ms INTEGER, error TEXT NOT NULL, created_ms INTEGER NOT NULL,
        UNIQUE (episode_id, channel));
    CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (channel, next_ms);
    """

    def open_episodes(self) -> dict[EpisodeKey, OpenEpisode]:
        """Return the episodes that have not ended."""
        rows = self.run("SELECT kind, id, agent, action, episode_id, seen_size FROM episodes")
        return {EpisodeKey(*row[:4]): OpenEpisode(*row[4:]) for row in rows}

    def begin(self, waiting: WaitRecord, opened: OpenEpisode, began_ms: int) -> None:
        """Store that ``waiting`` began an episode."""
        row = (*waiting.key, *opened, began_ms, waiting.title)
        self.run("INSERT INTO episodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def end(self, keys: Iterable[EpisodeKey]) -> None:
        """Delete episodes that are over. Their deliveries stay until they arrive or become dead letters."""
        for key in keys:
            self.run("DELETE FROM episodes WHERE kind = ? AND id = ? AND agent = ? AND action = ?", *key)

    def add_delivery(self, channel: str, notification: Notification, now_ms: int) -> None:
        """Put a notification into the outbox, due at once."""
        sql = "INSERT INTO deliveries (episode_id, channel, notification, attempts, next_ms, error, created_ms) "
        stored = msgspec.msgpack.encode(notification)
        self.run(f"{sql}VALUES (?, ?, ?, 0, ?, '', ?)", notification.id, channel, stored, now_ms, now_ms)

    def due(self, channel: str, now_ms: int) -> Delivery | None:
        """Return the delivery of a channel that has been due for the longest time; None if none is due."""
        sql = f"{_SELECT} WHERE channel = ? AND next_ms <= ? ORDER BY next_ms, number LIMIT 1"
        rows = self._deliveries(sql, (channel, now_ms))
        return rows[0] if rows else None

    def begin_attempt(self, delivery: Delivery, next_ms: int) -> None:
        """Count an attempt before it is made; if the process dies in it, the delivery is due again at ``next_ms``."""
        sql = "UPDATE deliveries SET attempts = attempts + 1, next_ms = ? WHERE number = ?"
        self.run(sql, next_ms, delivery.number)

    def delivered(self, delivery: Delivery) -> None:
        """Delete a delivery that arrived."""
        self.run("DELETE FROM deliveries WHERE number = ?", delivery.number)

    def failed(self, delivery: Delivery, error: str, next_ms: int | None) -> None:
        """Store when a delivery is tried again, or that it is a dead letter; the oldest dead letters are dropped."""
        oldest = "SELECT number FROM deliveries WHERE next_ms IS NULL ORDER BY number DESC LIMIT -1 OFFSET ?"
        with self.transaction():
            self.run("UPDATE deliveries SET error = ?, next_ms = ? WHERE number = ?", error, next_ms, delivery.number)
            self.run(f"DELETE FROM deliveries WHERE number IN ({oldest})", dead_letters_max)  # noqa: S608 - fixed texts

    def bury_strangers(self, channels: Sequence[str]) -> None:
        """Give up deliveries to channels that are not configured any more."""
        marks = ", ".join("?" * len(channels))
        sql = f"UPDATE deliveries SET error = ?, next_ms = NULL WHERE next_ms IS NOT NULL AND channel NOT IN ({marks})"  # noqa: S608 - question marks
        self.run(sql, "the channel is not configured any more", *channels)

    def retry(self, episode_id: str | None, now_ms: int) -> int:
        """Make dead letters due now, of one episode or all, with no attempt counted; return how many.

        Raises Refused: ``NOT_FOUND`` if the episode has none.
        """
        where = "next_ms IS NULL" if episode_id is None else "next_ms IS NULL AND episode_id = ?"
        values = () if episode_id is None else (episode_id,)
        sql = f"UPDATE deliveries SET next_ms = ?, attempts = 0 WHERE {where} RETURNING number"  # noqa: S608 - fixed texts
        count = len(self.run(sql, now_ms, *values))
        if episode_id is not None and not count:
            raise Refused("NOT_FOUND", f"{episode_id} is not a dead letter", id=episode_id)
        return count

    def listed_episodes(self) -> tuple[list[dict[str, Any]], int]:
        """Return the open episodes, oldest first and at most ``listed_max``, and how many there are."""
        names = ("kind", "id", "agent", "action", "episode_id", "began_ms", "title")
        sql = f"SELECT {', '.join(names)} FROM episodes ORDER BY began_ms, kind, id LIMIT ?"  # noqa: S608 - fixed names
        rows = [dict(zip(names, row, strict=True)) for row in self.run(sql, listed_max)]
        return rows, self._count("episodes", "1")

    def listed_deliveries(self, *, dead: bool) -> tuple[list[Delivery], int]:
        """Return the pending or the dead deliveries, oldest first and at most ``listed_max``, and their total."""
        where = f"next_ms IS {'' if dead else 'NOT '}NULL"
        rows = self._deliveries(f"{_SELECT} WHERE {where} ORDER BY number LIMIT ?", (listed_max,))
        return rows, self._count("deliveries", where)

    def _count(self, table: str, where: str) -> int:
        ((count,),) = self.run(f"SELECT count(*) FROM {table} WHERE {where}")  # noqa: S608 - fixed texts
        return int(count)

    def _deliveries(self, sql: str, values: tuple[Any, ...]) -> list[Delivery]:
        rows = self.run(sql, *values)
        return [Delivery(number, channel, _read(stored), *more) for number, channel, stored, *more in rows]


_read: Final = msgpack_decoder(Notification).decode
_SELECT: Final = "SELECT number, channel, notification, attempts, next_ms, error, created_ms FROM deliveries"
