"""The client of a ledger behind a server: the calls of ``ledger.client.client.Client`` as requests over NATS.

Each raises what ``Client`` says. What arrives is what the ledger answers, in its types; whoever must not trust the
server verifies entries, receipts and checkpoints. A blob's content always is: it is compared with its ref.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from deedbook.ledger import limits
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import AsyncConnection, Exchange, decode_answer, readable
from deedbook.ledger.bus.loop_thread import Connection
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER, INTENT
from deedbook.ledger.client.client import Progress, When
from deedbook.ledger.client.reads import HeadView, Page
from deedbook.ledger.client.remote_history import RemoteHistory
from deedbook.ledger.client.spool import Spool
from deedbook.ledger.client.stream_reader import StreamReader, pinned_root
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import encode_arguments
from deedbook.ledger.format.envelope import Submission
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import AgentRecord
from deedbook.ledger.log.blobs import BlobPage, BlobView, check_blob
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.secrets.scanner import check_text
from deedbook.ledger.system.resource import Resource
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest
from deedbook.ledger.trust.store import TrustStore

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")


class RemoteReads(ABC):
    """What a node answers to ``read.<verb>``."""

    @abstractmethod
    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to one read."""

    def head(self) -> HeadView:
        return _whole(HeadView, self._read("head"))

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        return _whole(ConsistencyProof, self._read("consistency", old_size=old_size, new_size=new_size))

    def entry(self, index: int) -> bytes:
        return _only(bytes, "entry", self._read("entry", index=index))

    def index_of(self, stream: str, event_id: str) -> int | None:
        return _whole(_Place, self._read("index", stream=stream, id=event_id)).index

    def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
        old_size: int | None = None,
    ) -> Page:
        return _whole(Page, self._read("range", **_range(start, limit, kinds, stream, wait_s), old_size=old_size))

    def agents(self) -> list[AgentRecord]:
        return _structs(AgentRecord, "agents", self._read("agents"))

    def prove(self, index: int) -> Receipt:
        return Receipt.parse(_only(str, "receipt", self._read("proof", index=index)))

    def checkpoint(self) -> str:
        return _only(str, "checkpoint", self._read("checkpoint"))

    def ends(self, size: int, streams: Collection[str]) -> str:
        return _only(str, "ends", self._read("ends", size=size, streams=list(streams)))

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        return self._read("view", query=query, arguments=arguments, as_of=as_of)


