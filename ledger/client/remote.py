"""The client of a ledger behind a server: the calls of ``ledger.client.client.Client`` as requests over NATS.

``Client`` documents the calls. The client checks the history of each node that it connects to, each new head that
``stream`` returns, and the content of each blob. It does not verify other answers: a caller that does not trust the
server verifies entries, receipts and checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, partial
from typing import Any, BinaryIO, TypeVar

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import AsyncConnection, Exchange, decode_answer, readable
from deedbook.ledger.bus.loop_thread import Connection
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER, INTENT, KNOWN_SIZE_HEADER
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.client.client import Progress, When, open_content
from deedbook.ledger.client.reads import HeadView, Page
from deedbook.ledger.client.remote_history import RemoteHistory
from deedbook.ledger.client.spool import Spool
from deedbook.ledger.client.stream_reader import StreamReader, pinned_root
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.format.codec import convert, encode_arguments
from deedbook.ledger.format.envelope import Submission
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import AgentRecord
from deedbook.ledger.log.blobs import BlobPage, BlobView, checked_chunks
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.secrets.scanner import check_text, scanned_text
from deedbook.ledger.system.resource import Resource
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest
from deedbook.ledger.trust.store import TrustStore

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
C = TypeVar("C", Connection, AsyncConnection)


class RemoteReads(ABC):
    """The reads that a node answers (``read.<verb>``)."""

    @abstractmethod
    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send one read and return the answer."""

    def head(self) -> HeadView:
        return _convert(HeadView, self._read("head"))

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        return _convert(ConsistencyProof, self._read("consistency", old_size=old_size, new_size=new_size))

    def entry(self, index: int) -> bytes:
        return _convert_field(bytes, "entry", self._read("entry", index=index))

    def index_of(self, stream: str, event_id: str) -> int | None:
        return _convert(_IndexAnswer, self._read("index", stream=stream, id=event_id)).index

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
        return _convert(Page, self._read("range", **_range(start, limit, kinds, stream, wait_s), old_size=old_size))

    def agents(self) -> list[AgentRecord]:
        return _convert_list(AgentRecord, "agents", self._read("agents"))

    def prove(self, index: int) -> Receipt:
        return Receipt.parse(_convert_field(str, "receipt", self._read("proof", index=index)))

    def checkpoint(self) -> str:
        return _convert_field(str, "checkpoint", self._read("checkpoint"))

    def ends(self, size: int, streams: Collection[str]) -> str:
        return _convert_field(str, "ends", self._read("ends", size=size, streams=list(streams)))

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        return self._read("view", query=query, arguments=arguments, as_of=as_of)


