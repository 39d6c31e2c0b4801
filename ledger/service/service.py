"""The service of a node on the bus: it answers submissions and reads of the log.

- ``submit.<agent>``: the payload is a submission (msgpack or DSSE JSON); the answer is JSON, ``{"accepted": […]}`` or
  ``{"error": {…}}``. With the header ``Deedbook-Blob`` the payload is the intent to store a blob, or one of its chunks.
- ``read.<agent>.<verb>``: the payload is a JSON object of arguments, the answer is JSON. Bytes are base64.

A request never blocks the others. Each agent has two queues, one for submissions and one for reads. The queues are
served in turn, and a full queue sheds requests (``ledger.service.intake``). The event loop parses nothing that an agent
sent: the committer's threads decode and verify submissions, and a few other threads handle reads; one agent uses at
most half of them. (A thread costs a read 0.1 to 0.2 ms and a submission nothing, measured; parsing 64 KiB of hostile
JSON costs more.) Waiting reads use no thread and have limits of their own.

A stop refuses new requests, ends waiting reads, and finishes and answers everything else. If we crash here, every
answered request was carried out, and the ledger recognises a submission that is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import nats.errors
import structlog

from deedbook.ledger import limits
from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER, KNOWN_SIZE_HEADER
from deedbook.ledger.client.client import AnswerView, When
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.fields import Name, Ref
from deedbook.ledger.format.codec import decode_decimal, decode_strict, json_decoder
from deedbook.ledger.log.blobs import page_blobs_max
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.fair_queue import Share
from deedbook.ledger.service.intake import Intake, Request, Serve
from deedbook.ledger.service.uploads import take
from deedbook.ledger.system import traces
from deedbook.ledger.system.metrics import Metrics
from deedbook.ledger.trust.history import StreamRequest

log = structlog.get_logger("deedbook.service")

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

arguments_size_max_bytes: Final = 64 * 1024
answer_size_max_bytes: Final = 1000 * 1024  # The server's ``max_payload`` less the headers of a message.
upload_threads_max: Final = 2
drain_wait_max_s: Final = 2.0
finish_wait_max_s: Final = 30.0
newest_entries_max: Final = 4
poll_interval_s: Final = 0.02

SUBMISSIONS: Final = Share(
    waiting_max=limits.agent_requests_waiting_max,
    waiting_max_bytes=limits.agent_requests_waiting_max_bytes,
    running_max=limits.agent_submissions_running_max,
    running_max_bytes=limits.agent_submissions_running_max_bytes,
    all_waiting_max_bytes=limits.requests_waiting_max_bytes,
    all_running_max=limits.submissions_running_max,
)
READS: Final = Share(
    waiting_max=limits.agent_requests_waiting_max,
    waiting_max_bytes=limits.agent_requests_waiting_max_bytes,
    running_max=limits.agent_reads_running_max,
    running_max_bytes=limits.agent_reads_running_max * arguments_size_max_bytes,
    all_waiting_max_bytes=limits.requests_waiting_max_bytes,
    all_running_max=limits.read_threads_max,
)


class LogWatcher:
    """Wakes coroutines of one event loop when the log has grown.

    ``size`` is the size of the log at the last check.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._grown = asyncio.Event()
        self._transaction: object = None
        self.size = 0

    def look(self) -> None:
        """Check the log now, as after a commit of this process; read a page only if LMDB's transaction number moved."""
        transaction = self._log.tables.last_transaction()
        if transaction == self._transaction:
            return
        with self._log.snapshot() as snapshot:
            size = snapshot.size
        self._transaction = transaction  # set after the snapshot: if that fails, the next check tries again
        if size != self.size:
            self.size = size
            # Coroutines that wait now have the old event; later ones wait for the new event.
            self._grown.set()
            self._grown = asyncio.Event()
            self._log.announce()

    async def run(self) -> None:
        """Check for commits of other processes until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(poll_interval_s)

    async def wait_beyond(self, size: int, wait: float | asyncio.Timeout) -> int:
        """Wait until the log has more than ``size`` entries or the time (s) is over; return its size."""
        with contextlib.suppress(TimeoutError):
            async with wait if isinstance(wait, asyncio.Timeout) else asyncio.timeout(wait):
                while self.size <= size:
                    await self._grown.wait()
        return self.size


# The arguments of each verb of ``read``.
class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Range(_Arguments, frozen=True):
    """With ``wait_s`` an empty answer waits for new entries; ``old_size`` requests a proof."""

    start: _Count
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.range_events_max)] = limits.range_events_max
    kinds: Annotated[list[str], msgspec.Meta(max_length=256)] = []
    stream: str | None = None
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=limits.poll_wait_max_s)] = 0.0
    old_size: _Count | None = None


class _Index(_Arguments, frozen=True):
    index: _Count


class _StreamHeads(_Arguments, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1)]
    streams: list[str]


class _Consistency(_Arguments, frozen=True):
    """The caller's trusted size, and a larger size. Without the latter, the proof leads to the present checkpoint."""

    old_size: _Count
    new_size: _Count | None = None


