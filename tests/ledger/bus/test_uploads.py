"""Blobs in chunks: whatever is lost, doubled or interrupted, sending goes on where the ledger is, within the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from ledger import limits
from ledger.bus.uploads import Uploads, idle_max_s, uploads_max
from ledger.errors import Corrupted, Refused, Unavailable

if TYPE_CHECKING:
    from ledger.local import LocalClient

CHUNK = limits.blob_chunk_bytes


class Sender:
    """One agent with a blob of a little more than two chunks."""

    def __init__(self, uploads: Uploads, agent: str = "alice", text: str = "") -> None:
        self.content = ((agent + text).encode() * 2 * CHUNK)[: 2 * CHUNK + 10]
        self.ref = "blake3:" + blake3(self.content).hexdigest()
        self._uploads, self._agent = uploads, agent

    def send(self, number: int, chunk: bytes | None = None) -> dict[str, Any]:
        """Send one chunk and return the answer."""
        chunk = self.content[number * CHUNK : (number + 1) * CHUNK] if chunk is None else chunk
        return self._uploads.take(self._agent, self.ref, f"{number}/3", chunk)


class Clock:
    """Seconds that stand still until a test moves them."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """The clock of the uploads."""
    return Clock()


@pytest.fixture
def uploads(local_client: LocalClient, clock: Clock) -> Uploads:
    """The uploads of one node."""
    return Uploads(local_client, clock)


def test_blob_is_stored_with_its_last_chunk(uploads: Uploads, local_client: LocalClient) -> None:
    sender = Sender(uploads)
    assert sender.send(0) == {"received": CHUNK}
    assert sender.send(1) == {"received": 2 * CHUNK}
    assert local_client.log.blobs.find(sender.ref) is None
    assert sender.send(2) == {"received": 2 * CHUNK + 10, "ref": sender.ref}
    assert local_client.get_blob(sender.ref) == sender.content


def test_chunk_that_is_sent_twice_or_too_early_is_answered_with_where_to_go_on(uploads: Uploads) -> None:
    sender = Sender(uploads)
    assert sender.send(1) == {"received": 0}
    sender.send(0)
    assert sender.send(0) == {"received": CHUNK}
    assert sender.send(2) == {"received": CHUNK}
    sender.send(1)
    assert sender.send(2)["ref"] == sender.ref


def test_blob_that_is_stored_is_answered_at_any_chunk(uploads: Uploads, local_client: LocalClient) -> None:
    sender = Sender(uploads)
    local_client.put_blob(sender.content)
    for number in (0, 1, 2):
        assert sender.send(number) == {"received": len(sender.content), "ref": sender.ref}


def test_other_content_than_the_ref_says_is_refused_and_sending_begins_anew(
    uploads: Uploads, local_client: LocalClient
) -> None:
    sender = Sender(uploads)
    sender.send(0, b"x" * CHUNK)
    sender.send(1)
    with pytest.raises(Corrupted):
        sender.send(2)
    assert local_client.log.blobs.find(sender.ref) is None
    assert [sender.send(number)["received"] for number in range(3)] == [CHUNK, 2 * CHUNK, 2 * CHUNK + 10]


@pytest.mark.parametrize(
    "number", ["", "0", "3/3", "-1/3", "0/0", "a/b", "1/2/3", "9" * 5000 + "/1", " 0/3", "٠/٣", "0/3\n"]
)
def test_malformed_chunk_number_is_refused(uploads: Uploads, number: str) -> None:
    with pytest.raises(Refused) as refused:
        uploads.take("alice", Sender(uploads).ref, number, b"x")
    assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize("ref", ["", "blake3:zz", "md5:" + "0" * 64, "x" * 100_000])
def test_malformed_ref_is_refused(uploads: Uploads, ref: str) -> None:
    with pytest.raises(Refused) as refused:
        uploads.take("alice", ref, "0/1", b"x")
    assert refused.value.code == "INVALID_FIELD"


def test_sizes_beyond_the_limits_are_refused(uploads: Uploads) -> None:
    sender = Sender(uploads)
    with pytest.raises(Refused, match="at most") as refused:
        sender.send(0, b"x" * (CHUNK + 1))
    assert refused.value.code == "TOO_LARGE"
    with pytest.raises(Refused) as refused:
        uploads.take("alice", sender.ref, "0/1026", b"x" * CHUNK)
    assert refused.value.code == "TOO_LARGE"
    with pytest.raises(Refused) as refused:
        sender.send(0, b"short")
    assert refused.value.code == "INVALID_FIELD"


def test_agent_has_one_unfinished_blob_until_it_is_idle(uploads: Uploads, clock: Clock) -> None:
    one, other = Sender(uploads), Sender(uploads, text="2")
    one.send(0)
    clock.now_s += idle_max_s - 1
    with pytest.raises(Unavailable) as refused:
        other.send(0)
    assert refused.value.code == "BUSY"
    one.send(1)
    clock.now_s += idle_max_s
    assert other.send(0) == {"received": CHUNK}
    assert one.send(2) == {"received": 0}


def test_more_agents_than_the_limit_wait_for_one_that_is_idle(uploads: Uploads, clock: Clock) -> None:
    senders = [Sender(uploads, f"agent-{number}") for number in range(uploads_max + 1)]
    for sender in senders[:-1]:
        sender.send(0)
        clock.now_s += 1
    with pytest.raises(Unavailable):
        senders[-1].send(0)
    clock.now_s = idle_max_s
    assert senders[-1].send(0) == {"received": CHUNK}
    assert senders[0].send(1) == {"received": 0}  # The one that was idle for longest gave way,
    assert senders[1].send(1) == {"received": 2 * CHUNK}  # and nobody else.
