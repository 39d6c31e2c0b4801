"""Agents try forbidden operations on a real server, which refuses them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.stream import Generation, open_stream, stream_info
from deedbook.ledger.service.server_config import BusUsers, render_config

if TYPE_CHECKING:
    from conftest import Bus
    from nats.aio.msg import Msg

L = "0123456789abcdef0123456789abcdef"
STREAM = subjects.log_stream_name(L, 1)
EVENT = subjects.event_subject(L, "handoff.completed", "evil")

# Each is a message (subject, payload, reply) by which an agent might get something stored under EVENT, a subject
# of the log. ACK stands for the subject that acknowledges a message which a consumer of the log stream has delivered.
ACK = "acknowledgement"
INJECTIONS = {
    "publishes into the log": (EVENT, b"evil", ""),
    "has the answer to a submission stored": (subjects.submit_subject(L, "alice"), b"evil", EVENT),
    "has the answer to a read stored": (subjects.read_subject(L, "alice", "event"), b"evil", EVENT),
    "has the answer to a question for services stored": ("$SRV.PING", b"", EVENT),
    "has a pulled message stored again": (f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.durable", b"1", EVENT),
    "has the answer to an acknowledgement stored": (ACK, b"", EVENT),
    "has a fetched message stored": (f"$JS.API.STREAM.MSG.GET.{STREAM}", b'{"seq":1}', EVENT),
    "has an answer about the stream stored": (f"$JS.API.STREAM.INFO.{STREAM}", b"", EVENT),
    "republishes a stream of its own into the log": (
        "$JS.API.STREAM.CREATE.EVIL",
        b'{"name":"EVIL","subjects":["evil"],"republish":{"src":"evil","dest":"%s"}}' % EVENT.encode(),
        "_INBOX_alice.x",
    ),
}


def render_one_account(users: BusUsers, text: str) -> str:
    """Return a configuration in which everybody shares the node's account and may do anything."""
    everybody = ", ".join(f"{{nkey: {nkey}}}" for nkey in (*users.nodes, *users.agents.values()))
    return text[: text.index("accounts {")] + f"accounts {{ LEDGER {{ jetstream: enabled, users: [{everybody}] }} }}"


async def answer(message: Msg) -> None:
    """Answer every request, as a node does."""
    await message.respond(b"answer to " + message.data)


async def count_after(bus: Bus, form: str) -> int:
    """Let alice try an injection; return how many messages the log stream then has: one, unless she succeeds."""
    subject, payload, reply = INJECTIONS[form]
    async with bus.connect() as node, bus.connect("alice") as alice:
        made = await open_stream(node, Generation(L))
        await node.jetstream().publish(subjects.event_subject(L, "session.started", "s"), b"an event")
        for name in ("durable", "other"):
            await node.jetstream().add_consumer(STREAM, durable_name=name, ack_policy="explicit")
        pulled = await node.jetstream().pull_subscribe_bind(durable="other", stream=STREAM)
        [delivered] = await pulled.fetch(1)
        for pattern in (subjects.submit_pattern(L), subjects.read_pattern(L), subjects.DISCOVERY):
            await node.subscribe(pattern, cb=answer)
        await bus.settle(node)
        await alice.publish(delivered.reply if subject == ACK else subject, payload, reply=reply)
        own = await alice.request(subjects.read_subject(L, "alice", "event"), b"", timeout=60)
        assert own.subject.startswith("_INBOX_alice.")
        count = 1
        for _ in range(10):
            await alice.publish("evil", b"evil")  # if she has made her own stream, it republishes this
            await asyncio.sleep(0.02)
            count = (await stream_info(node, made)).state.messages
            if count > 1:
                break
        return count


@pytest.mark.parametrize("form", INJECTIONS)
def test_no_agent_gets_a_message_into_the_log_stream(bus: Bus, form: str) -> None:
    assert asyncio.run(count_after(bus, form)) == 1


