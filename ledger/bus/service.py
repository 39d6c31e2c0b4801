"""What a node answers on the bus: submissions, and reads of the log.

- ``submit.<agent>``: the payload is a submission (msgpack or DSSE JSON); the answer is JSON, ``{"accepted": […]}`` or
  ``{"error": {…}}``. With the header ``Baton-Blob`` the payload is one chunk of a blob.
- ``read.<verb>``: the payload is a JSON object of arguments, the answer is JSON. Bytes are base64.

A request never blocks the others: commits run in the writer thread, waiting reads wait for news of the log, and what
may take long (view queries, blobs, proofs, large submissions) runs in a few threads. Every wait, size and number has
a limit, and beyond it the answer is ``BUSY`` at once: waiting reads have a limit of their own, so that no number of
them keeps anybody from submitting.

Stopping: no new requests, waiting reads end, everything else is finished and answered. What happens if we crash here:
nobody was answered who was not served, and a submission that is sent again is told from the first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ledger import limits
from ledger.admission.committer import Committer
from ledger.bus import subjects
from ledger.bus.uploads import BLOB_HEADER, CHUNK_HEADER, Uploads
from ledger.client import Ask
from ledger.codec import decode_strict
from ledger.envelope import decode_submission
from ledger.errors import BatonError, Refused, Unavailable
from ledger.events.fields import Ref
from ledger.local import LocalClient
from ledger.log.log import Log

log = structlog.get_logger("baton.service")

requests_running_max: Final = 1024
requests_running_max_bytes: Final = 64 * 1024**2
reads_waiting_max: Final = 1024
arguments_size_max_bytes: Final = 64 * 1024
answer_size_max_bytes: Final = 1000 * 1024
"""The server's ``max_payload`` less what a message has around it."""

inline_size_max_bytes: Final = 64 * 1024
"""A larger submission is parsed in a thread."""

threads_max: Final = 4
drain_wait_max_s: Final = 2.0
finish_wait_max_s: Final = 30.0
poll_interval_s: Final = 0.02
QUEUE: Final = "baton-nodes"


class News:
    """Wakes coroutines of one event loop when the log has grown; ``size`` is the log's at the last look."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._grown = asyncio.Event()
        self._seen = -1
        self.size = 0

    def look(self) -> None:
        """Look at once, as after a commit of this process: LMDB's transaction number first, a page only if it moved."""
        transaction = self._log.tables.last_transaction()
        if transaction == self._seen:
            return
        with self._log.snapshot() as snapshot:
            size = snapshot.size
        self._seen = transaction  # Only now: had the snapshot failed, the next look would have to try again.
        if size != self.size:
            self.size = size
            # Who waits holds the old event; who comes later waits on the new one.
            self._grown.set()
            self._grown = asyncio.Event()

    async def run(self) -> None:
        """Look for other processes' commits until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(poll_interval_s)

    async def wait_beyond(self, size: int, wait_s: float) -> int:
        """Wait until the log has more than ``size`` entries, or ``wait_s``; return its size."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.size <= size:
                    await self._grown.wait()
        return self.size


class RangeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.range``; ``wait_s`` lets an empty answer wait for news."""

    start: Annotated[int, msgspec.Meta(ge=0)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.range_events_max)] = limits.range_events_max
    kinds: Annotated[list[str], msgspec.Meta(max_length=256)] = []
    stream: str | None = None
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=limits.poll_wait_max_s)] = 0.0


class IndexArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.entry`` and ``read.proof``."""

    index: Annotated[int, msgspec.Meta(ge=0)]


class ConsistencyArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.consistency``: the size of the log that the caller has seen."""

    old_size: Annotated[int, msgspec.Meta(ge=0)]


class FindArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.index``."""

    stream: str
    id: Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]


class BlobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.blob``: one chunk of a blob."""

    ref: Ref
    chunk: Annotated[int, msgspec.Meta(ge=0)] = 0


class ViewArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.view``: a query of ``projections.reader`` and its arguments."""

    query: str
    arguments: dict[str, Any] = {}


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class Service:
    """Answers agents for one ledger over one connection."""

    def __init__(self, client: LocalClient, committer: Committer, news: News, answer_view: Ask) -> None:
        """Answer from ``client``; admit through ``committer``; ``answer_view`` answers view queries in a thread."""
        self._client = client
        self._committer = committer
        self._news = news
        self._answer_view = answer_view
        self._uploads = Uploads(client)
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="baton-service")
        self._subscriptions: list[Subscription] = []
        self._running: set[asyncio.Task[None]] = set()
        self._running_bytes = 0
        self._stopping = asyncio.Event()
        self._reads_waiting = 0
        self._verbs: dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], Awaitable[Any]]]] = {
            "head": (msgspec.json.Decoder(NoArguments), self._head),
            "consistency": (msgspec.json.Decoder(ConsistencyArguments), self._consistency),
            "range": (msgspec.json.Decoder(RangeArguments), self._range),
            "entry": (msgspec.json.Decoder(IndexArguments), self._entry),
            "index": (msgspec.json.Decoder(FindArguments), self._index),
            "proof": (msgspec.json.Decoder(IndexArguments), self._proof),
            "checkpoint": (msgspec.json.Decoder(NoArguments), self._checkpoint),
            "agents": (msgspec.json.Decoder(NoArguments), self._agents),
            "blob": (msgspec.json.Decoder(BlobArguments), self._blob),
            "view": (msgspec.json.Decoder(ViewArguments), self._view),
        }

    @property
    def verbs(self) -> list[str]:
        """The verbs of ``read`` that this node answers."""
        return sorted(self._verbs)

    async def start(self, nats: NatsClient) -> None:
        """Subscribe; every node of a ledger shares the work through one queue group."""
        ledger = self._client.ledger
        self._subscriptions.clear()  # Started again on a new connection, those of the old one went with it.
        for pattern, answer in (
            (subjects.submit_pattern(ledger), self._submit),
            (subjects.read_pattern(ledger), self._read),
        ):
            self._subscriptions.append(await nats.subscribe(pattern, queue=QUEUE, cb=self._spawning(answer)))
        # nats-py's flush sends its PING ahead of what is buffered: only the second one is a barrier (measured).
        await nats.flush()
        await nats.flush()

    async def stop(self) -> None:
        """Take no more requests, and finish and answer those that were taken."""
        try:
            async with asyncio.timeout(drain_wait_max_s):
                for subscription in self._subscriptions:
                    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py leaves it unannotated
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("stopping without the bus", error=str(error) or type(error).__name__)
        self._subscriptions.clear()
        self._stopping.set()
        if self._running:
            _, unfinished = await asyncio.wait(self._running, timeout=finish_wait_max_s)
            for task in unfinished:
                log.error("request given up", task=str(task))
                task.cancel()
        await asyncio.to_thread(self._threads.shutdown)

    def _spawning(self, answer: Callable[[Msg], Awaitable[Any]]) -> Callable[[Msg], Awaitable[None]]:
        async def spawn(message: Msg) -> None:
            task = asyncio.ensure_future(self._serve(message, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        return spawn

    async def _serve(self, message: Msg, answer: Callable[[Msg], Awaitable[Any]]) -> None:
        self._running_bytes += len(message.data)
        try:
            encoded = await self._answer(message, answer)
        finally:
            self._running_bytes -= len(message.data)
        if not message.reply:
            return  # A submission may be sent without waiting for its receipt.
        try:
            await message.respond(encoded)
        except (nats.errors.Error, OSError) as error:
            # The bus is away. Whoever asked gets no answer, as after a crash, and asks again.
            log.warning("answer not sent", subject=message.subject, error=str(error) or type(error).__name__)

    async def _answer(self, message: Msg, answer: Callable[[Msg], Awaitable[Any]]) -> bytes:
        try:
            self._check_load()
            return _encoded(await answer(message))
        except BatonError as error:
            return msgspec.json.encode({"error": error.to_dict()})
        except Exception as error:
            log.exception("request failed", subject=message.subject)
            failed = BatonError("UNEXPECTED", f"the ledger failed: {type(error).__name__}")
            return msgspec.json.encode({"error": failed.to_dict()})

    def _check_load(self) -> None:
        if len(self._running) - self._reads_waiting > requests_running_max:
            raise Unavailable("BUSY", f"{requests_running_max} requests are running already: try again")
        if self._running_bytes > requests_running_max_bytes:
            raise Unavailable("BUSY", f"requests of {requests_running_max_bytes} bytes are running: try again")

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _submit(self, message: Msg) -> Any:
        headers = message.headers or {}
        if BLOB_HEADER in headers:
            agent = subjects.submit_agent(message.subject)
            number = headers.get(CHUNK_HEADER, "")
            return await self._in_thread(self._uploads.take, agent, headers[BLOB_HEADER], number, message.data)
        if len(message.data) > inline_size_max_bytes:
            submission = await self._in_thread(decode_submission, message.data)
        else:
            submission = decode_submission(message.data)
        accepted = await asyncio.wrap_future(self._committer.submit(submission))
        self._news.look()
        return {"accepted": [_fields(event) for event in accepted]}

    async def _read(self, message: Msg) -> Any:
        if len(message.data) > arguments_size_max_bytes:
            raise Refused("TOO_LARGE", f"the arguments of a read have at most {arguments_size_max_bytes} bytes")
        verb = subjects.read_verb(message.subject)
        handler = self._verbs.get(verb)
        if handler is None:
            raise Refused("USAGE", f"there is no verb {verb!r}: {', '.join(self.verbs)}", verb=verb)
        decoder, answer = handler
        return await answer(decode_strict(message.data or b"{}", decoder))

    async def _head(self, _: NoArguments) -> dict[str, Any]:
        return _fields(self._client.head())

    async def _consistency(self, wanted: ConsistencyArguments) -> dict[str, Any]:
        return _fields(await self._in_thread(self._client.consistency, wanted.old_size))

    async def _range(self, wanted: RangeArguments) -> dict[str, Any]:
        if wanted.wait_s and self._news.size <= wanted.start:
            await self._wait_beyond(wanted.start, wanted.wait_s)
        page = self._client.entries(wanted.start, limit=wanted.limit, kinds=wanted.kinds, stream=wanted.stream)
        return _fields(page)

    async def _wait_beyond(self, size: int, wait_s: float) -> None:
        if self._reads_waiting >= reads_waiting_max:
            raise Unavailable("BUSY", f"{reads_waiting_max} reads wait already: try again")
        self._reads_waiting += 1
        waiting = {
            asyncio.ensure_future(task) for task in (self._news.wait_beyond(size, wait_s), self._stopping.wait())
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reads_waiting -= 1
            for task in waiting:
                task.cancel()

    async def _entry(self, wanted: IndexArguments) -> dict[str, Any]:
        return {"entry": self._client.entry(wanted.index)}

    async def _index(self, wanted: FindArguments) -> dict[str, Any]:
        return {"index": self._client.index_of(wanted.stream, wanted.id)}

    async def _proof(self, wanted: IndexArguments) -> dict[str, Any]:
        receipt = await self._in_thread(self._client.prove, wanted.index)
        return {"receipt": receipt.to_text()}

    async def _checkpoint(self, _: NoArguments) -> dict[str, Any]:
        return {"checkpoint": await self._in_thread(self._client.checkpoint)}

    async def _agents(self, _: NoArguments) -> dict[str, Any]:
        return {"agents": [_fields(agent) for agent in self._client.agents()]}

    async def _blob(self, wanted: BlobArguments) -> dict[str, Any]:
        blobs = self._client.log.blobs
        record = blobs.find(wanted.ref)
        if record is None:
            raise Refused("NOT_FOUND", f"there is no blob {wanted.ref}", ref=wanted.ref)
        if wanted.chunk * limits.blob_chunk_bytes >= max(record.size, 1):
            raise Refused("NOT_FOUND", f"blob {wanted.ref} has no chunk {wanted.chunk}", size=record.size)
        return {"size": record.size, "content": blobs.chunk(record, wanted.chunk) if record.size else b""}

    async def _view(self, wanted: ViewArguments) -> Any:
        return await self._in_thread(self._answer_view, wanted.query, wanted.arguments)


def _encoded(answer: Any) -> bytes:
    encoded = msgspec.json.encode(answer)
    if len(encoded) > answer_size_max_bytes:
        raise Refused("TOO_LARGE", f"the answer has {len(encoded)} bytes: ask for less", size=len(encoded))
    return encoded


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as an object with names, also where it is stored as an array."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