class _Asking:
    """Whoever asks the ledger at ``settings.server`` as ``settings.agent``: what is known before it connects."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._agent, self._home = settings.agent or "", Home(settings.home)
        self.ledger: str = read_key_file(self._home.key_file(self._agent)).ledger
        self._submit_subject = subjects.submit_subject(self.ledger, self._agent)
        self._greeter = _Greeter(self.ledger, settings)
        self.spool = Spool(settings.home, self._agent)
        self._has_submitted = False


class RemoteClient(_Asking, RemoteReads, Resource):
    """A ``Client`` of the ledger at ``settings.server``, connected as ``settings.agent``."""

    def __init__(self, settings: Settings) -> None:
        """Connect with the agent's bus key from the ledger's folder.

        Raises Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``, ``BUS_DENIED``. Unavailable: ``BUS_UNAVAILABLE``.
        """
        super().__init__(settings)
        agent, home, greet = self._agent, self._home, self._greeter.greet
        away = settings.spool
        try:
            self._connection = Connection(settings.server or "", agent, home.bus_seed(agent), greet, may_be_absent=away)
        except Refused as refusal:
            if refusal.code != "BUS_DENIED" or not home.is_rotating(agent):
                raise
            # A rotation that was cut short after the ledger had accepted it: the server knows the new key only.
            self._connection = Connection(settings.server or "", agent, home.bus_seed(agent, is_new=True), greet)
        self._uploading = threading.Lock()

    @property
    def trust_store(self) -> TrustStore:
        return self._greeter.history.trust_store

    def close(self) -> None:
        """Remember the history that holds what was submitted or read, and close the connection."""
        if self._has_submitted or self._greeter.history.has_followed:
            with contextlib.suppress(DeedbookError, TimeoutError):  # who connects next is told
                self._has_submitted = False
                self._connection.greet_again()
        self._connection.close()

    def stream(self, asked: StreamRequest) -> StreamPage:
        history = self._greeter.history
        trusted = history.trusted
        asked = msgspec.structs.replace(asked, old_size=trusted.size if trusted else 0)
        page = _whole(StreamPage, self._read("stream", **msgspec.structs.asdict(asked)))
        if asked.size is None:
            history.follow(self, page.consistency_proof, trusted)
        return page

    @cached_property
    def streams(self) -> StreamReader:
        file = None if self.settings.only_looks else self._greeter.history.trust_store.authority_file
        return StreamReader(self, file, is_pinned=pinned_root(self.settings.home, self.ledger) is not None)

    def submit(self, submission: Submission) -> list[Accepted]:
        return self.spool.submit(submission, self.send, may_keep=self.settings.spool)

    def send(self, submission: Submission) -> list[Accepted]:
        """Submit now, whatever waits in the spool."""
        self._has_submitted = True
        return _structs(Accepted, "accepted", self._connection.request(self._submit_subject, submission.encode()))

    def put_blob(self, content: bytes, intent: Submission, progress: Progress = lambda _done, _total: None) -> str:
        """Store a blob and return its ref; ``intent`` is sent first, and tells how much of it the ledger holds.

        Sending goes on from there, also after the ledger started again. Raises Refused: ``TOO_LARGE``,
        ``SECRET_DETECTED``. Unavailable: ``BUS_UNAVAILABLE``, ``BUSY``, ``QUOTA_EXCEEDED``.
        """
        ref = "blake3:" + blake3(content).hexdigest()
        check_text(content)
        signed = intent.encode()
        number: int | None = None
        with self._uploading, readable():
            for _ in range(3 * max(1, -(-len(content) // limits.blob_chunk_bytes)) + 3):
                chunk = signed if number is None else _chunk(content, number)
                headers = {BLOB_HEADER: ref, CHUNK_HEADER: INTENT if number is None else str(number)}
                try:
                    answer = self._connection.request(self._submit_subject, chunk, headers)
                except Refused as refusal:
                    if refusal.code != "CHUNK_MISPLACED":
                        raise
                    number = None  # it expired, or is begun elsewhere: ask where it stands
                    continue
                progress(min(int(answer["received"]), len(content)), len(content))
                if "ref" in answer:
                    return ref
                number = int(answer["received"]) // limits.blob_chunk_bytes
        raise Unavailable("BUS_UNAVAILABLE", "the ledger does not keep what it is sent of this blob", ref=ref)

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        chunk = _whole(_Chunk, self._read("blob", ref=ref, chunk=number))
        return chunk.size, chunk.content

    def stat_blob(self, ref: str) -> BlobView:
        return _whole(BlobView, self._read("blob.stat", ref=ref))

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        asked = {"after": after, "limit": limit, "author": author, "unreferenced": unreferenced}
        return _whole(BlobPage, self._read("blobs", **asked))

    def get_blob(self, ref: str) -> bytes:
        content, size = bytearray(), 1
        while len(content) < min(size, limits.blob_size_max_bytes):
            size, chunk = self.blob_chunk(ref, len(content) // limits.blob_chunk_bytes)
            content += chunk
            if len(content) < size and len(chunk) != limits.blob_chunk_bytes:
                raise Corrupted("VERIFICATION_FAILED", f"a chunk of {ref} is not whole", ref=ref)
        check_blob(ref, bytes(content))
        return bytes(content)

    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        wait_s = float(arguments.get("wait_s", 0.0))
        subject = subjects.read_subject(self.ledger, self._agent, verb)
        return self._connection.request(subject, encode_arguments(arguments, verb), wait_s=wait_s)


class _Greeter(RemoteReads):
    """Greets nodes for a client, in a thread: what is remembered lies in files, and a loop waits for none."""

    def __init__(self, ledger: str, settings: Settings) -> None:
        self._ledger, self._agent = ledger, settings.agent or ""
        self.history = RemoteHistory(ledger, settings)
        self._send: Callable[[str, bytes], bytes]

    async def greet(self, exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        self._send = lambda *request: asyncio.run_coroutine_threadsafe(exchange(*request), loop).result()
        await asyncio.to_thread(self.history.greet, self)

    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        subject = subjects.read_subject(self._ledger, self._agent, verb)
        return decode_answer(self._send(subject, encode_arguments(arguments, verb)))


class AsyncRemoteClient(_Asking):
    """What agents and subscribers ask of the ledger at ``settings.server``, on the caller's event loop."""

    def __init__(self, settings: Settings) -> None:
        """Prepare to connect with the agent's bus key from the ledger's folder; ``open`` connects.

        Raises Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``.
        """
        super().__init__(settings)
        seed = self._home.bus_seed(self._agent)
        server, greet = settings.server or "", self._greeter.greet
        self._connection = AsyncConnection(server, self._agent, seed, greet, may_be_absent=settings.spool)

    async def open(self) -> None:
        """Connect. Raises Refused: ``BUS_DENIED``. Unavailable: ``BUS_UNAVAILABLE``, unless there is a spool."""
        await self._connection.open()

    async def close(self) -> None:
        """Remember the history that holds what was submitted, and close the connection."""
        if self._has_submitted:
            with contextlib.suppress(DeedbookError, TimeoutError):  # who connects next is told
                self._has_submitted = False
                await self._connection.greet_again()
        await self._connection.close()

    async def submit(self, submission: Submission) -> list[Accepted]:
        loop = asyncio.get_running_loop()
        if not self.settings.spool and not await asyncio.to_thread(self.spool.waiting):
            return await self._send(submission)

        def send(one: Submission) -> list[Accepted]:
            return asyncio.run_coroutine_threadsafe(self._send(one), loop).result()

        # In a thread: the spool lies in files, and another process may be sending what waits there.
        return await asyncio.to_thread(self.spool.submit, submission, send, may_keep=self.settings.spool)

    async def _send(self, submission: Submission) -> list[Accepted]:
        self._has_submitted = True
        return _structs(Accepted, "accepted", await self._connection.request(self._submit_subject, submission.encode()))

    async def head(self) -> HeadView:
        return _whole(HeadView, await self._read("head"))

    async def entry(self, index: int) -> bytes:
        return _only(bytes, "entry", await self._read("entry", index=index))

    async def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
    ) -> Page:
        return _whole(Page, await self._read("range", **_range(start, limit, kinds, stream, wait_s)))

    async def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        return await self._read("view", query=query, arguments=arguments, as_of=as_of)

    async def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        wait_s = float(arguments.get("wait_s", 0.0))
        subject = subjects.read_subject(self.ledger, self._agent, verb)
        return await self._connection.request(subject, encode_arguments(arguments, verb), wait_s=wait_s)


def _range(start: int, limit: int, kinds: Collection[str], stream: str | None, wait_s: float) -> dict[str, Any]:
    return {
        "start": start,
        "limit": max(1, min(limit, limits.range_events_max)),
        "kinds": sorted(kinds),
        "stream": stream,
        "wait_s": max(0.0, min(wait_s, limits.poll_wait_max_s)),
    }


def _chunk(content: bytes, number: int) -> bytes:
    return content[number * limits.blob_chunk_bytes : (number + 1) * limits.blob_chunk_bytes]


class _Chunk(msgspec.Struct):
    size: int
    content: bytes


class _Place(msgspec.Struct):
    index: int | None


def _whole(form: type[T], answer: dict[str, Any]) -> T:
    with readable():
        return msgspec.convert(answer, form)


def _only(form: type[V], name: str, answer: dict[str, Any]) -> V:
    with readable():
        return msgspec.convert(answer[name], form)


def _structs(form: type[T], name: str, answer: dict[str, Any]) -> list[T]:
    """Return the list that an answer holds: of structs that are stored as arrays, from objects with their names."""
    with readable():
        return [msgspec.convert([row[field] for field in form.__struct_fields__], form) for row in answer[name]]