@pytest.mark.parametrize("form", INJECTIONS)
def test_in_one_account_every_form_would_arrive(bus: Bus, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.server.stop()
    monkeypatch.setattr(
        "deedbook.ledger.service.server.render_config",
        lambda users, **settings: render_one_account(users, render_config(users=users, **settings)),
    )
    bus.server.start(bus.users)
    assert asyncio.run(count_after(bus, form)) > 1


async def heard_by_node(bus: Bus, subject: str, reply: str = "") -> tuple[list[str], list[Exception]]:
    """Return the submit subjects on which a node received alice's message, and the errors that she received."""
    heard: list[str] = []
    errors: list[Exception] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    async with bus.connect() as node, bus.connect("alice", errors=errors) as alice:
        await node.subscribe(subjects.submit_pattern(L), cb=hear)
        await node.subscribe(subjects.read_pattern(L), cb=answer)
        await bus.settle(node)
        await alice.publish(subject, b"x", reply=reply)
        await bus.settle(alice)
        await bus.settle(node)
        await asyncio.sleep(0.05)
    return heard, errors


def test_an_agent_submits_only_as_itself(bus: Bus) -> None:
    own = subjects.submit_subject(L, "alice")
    assert asyncio.run(heard_by_node(bus, own)) == ([own], [])
    heard, errors = asyncio.run(heard_by_node(bus, subjects.submit_subject(L, "bob")))
    assert heard == []
    assert "permissions violation for publish" in str(errors[0]).lower()


def test_an_answer_cannot_be_turned_into_a_submission_of_another(bus: Bus) -> None:
    read, other = subjects.read_subject(L, "alice", "event"), subjects.submit_subject(L, "bob")
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
            await bus.settle(node)
            await alice.subscribe(subject, cb=hear)
            await bus.settle(alice)
            await bob.request(subjects.read_subject(L, "bob", "event"), b"secret", timeout=60)
            await asyncio.sleep(0.05)
        assert heard == []
        assert "permissions violation for subscription" in str(errors[0]).lower()

    asyncio.run(listen())


def test_agents_hear_stored_events_and_checkpoints(bus: Bus) -> None:
    async def listen() -> None:
        async with bus.connect() as node, bus.connect("alice") as alice:
            await open_stream(node, Generation(L))
            live = await alice.subscribe(subjects.live_subject(L, "handoff.completed"))
            checkpoints = await alice.subscribe(subjects.checkpoint_subject(L))
            await bus.settle(alice)
            await node.jetstream().publish(EVENT, b"stored")
            await node.publish(subjects.checkpoint_subject(L), b"note")
            assert (await live.next_msg(timeout=60)).data == b"stored"
            assert (await checkpoints.next_msg(timeout=60)).data == b"note"

    asyncio.run(listen())


def test_a_node_reads_on_where_the_window_of_flow_control_ends(bus: Bus) -> None:
    async def read() -> None:
        async with bus.connect() as node:
            await open_stream(node, Generation(L))
            for _ in range(60):
                await node.jetstream().publish(EVENT, bytes(64 * 1024))
            pattern = subjects.event_pattern(L)
            reader = await node.jetstream().subscribe(pattern, stream=STREAM, ordered_consumer=True)
            for seq in range(60):
                assert (await reader.next_msg(timeout=60)).metadata.sequence.stream == seq + 1
            await reader.unsubscribe()

    asyncio.run(read())


@pytest.mark.parametrize("call", ["purge_stream", "delete_msg"])
def test_not_even_a_node_may_delete_messages(bus: Bus, call: str) -> None:
    async def delete() -> None:
        errors: list[Exception] = []
        async with bus.connect(errors=errors) as node:
            made = await open_stream(node, Generation(L))
            await node.jetstream().publish(EVENT, b"stored")
            arguments = [STREAM, 1] if call == "delete_msg" else [STREAM]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(getattr(node.jetstream(), call)(*arguments), timeout=0.2)
            await bus.settle(node)
            assert (await stream_info(node, made)).state.messages == 1
        assert "permissions violation" in str(errors[0]).lower()

    asyncio.run(delete())


@pytest.mark.parametrize(
    "reply", ["_INBOX_bob.known", subjects.live_subject(L, "handoff.completed", "x"), subjects.checkpoint_subject(L)]
)
def test_an_answer_that_is_misdirected_reaches_nobody(bus: Bus, reply: str) -> None:
    async def misdirect() -> list[Any]:
        heard: list[Any] = []

        async def hear(message: Msg) -> None:
            heard.append(message.data)

        async with bus.connect() as node, bus.connect("bob") as bob, bus.connect("alice") as alice:
            await node.subscribe(subjects.read_pattern(L), cb=answer)
            await bus.settle(node)
            for subject in ("_INBOX_bob.>", subjects.live_subject(L), subjects.checkpoint_subject(L)):
                await bob.subscribe(subject, cb=hear)
            await bus.settle(bob)
            await alice.publish(subjects.read_subject(L, "alice", "event"), b"evil", reply=reply)
            own = await alice.request(subjects.read_subject(L, "alice", "event"), b"", timeout=60)
            await bob.request(subjects.read_subject(L, "bob", "event"), b"", timeout=60)
            assert own.data
        return heard

    assert asyncio.run(misdirect()) == [b"answer to "]


@pytest.mark.parametrize("agent", ["bob", "*"])
def test_an_agent_reads_only_as_itself(bus: Bus, agent: str) -> None:
    subject = f"deedbook.{L}.read.{agent}.head"

    async def ask() -> None:
        errors: list[Exception] = []
        async with bus.connect() as node, bus.connect("alice", errors=errors) as alice:
            await node.subscribe(subjects.read_pattern(L), cb=answer)
            await bus.settle(node)
            await alice.publish(subject, b"x")
            await bus.settle(alice)
        assert "permissions violation for publish" in str(errors[0]).lower()

    asyncio.run(ask())
