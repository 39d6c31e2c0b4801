"""What the two accounts keep agents from: a real server, agents that try."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledger.bus import subjects
from ledger.bus.stream import Incarnation, open_stream, stream_info

if TYPE_CHECKING:
    from conftest import Bus
    from nats.aio.msg import Msg

L = "0123456789abcdef0123456789abcdef"
STREAM = subjects.log_stream_name(L, 1)
EVENT = subjects.event_subject(L, "handoff.completed", "evil")

# Each is (subject, payload, reply): ways to have a message stored under EVENT, once as an effect of
# something that is permitted to somebody. All were seen to work with one account or with the API exported.
INJECTIONS = {
    "publishes into the log": (EVENT, b"evil", ""),
    "has the answer to a submission stored": (subjects.submit_subject(L, "alice"), b"evil", EVENT),
    "has the answer to a read stored": (subjects.read_subject(L, "event"), b"evil", EVENT),
    "has a pulled message stored again": (f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.durable", b"1", EVENT),
    "has the answer to an acknowledgement stored": (
        f"$JS.ACK.{STREAM}.durable.1.1.1.1700000000000000000.0",
        b"",
        EVENT,
    ),
    "has a fetched message stored again": (f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq":1}', EVENT),
    "makes a consumer that delivers into the log": (
        f"$JS.API.CONSUMER.CREATE.{STREAM}",
        b'{"stream_name":"%s","config":{"deliver_subject":"%s","ack_policy":"none"}}'
        % (STREAM.encode(), EVENT.encode()),
        "_INBOX_alice.x",
    ),
    "republishes a stream of its own into the log": (
        "$JS.API.STREAM.CREATE.EVIL",
        b'{"name":"EVIL","subjects":["evil"],"republish":{"src":"evil","dest":"%s"}}' % EVENT.encode(),
        "_INBOX_alice.x",
    ),
}


async def answer(message: Msg) -> None:
    """Serve as a node does: say something to whoever asks."""
    await message.respond(b"answer to " + message.data)


@pytest.mark.parametrize("form", INJECTIONS)
def test_no_agent_gets_a_message_into_the_log_stream(bus: Bus, form: str) -> None:
    async def inject() -> None:
        subject, payload, reply = INJECTIONS[form]
        async with bus.connect() as node, bus.connect("alice") as alice:
            made = await open_stream(node, Incarnation(L))
            await node.jetstream().publish(subjects.event_subject(L, "session.started", "s"), b"an event")
            await node.jetstream().add_consumer(STREAM, durable_name="durable", ack_policy="explicit")
            for pattern in (subjects.submit_pattern(L), subjects.read_pattern(L)):
                await node.subscribe(pattern, cb=answer)
            await node.flush()
            await alice.publish(subject, payload, reply=reply)
            await alice.flush()
            # Once the node has answered this, it has answered all before.
            own = await alice.request(subjects.read_subject(L, "event"), b"", timeout=2)
            assert own.subject.startswith("_INBOX_alice.")
            await node.flush()
            await asyncio.sleep(0.05)
            assert (await stream_info(node, made)).state.messages == 1
            # The stream does take what arrives under this subject: the count above could have been 2.
            await node.publish(EVENT, b"from a node", reply=f"{subjects.INBOX_OF_NODES}.x")
            await node.flush()
            await asyncio.sleep(0.05)
            assert (await stream_info(node, made)).state.messages == 2

    asyncio.run(inject())


async def heard_by_node(bus: Bus, subject: str, reply: str = "") -> tuple[list[str], list[Exception]]:
    """Return the submit subjects on which a node heard alice's message, and what the server told her."""
    heard: list[str] = []
    errors: list[Exception] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    async with bus.connect() as node, bus.connect("alice", errors=errors) as alice:
        await node.subscribe(subjects.submit_pattern(L), cb=hear)
        await node.subscribe(subjects.read_pattern(L), cb=answer)
        await node.flush()
        await alice.publish(subject, b"x", reply=reply)
        await alice.flush()
        await asyncio.sleep(0.1)
    return heard, errors


def test_an_agent_submits_only_as_itself(bus: Bus) -> None:
    own = subjects.submit_subject(L, "alice")
    assert asyncio.run(heard_by_node(bus, own)) == ([own], [])
    heard, errors = asyncio.run(heard_by_node(bus, subjects.submit_subject(L, "bob")))
    assert heard == []
    assert "permissions violation for publish" in str(errors[0]).lower()


def test_an_answer_cannot_be_turned_into_a_submission_of_another(bus: Bus) -> None:
    read, other = subjects.read_subject(L, "event"), subjects.submit_subject(L, "bob")
    assert asyncio.run(heard_by_node(bus, read, reply=other))[0] == []


@pytest.mark.parametrize(
    "subject",
    ["_INBOX_bob.>", "_INBOX.>", ">", "_R_.>", subjects.event_pattern(L), subjects.submit_pattern(L), "$JS.>", "*.>"],
)
def test_an_agent_cannot_listen_to_what_is_not_its_own(bus: Bus, subject: str) -> None:
    async def listen() -> None:
        heard: list[Any] = []
        errors: list[Exception] = []

        async def hear(message: Msg) -> None:
            heard.append(message)

        async with bus.connect() as node, bus.connect("bob") as bob, bus.connect("alice", errors=errors) as alice:
            await node.subscribe(subjects.read_pattern(L), cb=answer)
            await node.flush()
            await alice.subscribe(subject, cb=hear)
            await alice.flush()
            await bob.request(subjects.read_subject(L, "event"), b"secret", timeout=2)
            await asyncio.sleep(0.05)
        assert heard == []
        assert "permissions violation for subscription" in str(errors[0]).lower()

    asyncio.run(listen())


def test_agents_hear_stored_events_and_checkpoints(bus: Bus) -> None:
    async def listen() -> None:
        async with bus.connect() as node, bus.connect("alice") as alice:
            await open_stream(node, Incarnation(L))
            live = await alice.subscribe(subjects.live_subject(L, "handoff.completed"))
            checkpoints = await alice.subscribe(subjects.checkpoint_subject(L))
            await alice.flush()
            await node.jetstream().publish(EVENT, b"stored")
            await node.publish(subjects.checkpoint_subject(L), b"note")
            assert (await live.next_msg(timeout=2)).data == b"stored"
            assert (await checkpoints.next_msg(timeout=2)).data == b"note"

    asyncio.run(listen())


@pytest.mark.parametrize("call", ["delete_stream", "purge_stream", "delete_msg"])
def test_not_even_a_node_may_delete(bus: Bus, call: str) -> None:
    async def delete() -> None:
        errors: list[Exception] = []
        async with bus.connect(errors=errors) as node:
            made = await open_stream(node, Incarnation(L))
            await node.jetstream().publish(EVENT, b"stored")
            arguments = [STREAM, 1] if call == "delete_msg" else [STREAM]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(getattr(node.jetstream(), call)(*arguments), timeout=0.2)
            assert (await stream_info(node, made)).state.messages == 1
        assert "permissions violation" in str(errors[0]).lower()

    asyncio.run(delete())
