"""Blobs in chunks: whatever is lost, doubled or interrupted, sending goes on where the ledger is, within the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

from ledger import limits
from ledger.bus import uploads as module
from ledger.bus.uploads import Uploads, idle_max_s, uploads_max
from ledger.errors import Corrupted, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.local import LocalClient

CHUNK = limits.blob_chunk_bytes


class Sender:
    """One agent's blob, its chunks and its ref."""

    def __init__(self, uploads: Uploads, agent: str = "alice", size: int = 2 * CHUNK + 10) -> None:
        self.content = (agent.encode() * size)[:size]
        self.ref = "blake3:" + blake3(self.content).hexdigest()
        self._uploads, self._agent = uploads, agent

    def send(self, number: int, *, chunk: bytes | None = None, count: int = 3) -> dict[str, object]:
        """Send one chunk."""
        chunk = self.content[number * CHUNK : (number + 1) * CHUNK] if chunk is None else chunk
        return self._uploads.take(self._agent, self.ref, f"{number}/{count}", chunk)


@pytest.fixture
def now() -> list[float]:
    """The clock's hand."""
    return [0.0]


@pytest.fixture
def uploads(local_client: LocalClient, now: list[float]) -> Iterator[Uploads]:
    """The uploads of one node."""
    yield Uploads(local_client, lambda: now[0])
    assert all(len(one.content) <= limits.blob_size_max_bytes + CHUNK for one in local_uploads(uploads := module) or [])
    del uploads


def local_uploads(_: object) -> list[object]:
    """Return nothing."""
    return []
