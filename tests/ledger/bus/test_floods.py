"""One agent sends as fast as it can, or sends hostile bytes: the node stays connected and serves the others."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flooding
import msgspec
import pytest
from served import Served, bus_seed, connect, failure_of, until

from deedbook.ledger import limits
from deedbook.ledger.bus.subjects import inbox_prefix, read_subject, reads_of, submit_subject
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.service import intake
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import control_line_max_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

FLOODS = {
    "60 kB, as fast as it goes": (60_000, 1, 0),
    "60 kB, 830 a second": (60_000, 1, 830),
    "nothing, over many connections": (0, 8, 0),
    "the largest, over two connections": (limits.agent_payload_max_bytes, 2, 0),
}
SECONDS_MAX = 60
SUBMISSIONS = 8


@contextmanager
def flooded(
    served: Served, subject: str, size: int, connections: int, per_second: int
) -> Iterator[subprocess.Popen[str]]:
    """Let alice flood a subject from a process of her own."""
    port = served.url.rpartition(":")[2]
    what = (port, bus_seed("alice"), "alice", subject, size, connections, SECONDS_MAX, per_second)
    program = [sys.executable, flooding.__file__, *map(str, what)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def _is_closed(served: Served) -> bool:
    subscriptions = (lane._subscriptions["alice"] for lane in (served.service._submissions, served.service._reads))
    return any(subscription.flooded_s > 0 for subscription in subscriptions)


def log_of(server: EmbeddedServer) -> str:
    """Return the log of the server."""
    return (server.folder / "server.log").read_text()


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
@pytest.mark.parametrize("lane", ["submit", "read"])
def test_flood_of_one_agent_neither_cuts_the_node_off_nor_keeps_others_from_submitting(
    served: Served, ledger: Ledger, shared_server: EmbeddedServer, lane: str, flood: tuple[int, int, int]
) -> None:
    connected_as, logged = served.nats.client_id, len(log_of(shared_server))
    subject = submit_subject(ledger.id, "alice") if lane == "submit" else read_subject(ledger.id, "alice", "range")
    bob = served.client("bob")
    with flooded(served, subject, *flood) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        # Wait until the node has read a part of the flood.
        served.run(until(lambda: served.nats.stats["in_msgs"] > 100 or _is_closed(served)))
        for number in range(SUBMISSIONS):
            submission = ledger.sign("bob", Draft(stream=f"session/{number}", data=SessionStarted()))
            assert bob.submit(submission)[0].index == ledger.head()[0] - 1
        child.stdin.close()
        assert int(child.stdout.read()) > 0
    assert served.nats.client_id == connected_as
    assert "Slow Consumer" not in log_of(shared_server)[logged:]
    assert size_when_let_in(served) == ledger.head()[0]


def size_when_let_in(served: Served) -> int:
    """Ask for the log's size as alice until she is answered; before, the node serves or drops the rest of her flood."""
    while True:
        try:
            return served.client("alice").head().size
        except Unavailable as error:
            if not error.recoverable:
                raise


@pytest.mark.parametrize("lane", ["submit", "read"])
def test_node_that_does_not_run_is_sent_no_more_of_an_agent_than_its_window(
    served: Served, ledger: Ledger, lane: str
) -> None:
    subject = submit_subject(ledger.id, "alice") if lane == "submit" else read_subject(ledger.id, "alice", "head")
    message = flooding.message_of(subject, "alice", b"")
    subscription = (served.service._submissions if lane == "submit" else served.service._reads)._subscriptions["alice"]
    first, runs = subscription.handle, threading.Event()
    served.run(served.nats.flush())
    before = served.nats.stats["in_msgs"]
    with flooding.connect(int(served.url.rpartition(":")[2]), bus_seed("alice")) as connection:
        connection.settimeout(20)  # otherwise a failure would hang
        served._loop.call_soon_threadsafe(runs.wait)
        try:
            connection.sendall(b"SUB _INBOX_alice.> 1\r\n" + message * limits.subscription_window_max + b"PING\r\n")
            assert flooding.heard(connection, b"PONG")
            connection.sendall(message + b"PING\r\n")
            assert flooding.heard(connection, b"NATS/1.0 503")
        finally:
            runs.set()
        served.run(served.nats.flush())
        arrived = served.nats.stats["in_msgs"] - before
        assert arrived <= limits.subscription_window_max + 1  # the extra message is the answer to the flush
        # The node extended the window too late: the server had already ended the subscription. So it subscribes again.
        served.run(until(lambda: subscription.handle not in {None, first}))
        assert served.client().head().size == ledger.head()[0]


