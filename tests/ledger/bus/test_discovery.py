"""NATS tools and agents find the nodes of a ledger, and a flood of such requests gets few answers."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import SlowConsumerError
from nats.micro.service import Service, ServiceConfig, ServiceInfo, ServicePing, ServiceStats
from served import until
from structlog.testing import capture_logs

from deedbook.ledger import limits
from deedbook.ledger.bus import error_log
from deedbook.ledger.service import discovery
from deedbook.ledger.service.discovery import Discovery
from deedbook.ledger.system.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from conftest import Bus
    from nats.aio.client import Client

L = "0123456789abcdef0123456789abcdef"


@asynccontextmanager
async def discovered(bus: Bus, *names: str) -> AsyncIterator[tuple[list[Discovery], Client]]:
    """Run nodes that answer requests of discovery, and connect as the user alice."""
    nodes = [Discovery(L, lambda name=name: name, Metrics()) for name in names]
    async with bus.connect() as own, bus.connect() as other, bus.connect("alice") as alice:
        tasks = [asyncio.create_task(node.run(nats)) for node, nats in zip(nodes, (own, other), strict=False)]
        for nats in (own, other, alice):
            await bus.settle(nats)
        yield nodes, alice
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(client: Client, subject: str, count: int) -> list[dict[str, Any]]:
    """Send a request, and return the first ``count`` answers."""
    answers: list[dict[str, Any]] = []

    async def hear(message: Any) -> None:
        answers.append(json.loads(message.data))

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=hear)
    await client.publish(subject, b"", reply=inbox)
    await until(lambda: len(answers) >= count)
    return answers


def test_an_agent_finds_each_node_of_its_ledger_with_version_and_role(bus: Bus) -> None:
    async def find() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
        async with discovered(bus, "leader", "follower") as (nodes, alice):
            pings = await ask(alice, "$SRV.PING", 2)
            return pings, await ask(alice, f"$SRV.INFO.deedbook.{nodes[1].id}", 1), [node.id for node in nodes]

    pings, [info], ids = asyncio.run(find())
    assert sorted(ping["id"] for ping in pings) == sorted(ids)
    assert {ping["metadata"]["role"] for ping in pings} == {"leader", "follower"}
    assert {ping["metadata"]["ledger"] for ping in pings} == {L}
    assert (info["id"], info["metadata"]["role"]) == (ids[1], "follower")
    assert [(endpoint["name"], endpoint["subject"]) for endpoint in info["endpoints"]] == [
        ("submit", f"deedbook.{L}.submit.*"),
        ("read", f"deedbook.{L}.read.>"),
    ]


@pytest.mark.parametrize(("verb", "form"), [("PING", ServicePing), ("INFO", ServiceInfo), ("STATS", ServiceStats)])
def test_answers_have_the_form_that_the_library_of_nats_gives_its_own(bus: Bus, verb: str, form: Any) -> None:
    metrics = Metrics()
    metrics.count("submissions", by=3)
    metrics.count("refusals", "KEY_REVOKED")
    metrics.observe("submit_seconds", 0.25)
    ours = Discovery(L, lambda: "leader", metrics).document(f"$SRV.{verb}")
    assert ours is not None
    assert form.from_dict(ours).to_dict() == ours

    async def theirs() -> dict[str, Any]:
        async with bus.connect() as node, bus.connect("alice") as alice:
            async with Service(node, ServiceConfig(name="model", version="1.0.0")):
                await bus.settle(node)
                [answer] = await ask(alice, f"$SRV.{verb}.model", 1)
            return answer

    model = asyncio.run(theirs())
    assert {name: type(value) for name, value in ours.items() if name != "description"} == {
        name: type(value) for name, value in model.items() if name != "description"
    }
    if verb == "STATS":
        assert ours["endpoints"][0]["num_requests"] == 3
        assert ours["endpoints"][0]["num_errors"] == 1
        assert ours["endpoints"][0]["average_processing_time"] == 250_000_000 // 3


@pytest.mark.parametrize(
    "subject",
    ["$SRV.PING.other", "$SRV.PING.deedbook.other", "$SRV.INFO.deedbook.ID.more", "$SRV.STOP", "$SRV.x.deedbook"],
)
def test_what_is_asked_of_others_is_not_answered(subject: str) -> None:
    node = Discovery(L, lambda: "leader", Metrics())
    assert node.document(subject.replace("ID", node.id)) is None


def test_flood_of_questions_is_answered_so_often_and_then_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "discovery_answers_per_s_max", 5)
    monkeypatch.setattr(discovery, "window_s", 0.2)

    async def flood() -> int:
        async with discovered(bus, "leader") as (_, alice):
            heard: list[Any] = []

            async def hear(message: Any) -> None:
                if message.data:  # a message without data is the server's: nobody answers now
                    heard.append(message)

            inbox = alice.new_inbox()
            await alice.subscribe(inbox, cb=hear)
            for _ in range(200):
                await alice.publish("$SRV.PING", b"", reply=inbox)
            await bus.settle(alice)
            await until(lambda: len(heard) >= 5)
            answered = len(heard)
            while len(heard) == answered:  # the nodes stop answering for a moment, then answer again
                await alice.publish("$SRV.PING", b"", reply=inbox)
                await asyncio.sleep(0.02)
            return answered

    assert 5 <= asyncio.run(flood()) <= 10


def test_flood_of_questions_costs_no_error(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "discovery_answers_per_s_max", 5)
    monkeypatch.setattr(discovery, "window_s", 0.2)
    errors: list[Exception] = []

    async def flood() -> int:
        async with discovered(bus, "leader") as (_, alice), bus.connect(errors=errors) as own:
            node = Discovery(L, lambda: "leader", Metrics())
            answering = asyncio.create_task(node.run(own))
            for _ in range(20):
                for _ in range(2_000):
                    await alice.publish("$SRV.PING", b"x" * 10, reply="nobody")
                await bus.settle(alice)
            answering.cancel()
            return len(errors)

    assert asyncio.run(flood()) == 0


def test_errors_of_the_bus_are_one_line_an_interval_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_log, "interval_s", 0.05)

    async def report() -> None:
        callback = error_log.BusErrorLog()
        for number in range(1_000):
            await callback.report(SlowConsumerError("$SRV.PING", "reply", number, None))
        await callback.report(OSError("gone"))
        await asyncio.sleep(0.2)
        await callback.report(OSError("gone again"))

    with capture_logs() as lines:
        asyncio.run(report())
    assert [(line["event"], line.get("times")) for line in lines] == [
        ("bus", None),
        ("bus", None),
        ("bus: the same error again", 999),
        ("bus", None),
    ]
