"""One attempt and its consequences: receivers that answer well, badly, late, not at all, or maliciously."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest
from building import START_MS
from webhook_receiver import KEY, SECRET, VARIABLE, Receiver, Reply, drip, flood

from deedbook.consumers.handoffs.notifier.delivery import DeliveryOutcome, attempt, next_try_ms, retry_wait_first_s
from deedbook.consumers.handoffs.notifier.episodes import trial
from deedbook.consumers.handoffs.notifier.settings import Channel, ChannelSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Channels = Callable[..., tuple[Channel, ...]]
    Hook = Callable[..., Channel]

TOLD = trial("a1b2", START_MS)


# Webhooks


def test_delivery_is_signed_and_complete(receiver: Receiver, hook: Hook) -> None:
    outcome = attempt(hook(), TOLD, START_MS + 999)
    assert outcome == DeliveryOutcome("delivered", "the receiver answered 204")
    (got,) = receiver.received
    assert got.is_signed_with(KEY)
    assert not got.is_signed_with(bytes(32))
    assert (got.id, got.headers["webhook-timestamp"]) == ("a1b2", str(START_MS // 1000))
    assert got.headers["content-type"] == "application/json"
    assert (got.body, got.path) == (TOLD.document, "/hook?token=path-is-secret")


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, "delivered"),
        (202, "delivered"),
        (299, "delivered"),
        (304, "refused"),
        (400, "refused"),
        (401, "refused"),
        (404, "refused"),
        (408, "passing"),
        (410, "refused"),
        (429, "passing"),
        (500, "passing"),
        (503, "passing"),
        (599, "passing"),
    ],
)
def test_status_decides(receiver: Receiver, hook: Hook, status: int, result: str) -> None:
    receiver.script = [Reply(status)]
    outcome = attempt(hook(), TOLD, START_MS)
    assert outcome.result == result
    assert str(status) in outcome.text


def test_redirect_is_not_followed(receiver: Receiver, hook: Hook) -> None:
    thief = Receiver()
    try:
        receiver.script = [Reply(307, {"Location": thief.url})]
        outcome = attempt(hook(), TOLD, START_MS)
    finally:
        thief.close()
    assert (outcome.result, thief.received) == ("refused", [])


@pytest.mark.parametrize("reply", [Reply(waits=True), drip()], ids=["silent", "byte by byte"])
def test_slow_receiver_is_tried_again(receiver: Receiver, hook: Hook, reply: Reply) -> None:
    receiver.script = [reply]
    outcome = attempt(hook(timeout_s=0.3), TOLD, START_MS)
    assert outcome == DeliveryOutcome("passing", "there was no answer within 0.3 s")


def test_receiver_that_is_not_there_is_tried_again(channels_of: Channels) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no other program can answer there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/private"
        (channel,) = channels_of({"webhook": url, "secret_variable": VARIABLE})
        outcome = attempt(channel, TOLD, START_MS)
    assert outcome == DeliveryOutcome("passing", "the connection failed (ConnectError)")


def test_answer_of_50_megabytes_is_delivered_and_not_read(receiver: Receiver, hook: Hook) -> None:
    receiver.script = [flood(50)]
    assert attempt(hook(), TOLD, START_MS).result == "delivered"
    receiver.close()  # its thread has ended, so the count is final
    assert receiver.sent_bytes < 50 * 1024**2


def test_compressed_answer_is_delivered_and_not_unfolded(receiver: Receiver, hook: Hook) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    receiver.script = [Reply(200, {"Content-Encoding": "gzip"}, parts=lambda _: iter([bomb]))]
    assert attempt(hook(), TOLD, START_MS).result == "delivered"


def test_neither_secret_nor_address_stands_in_an_outcome(receiver: Receiver, hook: Hook) -> None:
    for reply in (Reply(500), Reply(302, {"Location": SECRET}), Reply(410), Reply(waits=True)):
        receiver.script = [reply]
        channel = hook(timeout_s=0.3)
        shown = f"{attempt(channel, TOLD, START_MS)} {channel.target} {channel.secret!r}"
        assert SECRET not in shown
        assert KEY.decode() not in shown
        assert "path-is-secret" not in shown


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [("17", 17.0), ("soon", None), ("-1", None), (format_datetime(datetime.now(UTC) + timedelta(days=9)), 86_400)],
    ids=["seconds", "no time", "negative", "a date"],
)
def test_receiver_may_say_when_to_try_again(receiver: Receiver, hook: Hook, value: str, wait_s: float | None) -> None:
    receiver.script = [Reply(503, {"Retry-After": value})]
    said = attempt(hook(), TOLD, START_MS).wait_s
    assert said == wait_s or (said is not None and wait_s is not None and said > wait_s > 100)


# Consequences


SETTINGS = ChannelSettings(agents=["*"], command="true", attempts_max=8, retry_wait_max_s=400)


def waits(*outcomes: DeliveryOutcome) -> list[float | None]:
    made = [next_try_ms(outcome, number, SETTINGS, 1_000) for number, outcome in enumerate(outcomes, 1)]
    return [None if one is None else (one - 1_000) / 1000 for one in made]


def test_waits_grow_up_to_the_maximum_and_attempts_end() -> None:
    again = DeliveryOutcome("passing", "500")
    assert waits(*[again] * 8) == [5, 20, 80, 320, 400, 400, 400, None]


@pytest.mark.parametrize(
    ("asked_s", "wait_s"), [(0.0, retry_wait_first_s), (2.0, retry_wait_first_s), (60.0, 60.0), (1e9, 400.0)]
)
def test_asked_wait_makes_ours_longer_up_to_the_maximum(asked_s: float, wait_s: float) -> None:
    assert waits(DeliveryOutcome("passing", "429", asked_s)) == [wait_s]


def test_what_will_not_pass_is_not_tried_again() -> None:
    assert waits(DeliveryOutcome("refused", "404")) == [None]


# Commands


def test_command_gets_the_notification_beside_its_command_line(channels_of: Channels, tmp_path: Path) -> None:
    command = (
        f'cat > {tmp_path}/stdin; printf "%s|%s|%s" "$DEEDBOOK_NOTIFICATION_ID" "$DEEDBOOK_TITLE" "$DEEDBOOK_TEXT" '
    )
    (channel,) = channels_of({"command": f"{command} > {tmp_path}/said"})
    assert attempt(channel, TOLD, START_MS) == DeliveryOutcome("delivered", "the command ended with exit code 0")
    assert (tmp_path / "said").read_text("utf-8") == f"a1b2|{TOLD.title}|{TOLD.text}"
    assert json.loads((tmp_path / "stdin").read_text("utf-8"))["type"] == "deedbook.test"


def test_command_that_fails_is_tried_again(channels_of: Channels) -> None:
    (channel,) = channels_of({"command": "exit 3"})
    assert attempt(channel, TOLD, START_MS) == DeliveryOutcome("passing", "the command ended with exit code 3")


def test_command_that_reads_nothing_is_delivered(channels_of: Channels) -> None:
    (channel,) = channels_of({"command": "exec <&-; true"})
    assert attempt(channel, TOLD, START_MS).result == "delivered"


def test_command_that_takes_too_long_ends_with_all_it_started(channels_of: Channels, tmp_path: Path) -> None:
    # Every live process holds the write end of this pipe; the read ends when the last of them is gone.
    pipe = tmp_path / "pipe"
    (channel,) = channels_of({"command": f"mkfifo {pipe}; (sleep 60 > {pipe}) & cat {pipe}", "timeout_s": 1.0})
    outcome = attempt(channel, TOLD, START_MS)
    assert outcome == DeliveryOutcome("passing", "the command took longer than 1 s")
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert _read_to_the_end(end) == b""
    finally:
        os.close(end)


def _read_to_the_end(end: int) -> bytes | None:
    for _ in range(500):
        with contextlib.suppress(BlockingIOError):  # some process still holds the other end
            return os.read(end, 1)
        time.sleep(0.01)
    return None
