"""The order of entries when several nodes share a ledger: the gate publishes a decision before it appends it.

Each node decides on its own log, which ends at some index, and publishes with the condition that the stream ends there,
too. So of two nodes that decide at the same index, one is first, and the other decides again.
"""

from __future__ import annotations

from typing import Protocol


class OvertakenError(Exception):
    """The stream has, or may have, entries that the log lacks: catch up, and decide again.

    The gate always catches it.
    """


class Order(Protocol):
    """The stream that decides the order. The gate calls it in threads."""

    def publish(self, start: int, entries: list[bytes]) -> None:
        """Publish the entries from index ``start`` before they are appended. If it raises, nothing is appended.

        Without entries, check that the stream ends where the log does: only then may the gate refuse a submission.

        Raises OvertakenError. Unavailable: the stream may hold the entries or not, so they must not be acknowledged.
        """

    def catch_up(self, attempt: int) -> None:
        """Append the entries that the log lacks, after a wait of random length that grows with ``attempt``.

        Raises Unavailable: the entries cannot be read.
        """
