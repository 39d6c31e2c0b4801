"""What a node answers on the bus: submissions, and reads of the log (DESIGN §7).

- ``submit.<agent>``: the payload is a submission (msgpack or DSSE JSON); the answer is JSON, ``{"accepted": […]}`` or
  ``{"error": {…}}``. With the header ``Baton-Blob`` the payload is one chunk of a blob.
- ``read.<verb>``: the payload is a JSON object of arguments, the answer is JSON. Bytes are base64.

A request never blocks the others: commits run in the writer thread, waiting reads wait for news of the log, view
queries run in a thread. Every wait, size and number of uploads has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import structlog

from ledger import limits
from ledger.bus import subjects
from ledger.bus.uploads import Uploads
from ledger.codec import decode_strict
from ledger.envelope import decode_submission
from ledger.errors import BatonError, Refused
from ledger.events.fields import Ref

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

    from ledger.admission.committer import Committer
    from ledger.bus.news import News
    from ledger.local import LocalClient

    AnswerView = Callable[[str, dict[str, Any]], dict[str, Any]]

log = structlog.get_logger("baton.service")

BLOB_HEADER: Final = "Baton-Blob"
CHUNK_HEADER: Final = "Baton-Chunk"
requests_running_max: Final = 1024
QUEUE: Final = "baton-nodes"


class RangeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.range``; ``wait_s`` lets an empty answer wait for news."""

    start: Annotated[int, msgspec.Meta(ge=0)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.range_events_max)] = limits.range_events_max
    kinds: list[str] = []
    stream: str | None = None
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=limits.poll_wait_max_s)] = 0.0


class IndexArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``read.entry`` and ``read.proof``."""

    index: Annotated[int, msgspec.Meta(ge=0)]


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

    def __init__(self, client: LocalClient, committer: Committer, news: News, answer_view: AnswerView) -> None:
        """Answer from ``client``; admit through ``committer``; ``answer_view`` answers view queries in a thread."""
        self._client = client
        self._committer = committer
        self._news = news
        self._answer_view = answer_view
        self._uploads = Uploads(client)
        self._running: set[asyncio.Task[None]] = set()
        self._verbs: dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], Awaitable[Any]]]] = {
            "head": (msgspec.json.Decoder(NoArguments), self._head),
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
        await nats.subscribe(subjects.submit_pattern(ledger), queue=QUEUE, cb=self._on_submit)
        await nats.subscribe(subjects.read_pattern(ledger), queue=QUEUE, cb=self._on_read)
        # nats-py's flush sends its PING ahead of what is buffered: only the second one is a barrier (measured).
        await nats.flush()
        await nats.flush()

    async def stop(self) -> None:
        """Wait for the requests that run."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _on_submit(self, message: Msg) -> None:
        self._spawn(message, self._submit(message))

    async def _on_read(self, message: Msg) -> None:
        self._spawn(message, self._read(message))

    def _spawn(self, message: Msg, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(self._answer(message, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, message: Msg, work: Awaitable[Any]) -> None:
        try:
            answer = await work
        except BatonError as error:
            answer = {"error": error.to_dict()}
        except Exception as error:
            log.exception("request failed", subject=message.subject)
            answer = {"error": BatonError("UNEXPECTED", f"the ledger failed: {type(error).__name__}").to_dict()}
        with contextlib.suppress(ConnectionError):
            await message.respond(msgspec.json.encode(answer))

    async def _submit(self, message: Msg) -> dict[str, Any]:
        headers = message.headers or {}
        if BLOB_HEADER in headers:
            agent = subjects.submit_agent(message.subject)
            number = headers.get(CHUNK_HEADER, "")
            return await asyncio.to_thread(self._uploads.take, agent, headers[BLOB_HEADER], number, message.data)
        accepted = await asyncio.wrap_future(self._committer.submit(decode_submission(message.data)))
        self._news.announce()
        return {"accepted": [_fields(one) for one in accepted]}

    async def _read(self, message: Msg) -> Any:
        if len(self._running) > requests_running_max:
            raise Refused("BUSY", f"{requests_running_max} requests are running already: try again")
        verb = subjects.read_verb(message.subject)
        found = self._verbs.get(verb)
        if found is None:
            raise Refused("USAGE", f"there is no verb {verb!r}: {', '.join(self.verbs)}", verb=verb)
        decoder, answer = found
        return await answer(decode_strict(message.data or b"{}", decoder))

    async def _head(self, _: NoArguments) -> dict[str, Any]:
        return _fields(self._client.head())

    async def _range(self, wanted: RangeArguments) -> dict[str, Any]:
        if wanted.wait_s:
            await self._news.wait_beyond(wanted.start, wanted.wait_s)
        page = self._client.entries(wanted.start, limit=wanted.limit, kinds=wanted.kinds, stream=wanted.stream)
        return _fields(page)

    async def _entry(self, wanted: IndexArguments) -> dict[str, Any]:
        return {"entry": self._client.entry(wanted.index)}

    async def _index(self, wanted: FindArguments) -> dict[str, Any]:
        return {"index": self._client.index_of(wanted.stream, wanted.id)}

    async def _proof(self, wanted: IndexArguments) -> dict[str, Any]:
        return {"receipt": self._client.prove(wanted.index).to_text()}

    async def _checkpoint(self, _: NoArguments) -> dict[str, Any]:
        return {"checkpoint": self._client.checkpoint()}

    async def _agents(self, _: NoArguments) -> dict[str, Any]:
        return {"agents": [_fields(one) for one in self._client.agents()]}

    async def _blob(self, wanted: BlobArguments) -> dict[str, Any]:
        blobs = self._client.log.blobs
        record = blobs.find(wanted.ref)
        if record is None:
            raise Refused("NOT_FOUND", f"there is no blob {wanted.ref}", ref=wanted.ref)
        if wanted.chunk * limits.blob_chunk_bytes >= max(record.size, 1):
            raise Refused("NOT_FOUND", f"blob {wanted.ref} has no chunk {wanted.chunk}", size=record.size)
        return {"size": record.size, "content": blobs.chunk(record, wanted.chunk) if record.size else b""}

    async def _view(self, wanted: ViewArguments) -> dict[str, Any]:
        return await asyncio.to_thread(self._answer_view, wanted.query, wanted.arguments)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as an object with names, also where it is stored as an array."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