class RemoteClient(RemoteReads, Resource):
    """A ``Client`` of the ledger at ``settings.server``, connected as ``settings.agent``."""

    def __init__(self, settings: Settings) -> None:
        """Connect with the agent's bus key from the ledger's folder.

        Raises Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``, ``BUS_DENIED``. Unavailable: ``BUS_UNAVAILABLE``,
        unless the settings have a spool.
        """
        self.settings = settings
        agent = self._agent = settings.agent or ""
        self._home = Home(settings.home)
        self.ledger: str = read_key_file(self._home.key_file(agent)).ledger
        self._submit_subject = subjects.submit_subject(self.ledger, agent)
        self._greeter = _Greeter(self.ledger, settings)
        self.spool = Spool(settings.home, agent)
        self._has_submitted = False
        self._written_size = 0
        self._writing = threading.Lock()
        self._uploading = threading.Lock()
        verifiers = self._greeter.history.verifiers
        addresses = KnownAddresses(self.ledger, settings.server or "", verifiers) if not settings.only_looks else None
        self._connection = Connection(
            settings.server or "",
            agent,
            self._home.bus_seed(agent),
            self._greeter.greet,
            may_be_absent=settings.spool,
            read_seeds=partial(self._home.bus_seeds, agent),  # a rotation may replace the key while this is open
            addresses=addresses,
        )

    @property
    def trust_store(self) -> TrustStore:
        return self._greeter.history.trust_store

    @property
    def disagreement(self) -> Corrupted | None:
        return self._greeter.history.disagreement

    @property
    def server(self) -> str:
        """The address of the node that answers now: a configured one, or one that was learned."""
        return self._connection.server

    def close(self) -> None:
        """Trust the head that includes everything submitted or read here, and close the connection."""
        if self._has_submitted or self._greeter.history.has_followed:
            with contextlib.suppress(DeedbookError, TimeoutError):  # the next connection reports it
                self._has_submitted = False
                self._connection.greet_again()
        self._connection.close()

    def stream(self, request: StreamRequest) -> StreamPage:
        history = self._greeter.history
        trusted = history.trusted
        request = msgspec.structs.replace(request, old_size=trusted.size if trusted else 0)
        page = _convert(StreamPage, self._read("stream", **msgspec.structs.asdict(request)))
        if request.size is None:
            history.follow(self, page.consistency_proof, trusted)
        return page

    @cached_property
    def streams(self) -> StreamReader:
        file = None if self.settings.only_looks else self._greeter.history.trust_store.authority_file
        is_pinned = pinned_root(self.settings.home, self.ledger) is not None
        return StreamReader(self, file, lambda: f"the node at {self._connection.server}", is_pinned=is_pinned)

    def submit(self, submission: Submission) -> list[Accepted]:
        return self.spool.submit(submission, self.send, may_store=self.settings.spool)

    def send(self, submission: Submission) -> list[Accepted]:
        """Submit now, without the spool: raise when the ledger is away, and do not wait for earlier submissions."""
        self._has_submitted = True
        accepted = _convert_list(
            Accepted, "accepted", self._connection.request(self._submit_subject, submission.encode())
        )
        with self._writing:
            self._written_size = max(self._written_size, *(event.index + 1 for event in accepted))
        return accepted

    def put_blob(
        self, content: bytes | BinaryIO, intent: Submission, progress: Progress = lambda _done, _total: None
    ) -> str:
        """Store a blob and return its ref. It sends ``intent`` first; the answer says how many bytes are stored.

        Sending continues from there, also after the ledger restarted. Raises Refused: ``TOO_LARGE``,
        ``SECRET_DETECTED``. Unavailable: ``BUS_UNAVAILABLE``, ``BUSY``, ``QUOTA_EXCEEDED``.
        """
        body, _ = decode_body(intent.bodies[0])
        (file, size), ref = open_content(content), "blake3:" + body.stream.removeprefix("blob/")
        if not body.allow_secret:
            check_text(scanned_text(file))
        signed = intent.encode()
        number: int | None = None
        with self._uploading, readable():
            for _ in range(3 * max(1, -(-size // limits.blob_chunk_bytes)) + 3):
                chunk = signed if number is None else _chunk(file, number)
                headers = {BLOB_HEADER: ref, CHUNK_HEADER: INTENT if number is None else str(number)}
                try:
                    answer = self._connection.request(self._submit_subject, chunk, headers)
                except Refused as refusal:
                    if refusal.code != "CHUNK_MISPLACED":
                        raise
                    number = None  # the upload expired, or another process continued it: ask how much is stored
                    continue
                progress(min(int(answer["received"]), size), size)
                if "ref" in answer:
                    return ref
                number = int(answer["received"]) // limits.blob_chunk_bytes
        raise Unavailable("BUS_UNAVAILABLE", "the ledger did not store this blob: try again later", ref=ref)

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        chunk = _convert(_ChunkAnswer, self._read("blob", ref=ref, chunk=number))
        return chunk.size, chunk.content

    def stat_blob(self, ref: str) -> BlobView:
        return _convert(BlobView, self._read("blob.stat", ref=ref))

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        arguments = {"after": after, "limit": limit, "author": author, "unreferenced": unreferenced}
        return _convert(BlobPage, self._read("blobs", **arguments))

    def blob_chunks(self, ref: str) -> Iterator[bytes]:
        return checked_chunks(ref, self._unchecked_chunks(ref))

    def get_blob(self, ref: str) -> bytes:
        return b"".join(self.blob_chunks(ref))

    def _unchecked_chunks(self, ref: str) -> Iterator[bytes]:
        received, size = 0, 1
        while received < min(size, limits.blob_size_max_bytes):
            size, chunk = self.blob_chunk(ref, received // limits.blob_chunk_bytes)
            received += len(chunk)
            if received < size and len(chunk) != limits.blob_chunk_bytes:
                raise Corrupted("VERIFICATION_FAILED", f"the ledger sent an incomplete chunk of {ref}", ref=ref)
            yield chunk

    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        wait_s = float(arguments.get("wait_s", 0.0))
        subject = subjects.read_subject(self.ledger, self._agent, verb)
        # The node that answers may not be the one that took the submission, or that answered the last read.
        trusted = self._greeter.history.trusted
        size = max(self._written_size, trusted.size if trusted else 0)
        headers = {KNOWN_SIZE_HEADER: str(size)} if size else None
        return self._connection.request(subject, encode_arguments(arguments, verb), headers, wait_s=wait_s)


class _Greeter(RemoteReads):
    """Checks the history of each node that a client connects to, in a thread, because that reads and writes files."""

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


def _range(start: int, limit: int, kinds: Collection[str], stream: str | None, wait_s: float) -> dict[str, Any]:
    return {
        "start": start,
        "limit": max(1, min(limit, limits.range_events_max)),
        "kinds": sorted(kinds),
        "stream": stream,
        "wait_s": max(0.0, min(wait_s, limits.poll_wait_max_s)),
    }


def _chunk(file: BinaryIO, number: int) -> bytes:
    file.seek(number * limits.blob_chunk_bytes)
    return file.read(limits.blob_chunk_bytes)


class _ChunkAnswer(msgspec.Struct):
    size: int
    content: bytes


class _IndexAnswer(msgspec.Struct):
    index: int | None


def _convert(form: type[T], answer: dict[str, Any]) -> T:
    with readable():
        return convert(answer, form)


def _convert_field(form: type[V], name: str, answer: dict[str, Any]) -> V:
    with readable():
        return convert(answer[name], form)


def _convert_list(form: type[T], name: str, answer: dict[str, Any]) -> list[T]:
    """Return the structs in a list of an answer. They are arrays when stored, but objects in answers."""
    with readable():
        return [convert([row[field] for field in form.__struct_fields__], form) for row in answer[name]]