class _Event(_Arguments, frozen=True):
    stream: str
    id: Annotated[str, msgspec.Meta(pattern=r"^event:[0-9a-f]{64}\Z")]


class _Chunk(_Arguments, frozen=True):
    ref: Ref
    chunk: _Count = 0


class _Blob(_Arguments, frozen=True):
    ref: Ref


class _Blobs(_Arguments, frozen=True):
    after: Ref | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=page_blobs_max)] = 50
    author: Name | None = None
    unreferenced: bool = False


class _View(_Arguments, frozen=True):
    query: str
    arguments: dict[str, Any] = {}
    as_of: When | None = None


HasAll: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns whether no other node has an entry that this one lacks."""


class Service:
    """Answers agents for one ledger over one connection."""

    def __init__(
        self,
        client: LocalClient,
        committer: Committer,
        watcher: LogWatcher,
        answer_view: AnswerView,
        metrics: Metrics | None = None,
        *,
        has_all: HasAll | None = None,
    ) -> None:
        """Answer reads from ``client``, admit through ``committer``; ``answer_view`` answers view queries in a thread.

        With several nodes, ``has_all`` returns whether no other node has an entry that this one lacks.
        """
        self._count = count = (metrics or Metrics()).count
        self._client = client
        self._committer = committer
        self._watcher, self._has_all = watcher, has_all
        self._threads = ThreadPoolExecutor(limits.read_threads_max, thread_name_prefix="deedbook-service")
        self._upload_threads = ThreadPoolExecutor(upload_threads_max, thread_name_prefix="deedbook-service-upload")
        # If there are several nodes, each takes the submissions of the agents that are connected to its own server.
        self._submissions = Intake(
            partial(subjects.node_submit_subject, node="" if client.order is None else client.node),
            self._answering(self._submit, "deedbook.submit"),
            SUBMISSIONS,
            partial(count, label="submit"),
        )
        self._reads = Intake(
            subjects.reads_of, self._answering(self._read, "deedbook.read"), READS, partial(count, label="read")
        )
        self._served: frozenset[str] = frozenset()
        self._admits = self._reads_on = True
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._verbs: dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], Any]]] = {
            verb: (json_decoder(arguments), answer) for verb, (arguments, answer) in _verbs(client, answer_view).items()
        }

    @property
    def verbs(self) -> list[str]:
        """The verbs of ``read``, sorted."""
        return sorted(self._verbs)

    async def start(self, nats: NodeClient, agents: Collection[str]) -> None:
        """Serve these agents; the nodes of a ledger share their reads through one queue group."""
        self._served = frozenset(agents)
        for intake, served in self._intakes():
            await intake.start(nats, self._client.ledger, served)
        # nats-py's flush sends its PING before the buffered commands: only the second flush is a barrier (measured).
        await nats.flush()
        await nats.flush()

    async def follow(self, agents: Collection[str]) -> None:
        """Serve these agents from now on; end the waiting reads of all others."""
        self._served = frozenset(agents)
        self._end_waiting(self._waiting.keys() - self._served)
        for intake, served in self._intakes():
            await intake.follow(served)

    async def submit(self, agent: str, payload: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Serve a submission that came to this process as if it came over the bus, and return the encoded answer.

        The caller authenticated ``agent``. Raises Unavailable: ``BUS_UNAVAILABLE``: this node takes none now.
        """
        if not self._admits:
            message = (
                f"{self._client.node} takes no submissions now, because it is {self.role}: send it to another node"
            )
            raise Unavailable("BUS_UNAVAILABLE", message)
        if traceparent := traces.current.get():
            headers = {traces.HEADER: traceparent} | (headers or {})
        return await self._submissions.request(agent, payload, headers)

    @property
    def role(self) -> str:
        """The present role of this node, for people."""
        return "ready" if self._admits else "follower" if self._reads_on else "catching up"

    async def take(self, *, admits: bool, reads: bool) -> None:
        """Set whether this node accepts submissions, and whether it answers reads. If it lacks entries, it may not."""
        self._admits, self._reads_on = admits, reads
        for intake, served in self._intakes():
            await intake.follow(served)

    def _intakes(self) -> list[tuple[Intake, frozenset[str]]]:
        nobody = frozenset[str]()
        submissions = self._submissions, self._served if self._admits else nobody
        return [submissions, (self._reads, self._served if self._reads_on else nobody)]

    async def stop(self) -> None:
        """Accept no more requests, then finish and answer those that were accepted."""
        try:
            async with asyncio.timeout(drain_wait_max_s):
                await asyncio.gather(self._submissions.drain(), self._reads.drain())
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("stopping without the bus", error=str(error) or type(error).__name__)
        self._end_waiting(self._waiting.keys())
        await asyncio.gather(self._submissions.finish(finish_wait_max_s), self._reads.finish(finish_wait_max_s))
        for threads in (self._threads, self._upload_threads):
            await asyncio.to_thread(threads.shutdown)

    def _answering(self, serve: Serve, name: str) -> Serve:
        async def answer(agent: str, message: Request) -> bytes:
            try:
                with traces.span(name, message.headers or {}, agent=agent, subject=message.subject):
                    return await serve(agent, message)
            except DeedbookError as error:
                return msgspec.json.encode({"error": error.to_dict()})
            except Exception as error:
                log.exception("request failed", subject=message.subject)
                failed = DeedbookError("UNEXPECTED", f"the ledger failed ({type(error).__name__}): its log says why")
                return msgspec.json.encode({"error": failed.to_dict()})

        return answer

    async def _submit(self, agent: str, message: Request) -> bytes:
        headers = message.headers or {}
        if BLOB_HEADER in headers:
            number = headers.get(CHUNK_HEADER, "")
            upload = partial(take, self._client, agent, headers[BLOB_HEADER], number, message.data)
            return _encoded(await asyncio.get_running_loop().run_in_executor(self._upload_threads, upload))
        accepted = await self._committer.submit_from_loop(message.data)
        self._watcher.look()
        return _encoded({"accepted": [_fields(event) for event in accepted]})

    async def _read(self, agent: str, message: Request) -> bytes:
        if len(message.data) > arguments_size_max_bytes:
            raise Refused(
                "TOO_LARGE", f"the arguments of a read have at most {arguments_size_max_bytes} bytes: send less"
            )
        self._count("reads")
        verb = subjects.read_verb(message.subject)
        if verb not in self._verbs:
            raise Refused("USAGE", f"there is no verb {verb!r}. Use one of: {', '.join(self.verbs)}", verb=verb)
        loop, (decoder, answer) = asyncio.get_running_loop(), self._verbs[verb]

        def compute(arguments: Any = None) -> bytes | _Range | _ReadAhead:
            """Return the encoded answer, or the read that must wait first. A thread of the pool may call this."""
            if arguments is None:
                arguments = decode_strict(message.data or b"{}", decoder)
                stated = (message.headers or {}).get(KNOWN_SIZE_HEADER, "0")
                size = max(known_size(arguments), decode_decimal(stated, KNOWN_SIZE_HEADER))
                if size > self._watcher.size and self._has_all is not None:
                    return _ReadAhead(size, arguments)
                if isinstance(arguments, _Range) and arguments.wait_s and self._watcher.size <= arguments.start:
                    return arguments
            return _encoded(answer(arguments))

        result = await loop.run_in_executor(self._threads, compute)
        if isinstance(result, _ReadAhead):
            await self._wait_for(result.size)
            result = await loop.run_in_executor(self._threads, compute, result.arguments)
        if isinstance(result, _Range):
            await self._wait_beyond(agent, len(message.data), result)
            is_newest = self._watcher.size - result.start <= newest_entries_max
            # The newest entries are in memory: reading them is faster than using a thread.
            result = compute(result) if is_newest else await loop.run_in_executor(self._threads, compute, result)
        return cast("bytes", result)

    async def _wait_for(self, size: int) -> None:
        """Wait until this node has the entries that the caller knows from another node, or nobody has them."""
        if self._has_all is None or await self._has_all():
            return  # No node has more. If the caller's entries are lost, the answer shows that the history changed.
        if await self._watcher.wait_beyond(size - 1, limits.follower_lag_max_s) < size and not await self._has_all():
            raise Unavailable("BUS_UNAVAILABLE", "this node is behind the others: ask again")

    async def _wait_beyond(self, agent: str, size: int, wanted: _Range) -> None:
        if (wanted.old_size or 0) > self._watcher.size:
            return  # the caller's entries are lost, and waiting cannot bring them back
        timeouts = self._waiting.setdefault(agent, set())
        if len(timeouts) >= limits.agent_reads_waiting_max:
            message = f"{limits.agent_reads_waiting_max} of your reads are waiting: try again later"
            raise Unavailable("BUSY", message)
        if self.reads_waiting >= limits.reads_waiting_max:
            raise Unavailable("BUSY", f"{limits.reads_waiting_max} reads are waiting: try again later")
        timeout = asyncio.timeout(wanted.wait_s)
        timeouts.add(timeout)
        try:
            await self._reads.rest(agent, size, self._watcher.wait_beyond(wanted.start, timeout))
        finally:
            timeouts.discard(timeout)
            if not timeouts:
                self._waiting.pop(agent, None)
        if agent not in self._served:
            message = f"{agent} may no longer read this ledger: ask an administrator"
            raise Refused("BUS_DENIED", message, agent=agent)

    def _end_waiting(self, agents: Iterable[str]) -> None:
        now = asyncio.get_running_loop().time()
        for agent in agents:
            for timeout in self._waiting[agent]:
                with contextlib.suppress(RuntimeError):  # it has ended already
                    timeout.reschedule(now)

    @property
    def reads_waiting(self) -> int:
        """The number of reads that wait for new entries."""
        return sum(map(len, self._waiting.values()))


