"""A program's client in a simulated cluster, with the calls of the ``nats`` client that the ledger makes.

Between a program and the server of its own host, nothing is lost while both run; a server that dies loses its messages
in flight. Requests to other hosts may be delayed, lost or repeated; answers may be lost, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import nats.errors

from tests.simulation.cluster import Message, raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.js.api import RawStreamMsg, StreamConfig, StreamInfo

    from tests.simulation.cluster import Cluster
    from tests.simulation.world import Process, World

Handler = "Callable[[SimMessage], Awaitable[None]]"
_CONTROL: Final = (
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Stream",
    "Nats-Batch-Id",
    "Nats-Batch-Sequence",
    "Nats-Batch-Commit",
)


@dataclass
class SimMessage:
    """A message as a program receives it."""

    subject: str
    data: bytes
    headers: dict[str, str] | None = None
    reply: Callable[[bytes], None] | None = None

    async def respond(self, data: bytes) -> None:
        if self.reply is not None:
            self.reply(data)


@dataclass
class Network:
    """All connections in a world, and their subscriptions."""

    world: World
    cluster: Cluster
    delay_s: float = 0.002
    loss: float = 0.0
    twice: float = 0.0
    clients: list[SimClient] = field(default_factory=list)

    def wait_s(self) -> float:
        random = self.world.random
        return random.expovariate(1 / self.delay_s) if random.random() < 0.97 else random.uniform(0, 100 * self.delay_s)

    def send(self, receiver: Process, deliver: Callable[..., object], *arguments: Any) -> None:
        if not self.world.chance(self.loss):
            self.world.add(receiver, self.world.now + self.wait_s(), deliver, arguments)

    def listeners(self, subject: str, host: str) -> list[tuple[SimClient, Any]]:
        cluster = self.cluster
        return [
            (client, callback)
            for client in self.clients
            for pattern, callback in client.subscriptions
            if pattern == subject or (pattern.endswith(("*", ">")) and subject.startswith(pattern[:-1]))
            if client.process.is_alive and client.is_connected and cluster.hear(host, client.server)
        ]


class SimClient:
    """A connection of a process to the server on the host ``server``."""

    def __init__(self, network: Network, process: Process, server: str) -> None:
        self.network, self.process, self.server = network, process, server
        self.subscriptions: list[tuple[str, Any]] = []
        self.is_closed = False
        self._batches: dict[str, list[Message]] = {}
        self._inboxes = 0
        network.clients = [one for one in network.clients if one.process.is_alive]
        network.clients.append(self)

    @property
    def is_connected(self) -> bool:
        cluster = self.network.cluster
        return not self.is_closed and self.server not in cluster.down and cluster.hear(self.process.host, self.server)

    @property
    def stats(self) -> dict[str, int]:
        return {"reconnects": self.network.cluster.restarts[self.server]}

    async def close(self) -> None:
        self.is_closed = True
        self.network.clients.remove(self)

    async def subscribe(self, subject: str, *, queue: str = "", cb: Any, **_limits: Any) -> SimSubscription:
        self.subscriptions.append((subject, cb))
        return SimSubscription(self, (subject, cb))

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self._inboxes}"

    async def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message. Messages of an atomic batch wait for its last one. A replica answers to a given ``reply``."""
        headers = headers or {}
        if reply:
            name, asked = subject.removeprefix("$JS.API.DIRECT.GET."), msgspec.json.decode(data)
            self._read_directly(reply, lambda: self.network.cluster.near(name, asked["seq"], asked["batch"]))
            return
        if "Nats-Batch-Id" in headers:
            batch = self._batches.setdefault(headers["Nats-Batch-Id"], [])
            batch.append(Message(subject, data, headers))
            return
        self.send(subject, data)

    def send(self, subject: str, data: bytes) -> None:
        if self.is_connected and self.process.is_alive:
            for client, callback in self.network.listeners(subject, self.server):
                self.network.send(client.process, _call, client, callback, SimMessage(subject, data))

    def _read_directly(self, inbox: str, work: Callable[[], list[tuple[int, Message]]]) -> None:
        """Let the replica on this client's server answer, with all requested messages that it has, or not at all."""

        def answer(found: Any) -> None:
            if not self.is_connected:
                return
            messages = [
                SimMessage(inbox, one.data, one.headers | {"Nats-Sequence": str(seq), "Nats-Subject": one.subject})
                for seq, one in (found if isinstance(found, list) else [])
            ]
            end = SimMessage(inbox, b"", {"Status": "204" if messages else "404"})
            for message in (*messages, end):
                self.network.world.add(self.process, self.network.world.now, _tell, (self, message))

        if self.is_connected:
            self.network.world.later(
                self.network.wait_s(),
                self.network.cluster.ask,
                self.server,
                work,
                answer,
                True,
            )

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in nats-py
        headers: dict[str, str] | None = None,
    ) -> SimMessage:
        """Send a message and wait for its answer. Raises NoRespondersError, TimeoutError."""
        headers = headers or {}
        if ".event." not in subject:
            return await self._request_of(subject, data, headers, timeout)
        batch = [*self._batches.pop(headers.get("Nats-Batch-Id", ""), []), Message(subject, data, headers)]
        expected = int(batch[0].headers["Nats-Expected-Last-Sequence"])
        stored = [Message(one.subject, one.data, _kept(one.headers)) for one in batch]
        is_whole = len(batch) == 1 or not self.network.world.chance(self.network.loss)
        pattern = subject[: subject.index(".event.")] + ".event.>"
        cluster, stream = self.network.cluster, headers["Nats-Expected-Stream"]
        answer = await self.ask(lambda: cluster.publish(pattern, stream, stored, expected, is_whole=is_whole), timeout)
        return SimMessage("", msgspec.json.encode(answer))

    async def _request_of(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> SimMessage:
        network = self.network
        listeners = network.listeners(subject, self.server) if self.is_connected else []
        if self.is_connected and not listeners:
            raise nats.errors.NoRespondersError
        future = self.process.create_future()
        for client, callback in [network.world.random.choice(listeners)] if listeners else []:

            def reply(content: bytes, client: SimClient = client) -> None:
                if client.process.is_alive and client.is_connected and network.cluster.hear(client.server, self.server):
                    network.send(self.process, _settle, future, content)

            for _ in range(1 + network.world.chance(network.twice)):
                message = SimMessage(subject, data, headers, reply)
                network.send(client.process, _call, client, callback, message)
        return SimMessage("", await self._wait(future, timeout_s))

    def jetstream(self, timeout: float = 5.0) -> SimJetStream:
        return SimJetStream(self, timeout)

    async def ask(self, work: Callable[[], Any], timeout_s: float, *, direct: bool = False) -> Any:
        """Send a request to the cluster and return its result. Raises the error in the answer, or TimeoutError."""
        network, process = self.network, self.process
        if self.is_closed or not process.is_alive:
            raise nats.errors.ConnectionClosedError
        future = process.create_future()

        def answer(outcome: Any) -> None:
            if self.is_connected:
                network.send(process, _settle, future, outcome)

        cluster, life = network.cluster, network.cluster.restarts[self.server]

        def arrive() -> None:
            if cluster.restarts[self.server] == life:
                cluster.ask(self.server, work, answer, direct)

        for _ in range(1 + network.world.chance(network.twice)):
            if self.is_connected and not network.world.chance(network.loss):
                network.world.later(network.wait_s(), arrive)
        outcome = await self._wait(future, timeout_s)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _wait(self, future: asyncio.Future[Any], timeout_s: float) -> Any:
        late = self.process.call_later(timeout_s, _settle, future, nats.errors.TimeoutError())
        try:
            outcome = await future
        finally:
            late.cancel()
        if isinstance(outcome, nats.errors.TimeoutError):
            raise outcome
        return outcome


@dataclass
class SimSubscription:
    """A subscription of a program, which can end it."""

    client: SimClient
    entry: tuple[str, Any]

    async def unsubscribe(self) -> None:
        if self.entry in self.client.subscriptions:
            self.client.subscriptions.remove(self.entry)


@dataclass
class SimJetStream:
    """The calls of a client about streams."""

    client: SimClient
    timeout_s: float

    async def stream_info(self, name: str) -> StreamInfo:
        stale = self.client.network.cluster.stale_info(self.client.server, name)
        return stale or await self._ask(lambda cluster: cluster.stream(name).info())

    async def add_stream(self, config: StreamConfig) -> StreamInfo:
        return await self._ask(lambda cluster: cluster.add_stream(config))

    async def update_stream(self, config: StreamConfig) -> StreamInfo:
        return await self._ask(lambda cluster: cluster.update_stream(config))

    async def get_msg(self, name: str, seq: int) -> RawStreamMsg:
        """Return a stored message as the leader has it."""
        return raw(seq, await self._ask(lambda cluster: cluster.message(name, seq)))

    async def find_stream_name_by_subject(self, subject: str) -> str:
        """Return the name of the stream that stores a subject. Raises NotFoundError."""
        name: str = await self._ask(lambda cluster: cluster.stream_of(subject))
        return name

    async def _ask(self, work: Callable[[Cluster], Any]) -> Any:
        cluster = self.client.network.cluster
        return await self.client.ask(lambda: work(cluster), self.timeout_s)


def _kept(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in _CONTROL}


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def _tell(client: SimClient, message: SimMessage) -> None:
    for pattern, callback in list(client.subscriptions):
        if pattern == message.subject:
            _call(client, callback, message)


def _call(client: SimClient, callback: Any, message: SimMessage) -> None:
    """Deliver a message to a program. Its callback must store or answer it without waiting, so it needs no task."""
    if client.is_closed or (work := callback(message)) is None:
        return
    violate = client.network.world.violate
    try:
        work.send(None)
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the program made a mistake
        violate(f"{client.process.host} died of a message: {error!r}", error)
    else:
        work.close()
        violate(f"{callback.__qualname__} waits, and so holds up the messages after its own")