def test_window_that_is_used_up_while_it_moves_on_is_moved_on_again(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, flush = served.service._reads._subscriptions["alice"], served.nats.flush
    message = flooding.message_of(read_subject(ledger.id, "alice", "head"), "alice", b"")
    heard, is_used_up = threading.Event(), threading.Event()

    async def flush_late() -> None:
        await flush()
        heard.set()
        monkeypatch.undo()
        await until(lambda: subscription.read == subscription.allowed)
        is_used_up.set()

    half = limits.subscription_window_max // 2
    with flooding.connect(int(served.url.rpartition(":")[2]), bus_seed("alice")) as connection:
        monkeypatch.setattr(served.nats, "flush", flush_late)
        connection.sendall(b"SUB _INBOX_alice.> 1\r\n" + message * half)
        assert heard.wait(20)
        connection.sendall(message * limits.subscription_window_max)
        assert is_used_up.wait(20)
    assert served.client().head().size == ledger.head()[0]


def test_one_agents_windows_fit_into_what_the_server_holds_for_a_node() -> None:
    lanes, largest = 2, limits.agent_payload_max_bytes + control_line_max_bytes
    assert lanes * limits.subscription_window_max * largest < limits.connection_pending_max_bytes


def test_window_moves_on_with_what_is_read_and_nothing_that_came_is_dropped(served: Served, ledger: Ledger) -> None:
    subject = read_subject(ledger.id, "alice", "head")

    async def ask() -> list[Any]:
        return [await served.alice.request(subject, b"", timeout=20) for _ in range(3 * limits.subscription_window_max)]

    assert {msgspec.json.decode(answer.data)["size"] for answer in served.run(ask())} == {ledger.head()[0]}
    subscription = served.service._reads._subscriptions["alice"]
    served.run(until(lambda: not subscription.is_extending))
    assert subscription.read < subscription.allowed <= subscription.read + limits.subscription_window_max


def test_request_beyond_the_share_of_an_agent_is_shed_unread_and_its_subscription_closes(
    served: Served, ledger: Ledger
) -> None:
    served.service._submissions._subscriptions["alice"].pause_s = 1000
    queue = served.service._submissions._queue
    queue._share = replace(queue._share, waiting_max=1, running_max=0, all_running_max=0)
    subject = submit_subject(ledger.id, "alice")

    async def ask() -> tuple[Any, Any]:
        waiting = asyncio.create_task(served.alice.request(subject, b"junk", timeout=20))
        await until(lambda: queue.waiting_bytes > 0)
        answer = await served.alice.request(subject, b"more junk", timeout=20)
        subscription = served.service._submissions._subscriptions["alice"]
        await until(lambda: subscription.handle is None)
        await served.nats.flush()
        with pytest.raises(Exception, match="no responders"):
            await served.alice.request(subject, b"junk", timeout=20)
        queue._share = replace(queue._share, running_max=1, all_running_max=1)
        served.service._submissions._advance()
        return msgspec.json.decode(answer.data)["error"], msgspec.json.decode((await waiting).data)["error"]

    shed, served_later = served.run(ask())
    assert (shed["code"], shed["recoverable"]) == ("BUSY", True)
    assert served_later["code"] == "INVALID_FORMAT"


def test_subscription_that_closed_opens_again_piece_by_piece_and_at_last_without_a_count(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "subscription_pause_max_s", 0.001)
    intake_of_reads = served.service._reads
    intake_of_reads._subscriptions["alice"].pause_s = 0.001
    subject = read_subject(ledger.id, "alice", "head")

    async def ask() -> None:
        subscription = intake_of_reads._subscriptions["alice"]
        intake_of_reads._close("alice", subscription)
        await until(lambda: subscription.left is not None and subscription.handle is not None)
        for _ in range(2):  # From here on the server knows of the subscription.
            await served.nats.flush()
        before = subscription.left or 0
        await served.alice.request(subject, b"", timeout=20)
        assert subscription.left == before - 1
        for _ in range(before - 1):
            await served.alice.request(subject, b"", timeout=20)
        monkeypatch.setattr(limits, "subscription_flood_forget_s", 0)
        await until(lambda: subscription.left is None or subscription.left > 0)
        for _ in range(2):
            await served.nats.flush()
        while subscription.left is not None:
            answer = await served.alice.request(subject, b"", timeout=20)
            await asyncio.sleep(0)
        assert msgspec.json.decode(answer.data)["size"] == ledger.head()[0]

    served.run(ask())


def test_agent_that_is_shed_is_told_in_words_and_served_once_it_is_quiet(
    served: Served, ledger: Ledger, give_up_soon: None
) -> None:
    subscription = served.service._reads._subscriptions["alice"]
    subscription.pause_s = 3.0
    client = served.client()
    served._loop.call_soon_threadsafe(served.service._reads._close, "alice", subscription)
    served.run(until(lambda: subscription.handle is None))
    for _ in range(2):  # From here on the server knows that no node subscribes.
        served.run(served.nats.flush())
    error = failure_of(client.head)
    assert (error.code, error.recoverable) == ("BUS_UNAVAILABLE", True)
    assert "admitted again soon" in error.message
    served.run(until(lambda: subscription.handle is not None))
    assert client.head().size == ledger.head()[0]


HOSTILE = {
    "headers that are no text": (b"NATS/1.0\r\nA: \xff\xfe\r\n\xff: b\r\n\r\n", b"junk"),
    "a status that is no text": (b"NATS/1.0 \xff\xff\xff \xff\r\n\r\n", b"junk"),
    "headers that are none": (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b""),
    "many headers": (b"NATS/1.0\r\n" + b"".join(b"k%d: v\r\n" % n for n in range(50_000)) + b"\r\n", b"junk"),
}


@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE.keys())
def test_headers_of_any_bytes_do_not_stop_the_node(
    served: Served, ledger: Ledger, message: tuple[bytes, bytes]
) -> None:
    headers, payload = message
    subject = submit_subject(ledger.id, "alice")
    sent(served, flooding.message_of(subject, "alice", payload, headers))
    assert served.client().head().size == ledger.head()[0]