class _ReadAhead(NamedTuple):
    """A read of a caller that knows more entries than this node has."""

    size: int
    arguments: Any


def known_size(arguments: Any) -> int:
    """Return how many entries the log has, as far as the caller's arguments show: by a head or an entry in them."""
    match arguments:
        case _StreamHeads():
            return arguments.size
        case _Index():
            return arguments.index + 1
        case _Range():
            return max(arguments.start, arguments.old_size or 0)
        case _View(as_of=int(index)):
            return index + 1
        case _:  # an open set: the other verbs name no entry
            return getattr(arguments, "old_size", None) or 0


def _verbs(client: LocalClient, answer_view: AnswerView) -> dict[str, tuple[type, Callable[[Any], Any]]]:
    """Return the verbs of ``read``: the type of the arguments, and the function that answers."""

    def consistency(arguments: _Consistency) -> dict[str, Any]:
        if arguments.new_size is not None:
            return _fields(client.consistency(arguments.old_size, arguments.new_size))
        return _fields(client.signed_consistency(arguments.old_size))

    def entries(arguments: _Range) -> dict[str, Any]:
        page = client.entries(
            arguments.start,
            limit=arguments.limit,
            kinds=arguments.kinds,
            stream=arguments.stream,
            old_size=arguments.old_size,
        )
        return _fields(page)

    def blob(arguments: _Chunk) -> dict[str, Any]:
        size, content = client.blob_chunk(arguments.ref, arguments.chunk)
        return {"size": size, "content": content}

    return {
        "head": (_Arguments, lambda _: _fields(client.head())),
        "consistency": (_Consistency, consistency),
        "range": (_Range, entries),
        "stream": (StreamRequest, lambda arguments: _fields(client.signed_stream(arguments))),
        "entry": (_Index, lambda arguments: {"entry": client.entry(arguments.index)}),
        "index": (_Event, lambda arguments: {"index": client.index_of(arguments.stream, arguments.id)}),
        "proof": (_Index, lambda arguments: {"receipt": client.prove(arguments.index).to_text()}),
        "checkpoint": (_Arguments, lambda _: {"checkpoint": client.checkpoint()}),
        "ends": (_StreamHeads, lambda arguments: {"ends": client.ends(arguments.size, arguments.streams)}),
        "agents": (_Arguments, lambda _: {"agents": [_fields(agent) for agent in client.agents()]}),
        "blob": (_Chunk, blob),
        "blob.stat": (_Blob, lambda arguments: _fields(client.stat_blob(arguments.ref))),
        "blobs": (_Blobs, lambda arguments: _fields(client.blobs(**msgspec.structs.asdict(arguments)))),
        "view": (_View, lambda arguments: answer_view(arguments.query, arguments.arguments, arguments.as_of)),
    }


def _encoded(answer: Any) -> bytes:
    encoded = msgspec.json.encode(answer)
    if len(encoded) > answer_size_max_bytes:
        raise Refused(
            "TOO_LARGE",
            f"the answer has {len(encoded)} bytes, at most {answer_size_max_bytes} are allowed: ask for less",
            size=len(encoded),
        )
    return encoded


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a struct by name, even if the struct is encoded as an array."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
