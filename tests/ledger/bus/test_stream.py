"""The log stream is created once; later, every change of its configuration or state is detected."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.api import RePublish, StreamConfig, StreamInfo, StreamState

from deedbook.ledger.bus.stream import (
    Generation,
    config_faults,
    created_of,
    log_stream_config,
    next_generation,
    open_stream,
    scrub_quick,
    stream_info,
)
from deedbook.ledger.bus.subjects import event_subject
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from conftest import Bus

L = "0123456789abcdef0123456789abcdef"
FIRST = Generation(L)
SUBJECT = event_subject(L, "session.started", "s")

ALTERED: dict[str, dict[str, Any]] = {
    "forgets by age": {"max_age": 3600.0},
    "forgets by count": {"max_msgs": 1_000_000},
    "is bounded in bytes": {"max_bytes": 1 << 30},
    "forgets by subject": {"max_msgs_per_subject": 1},
    "refuses large events": {"max_msg_size": 100},
    "takes fewer subjects": {"subjects": [SUBJECT]},
    "takes more subjects": {"subjects": [f"deedbook.{L}.event.>", "other"]},
    "discards old events": {"discard": "old"},
    "is not republished": {"republish": None},
    "is republished elsewhere": {"republish": RePublish(src=f"deedbook.{L}.event.>", dest="elsewhere.>")},
    "is republished in part": {"republish": RePublish(src=f"deedbook.{L}.event.a.>", dest=f"deedbook.{L}.live.a.>")},
    "takes no batches": {"allow_atomic": False},
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_stream_is_refused(bus: Bus, how: str) -> None:
    async def alter() -> None:
        async with bus.connect() as node:
            made = await open_stream(node, FIRST)
            await node.jetstream().update_stream(log_stream_config(made).evolve(**ALTERED[how]))
            with pytest.raises(Unavailable, match="is not what was published") as refused:
                await open_stream(node, made)
            assert refused.value.code == "BUS_DEGRADED"
            assert len(refused.value.details["faults"]) >= 1

    asyncio.run(alter())


@pytest.mark.parametrize(
    "change",
    [
        {"deny_delete": False},
        {"deny_purge": False},
        {"retention": "workqueue"},
        {"storage": "memory"},
        {"sealed": True},
        {"allow_msg_ttl": True},
        {"allow_rollup_hdrs": True},
        {"no_ack": True},
    ],
)
def test_settings_a_server_would_not_alter_are_compared_too(change: dict[str, Any]) -> None:
    assert config_faults(log_stream_config(FIRST), FIRST) == []
    assert len(config_faults(log_stream_config(FIRST).evolve(**change), FIRST)) == 1


def info(config: StreamConfig | None = None, **state: Any) -> StreamInfo:
    """Return the information about an intact stream of ten messages, with ``state`` as changes."""
    sound = {"messages": 10, "bytes": 1000, "first_seq": 1, "last_seq": 10, "consumer_count": 0}
    return StreamInfo(config=config or log_stream_config(FIRST), state=StreamState(**(sound | state)))


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ({"first_seq": 2, "messages": 9}, "begins at sequence 2"),
        ({"last_seq": 9, "messages": 9}, "ends at sequence 9, but 10"),
        ({"num_deleted": 3}, "3 messages were deleted"),
        ({"messages": 7}, "holds 7 messages in 1..10"),
        ({"messages": 0, "first_seq": 11}, "holds 0 messages in 1..10"),
        ({"messages": 0, "first_seq": 0, "last_seq": 0}, "ends at sequence 0, but 10"),
    ],
)
def test_damage_shows_in_the_counts(state: dict[str, Any], fault: str) -> None:
    assert scrub_quick(info(), FIRST, 10) == []
    assert fault in "; ".join(scrub_quick(info(**state), FIRST, 10))


def test_a_stream_that_was_made_again_is_not_the_same() -> None:
    again = replace(FIRST, created="2026-01-01T00:00:00+00:00")
    assert "was made at None" in "; ".join(scrub_quick(info(), again))


@pytest.mark.parametrize("first_seq", [1, 42])
def test_an_empty_stream_is_sound_before_and_after_a_restart(bus: Bus, first_seq: int) -> None:
    async def reopen(generation: Generation) -> Generation:
        async with bus.connect() as node:
            return await open_stream(node, generation)

    made = asyncio.run(reopen(replace(FIRST, first_seq=first_seq)))
    assert made.created
    bus.server.stop()
    bus.server.start(bus.users)
    assert asyncio.run(reopen(made)) == made


def test_a_stream_made_before_a_crash_is_taken_and_not_made_again(bus: Bus) -> None:
    async def open_twice() -> None:
        async with bus.connect() as node:
            made = await open_stream(node, FIRST)
            await node.jetstream().publish(SUBJECT, b"an event")
            assert await open_stream(node, FIRST) == made
            assert (await stream_info(node, made)).state.messages == 1

    asyncio.run(open_twice())


def test_a_recorded_stream_that_is_gone_is_never_made_again(bus: Bus) -> None:
    async def open_recorded(generation: Generation) -> Generation:
        async with bus.connect() as node:
            return await open_stream(node, generation)

    made = asyncio.run(open_recorded(FIRST))
    bus.server.stop()
    shutil.rmtree(bus.server.folder / "jetstream")
    bus.server.start(bus.users)
    with pytest.raises(Unavailable, match="not found") as refused:
        asyncio.run(open_recorded(made))
    assert refused.value.code == "BUS_DEGRADED"


def test_the_next_generation_takes_the_subjects_and_the_old_one_keeps_its_messages(bus: Bus) -> None:
    async def retire() -> None:
        async with bus.connect() as node:
            made = await open_stream(node, FIRST)
            await node.jetstream().publish(SUBJECT, b"an event")
            following = await next_generation(node, made)
            assert (following.number, following.first_seq) == (2, 1)
            acknowledged = await node.jetstream().publish(SUBJECT, b"an event")
            assert (acknowledged.stream, acknowledged.seq) == (following.name, 1)
            old = await stream_info(node, made)
            assert (old.state.messages, old.config.subjects) == (1, [f"deedbook.{L}.retired.1"])
            # A repetition, as after a crash that came before the new generation was recorded, changes nothing.
            assert await next_generation(node, made) == following
            third = await next_generation(node, following, first_index=7)
            assert (await node.jetstream().publish(SUBJECT, b"index 7")).seq == 8
            assert created_of(await stream_info(node, third)) == third.created

    asyncio.run(retire())


def test_the_next_generation_of_a_stream_that_is_gone_is_made(bus: Bus) -> None:
    async def rebuild() -> None:
        async with bus.connect() as node:
            gone = replace(FIRST, created="2026-01-01T00:00:00+00:00")
            assert (await next_generation(node, gone)).number == 2

    asyncio.run(rebuild())


def test_a_server_that_does_not_answer_is_no_damage(bus: Bus) -> None:
    async def ask_nobody() -> None:
        async with bus.connect() as node:
            # Close before the server stops: nats-py may raise CancelledError if it is closed while it reconnects.
            await node.close()
            await asyncio.to_thread(bus.server.stop)
            with pytest.raises(Unavailable) as refused:
                await open_stream(node, FIRST)
            assert refused.value.code == "BUS_UNAVAILABLE"

    asyncio.run(ask_nobody())