@pytest.mark.parametrize("token", [b"\xff", b"\xc3\x28", "日志".encode(), b"\x7f"])
def test_subject_of_any_bytes_does_not_stop_the_node(served: Served, ledger: Ledger, token: bytes) -> None:
    sent(served, b"PUB deedbook.%s.read.alice.%s _INBOX_alice.x 0\r\n\r\n" % (ledger.id.encode(), token))
    assert served.client().head().size == ledger.head()[0]


def sent(served: Served, message: bytes) -> None:
    """Send bytes as alice, and wait until the server and the node have read them."""
    before = served.nats.stats["in_msgs"]
    with flooding.connect(int(served.url.rpartition(":")[2]), bus_seed("alice")) as connection:
        connection.sendall(message + b"PING\r\n")
        assert flooding.heard(connection, b"PONG")
    served.run(until(lambda: served.nats.stats["in_msgs"] > before))


def test_agent_that_is_no_longer_served_is_dropped_with_all_that_waits(served: Served, ledger: Ledger) -> None:
    wait = msgspec.json.encode({"start": ledger.head()[0], "wait_s": 30})

    async def ask() -> tuple[Any, Any]:
        bob = await connect(served.url, "bob")
        both = [
            asyncio.create_task(client.request(read_subject(ledger.id, name, "range"), wait, timeout=20))
            for name, client in (("bob", bob), ("alice", served.alice))
        ]
        await until(lambda: served.service.reads_waiting == 2)
        await served.service.follow(["alice"])
        refused = await both[0]
        with pytest.raises(Exception, match="no responders"):
            await bob.request(read_subject(ledger.id, "bob", "head"), b"", timeout=20)
        assert served.service.reads_waiting == 1
        await served.service.follow(["alice", "bob"])
        await served.nats.flush()
        await served.nats.flush()
        again = await bob.request(read_subject(ledger.id, "bob", "head"), b"", timeout=20)
        await asyncio.to_thread(ledger.emit, "alice", "session/s1", SessionStarted())
        await both[1]
        await bob.close()
        return msgspec.json.decode(refused.data)["error"]["code"], msgspec.json.decode(again.data)["ledger"]

    assert served.run(ask()) == ("BUS_DENIED", ledger.id)


def test_agent_cannot_have_more_than_its_connections_and_subscriptions(served: Served, ledger: Ledger) -> None:
    port = int(served.url.rpartition(":")[2])
    mine: list[socket.socket] = []
    try:
        mine += [flooding.connect(port, bus_seed("bob")) for _ in range(limits.agent_connections_max)]
        with pytest.raises(ConnectionError, match="maximum account active connections"):
            flooding.connect(port, bus_seed("bob"))
        prefix = inbox_prefix("bob")
        mine[0].sendall(
            b"".join(f"SUB {prefix}.{n} {n}\r\n".encode() for n in range(limits.agent_subscriptions_max + 1))
        )
        assert flooding.heard(mine[0], b"maximum subscriptions exceeded")
        assert served.client("alice").head().size == ledger.head()[0]
    finally:
        for connection in mine:
            connection.close()


def test_agent_cannot_send_more_than_a_request_may_have(served: Served, ledger: Ledger) -> None:
    message = flooding.message_of(reads_of(ledger.id, "bob"), "bob", b"x" * (limits.agent_payload_max_bytes + 1))
    with flooding.connect(int(served.url.rpartition(":")[2]), bus_seed("bob")) as connection:
        connection.sendall(message[:1000])
        assert flooding.heard(connection, b"maximum payload violation")


def test_the_answer_of_those_shed_is_made_beforehand() -> None:
    assert msgspec.json.decode(intake._BUSY)["error"]["code"] == "BUSY"
    assert Path(flooding.__file__).is_file()
