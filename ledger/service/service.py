"""What a node answers on the bus: submissions, and reads of the log.

- ``submit.<agent>``: the payload is a submission (msgpack or DSSE JSON); the answer is JSON, ``{"accepted": […]}`` or
  ``{"error": {…}}``. With the header ``Deedbook-Blob`` the payload is the intent or a chunk of one.
- ``read.<agent>.<verb>``: the payload is a JSON object of arguments, the answer is JSON. Bytes are base64.

A request never blocks the others. What each agent sends waits in queues of its own, one for submissions and one for
reads, which are served in turn and shed when they are full (``ledger.service.intake``). Nothing an agent sent is parsed
on the event loop: submissions are decoded and verified in the committer's threads, reads in a few threads of their own,
of which one agent has at most half. (A hop to a thread and back costs a read 0.1 to 0.2 ms, a submission none,
measured; 64 KiB of hostile JSON cost more than that.) Waiting reads hold no thread, and have limits of their own.

Stopping: no new requests, waiting reads end, everything else is finished and answered. What happens if we crash here:
nobody was answered who was not served, and a submission that is sent again is told from the first.
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
from nats.aio.msg import Msg

from deedbook.ledger import limits
from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER
from deedbook.ledger.client.client import AnswerView, When
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.fields import Name, Ref
from deedbook.ledger.format.codec import decode_strict
from deedbook.ledger.log.blobs import page_blobs_max
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.fair_queue import Share
from deedbook.ledger.service.intake import QUEUE, Intake
from deedbook.ledger.service.uploads import take
from deedbook.ledger.system.metrics import Metrics
from deedbook.ledger.trust.history import StreamRequest

log = structlog.get_logger("deedbook.service")

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

arguments_size_max_bytes: Final = 64 * 1024
answer_size_max_bytes: Final = 1000 * 1024  # The server's ``max_payload`` less what a message has around it.
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
            self._log.announce()

    async def run(self) -> None:
        """Look for other processes' commits until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(poll_interval_s)

    async def wait_beyond(self, size: int, wait: float | asyncio.Timeout) -> int:
        """Wait until the log has more than ``size`` entries, or so many seconds; return its size."""
        with contextlib.suppress(TimeoutError):
            async with wait if isinstance(wait, asyncio.Timeout) else asyncio.timeout(wait):
                while self.size <= size:
                    await self._grown.wait()
        return self.size


# What each verb of ``read`` is asked with.
class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Range(_Arguments, frozen=True):
    """``wait_s`` lets an empty answer wait for news, ``old_size`` asks for a proof."""

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
    """The size of the log that the caller has seen, and of the larger one, else as it is, with a checkpoint."""

    old_size: _Count
    new_size: _Count | None = None


class _Event(_Arguments, frozen=True):
    stream: str
    id: Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]


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
        has_complete_log: Callable[[], bool] = lambda: True,
    ) -> None:
        """Answer from ``client``; admit through ``committer``; ``answer_view`` answers view queries in a thread.

        ``has_complete_log`` tells in any thread whether no other node can have more of the log than this one now.
        """
        self._count = count = (metrics or Metrics()).count
        self._client = client
        self._committer = committer
        self._watcher, self._has_complete_log = watcher, has_complete_log
        self._threads = ThreadPoolExecutor(limits.read_threads_max, thread_name_prefix="deedbook-service")
        self._upload_threads = ThreadPoolExecutor(upload_threads_max, thread_name_prefix="deedbook-service-upload")
        self._submissions = Intake(
            subjects.submit_subject,
            self._answering(self._submit),
            SUBMISSIONS,
            partial(count, label="submit"),
            # Of its own: a leader that was deposed because it hung still has its subscriptions, and would be asked.
            f"{QUEUE}-{client.node}",
        )
        self._reads = Intake(subjects.reads_of, self._answering(self._read), READS, partial(count, label="read"))
        self._served: frozenset[str] = frozenset()
        self._admits = self._reads_on = True
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._verbs: dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], Any]]] = {
            verb: (msgspec.json.Decoder(form), answer) for verb, (form, answer) in _verbs(client, answer_view).items()
        }

    @property
    def verbs(self) -> list[str]:
        """The verbs of ``read`` that this node answers."""
        return sorted(self._verbs)

    async def start(self, nats: NodeClient, agents: Collection[str]) -> None:
        """Serve these agents; every node of a ledger shares the work through one queue group."""
        self._served = frozenset(agents)
        for intake, served in self._served_by():
            await intake.start(nats, self._client.ledger, served)
        # nats-py's flush sends its PING ahead of what is buffered: only the second one is a barrier (measured).
        await nats.flush()
        await nats.flush()

    async def follow(self, agents: Collection[str]) -> None:
        """Serve these agents from now on; what others wait for ends."""
        self._served = frozenset(agents)
        self._end_waiting(self._waiting.keys() - self._served)
        for intake, served in self._served_by():
            await intake.follow(served)

    @property
    def role(self) -> str:
        """What this node is now, in a word for people."""
        return "leader" if self._admits else "follower" if self._reads_on else "catching up"

    async def take(self, *, admits: bool, reads: bool) -> None:
        """From now on take submissions, as the one node that leads, and reads, as any that is caught up; or not."""
        self._admits, self._reads_on = admits, reads
        for intake, served in self._served_by():
            await intake.follow(served)

    def _served_by(self) -> list[tuple[Intake, frozenset[str]]]:
        nobody = frozenset[str]()
        submissions = self._submissions, self._served if self._admits else nobody
        return [submissions, (self._reads, self._served if self._reads_on else nobody)]

    async def stop(self) -> None:
        """Take no more requests, and finish and answer those that were taken."""
        try:
            async with asyncio.timeout(drain_wait_max_s):
                await asyncio.gather(self._submissions.drain(), self._reads.drain())
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("stopping without the bus", error=str(error) or type(error).__name__)
        self._end_waiting(self._waiting.keys())
        await asyncio.gather(self._submissions.finish(finish_wait_max_s), self._reads.finish(finish_wait_max_s))
        for threads in (self._threads, self._upload_threads):
            await asyncio.to_thread(threads.shutdown)

    def _answering(self, serve: Callable[[str, Msg], Awaitable[bytes]]) -> Callable[[str, Msg], Awaitable[bytes]]:
        async def answer(agent: str, message: Msg) -> bytes:
            try:
                return await serve(agent, message)
            except DeedbookError as error:
                return msgspec.json.encode({"error": error.to_dict()})
            except Exception as error:
                log.exception("request failed", subject=message.subject)
                failed = DeedbookError("UNEXPECTED", f"the ledger failed: {type(error).__name__}")
                return msgspec.json.encode({"error": failed.to_dict()})

        return answer

    async def _submit(self, agent: str, message: Msg) -> bytes:
        headers = message.headers or {}
        if BLOB_HEADER in headers:
            number = headers.get(CHUNK_HEADER, "")
            taking = partial(take, self._client, agent, headers[BLOB_HEADER], number, message.data)
            return _encoded(await asyncio.get_running_loop().run_in_executor(self._upload_threads, taking))
        accepted = await self._committer.submit_from_loop(message.data)
        self._watcher.look()
        return _encoded({"accepted": [_fields(event) for event in accepted]})

    async def _read(self, agent: str, message: Msg) -> bytes:
        if len(message.data) > arguments_size_max_bytes:
            raise Refused("TOO_LARGE", f"the arguments of a read have at most {arguments_size_max_bytes} bytes")
        self._count("reads")
        verb = subjects.read_verb(message.subject)
        if verb not in self._verbs:
            raise Refused("USAGE", f"there is no verb {verb!r}: {', '.join(self.verbs)}", verb=verb)
        loop, (decoder, answer) = asyncio.get_running_loop(), self._verbs[verb]

        def answered(wanted: Any = None) -> bytes | _Range | _Behind:
            """Return the encoded answer, or what must be waited for first. In a thread."""
            if wanted is None:
                wanted = decode_strict(message.data or b"{}", decoder)
                if seen_size(wanted) > self._watcher.size and not self._has_complete_log():
                    return _Behind(seen_size(wanted), wanted)
                if isinstance(wanted, _Range) and wanted.wait_s and self._watcher.size <= wanted.start:
                    return wanted
            return _encoded(answer(wanted))

        given = await loop.run_in_executor(self._threads, answered)
        if isinstance(given, _Behind):
            # A follower, or a leader that was deposed and does not know it, may lag behind what its caller has seen of
            # another node: that is no history that changed.
            if await self._watcher.wait_beyond(given.size - 1, limits.follower_lag_max_s) < given.size:
                raise Unavailable("BUS_UNAVAILABLE", "this node is behind the others: ask again")
            given = await loop.run_in_executor(self._threads, answered, given.wanted)
        if isinstance(given, _Range):
            await self._wait_beyond(agent, len(message.data), given)
            is_newest = self._watcher.size - given.start <= newest_entries_max
            # The newest lie in memory, and a thread's turn takes longer than to read them.
            given = answered(given) if is_newest else await loop.run_in_executor(self._threads, answered, given)
        return cast("bytes", given)

    async def _wait_beyond(self, agent: str, size: int, wanted: _Range) -> None:
        if (wanted.old_size or 0) > self._watcher.size:
            return  # what the caller has seen is gone, and waiting does not bring it back
        mine = self._waiting.setdefault(agent, set())
        if len(mine) >= limits.agent_reads_waiting_max:
            raise Unavailable("BUSY", f"{limits.agent_reads_waiting_max} reads of yours wait already: try again later")
        if self.reads_waiting >= limits.reads_waiting_max:
            raise Unavailable("BUSY", f"{limits.reads_waiting_max} reads wait already: try again later")
        patience = asyncio.timeout(wanted.wait_s)
        mine.add(patience)
        try:
            await self._reads.rest(agent, size, self._watcher.wait_beyond(wanted.start, patience))
        finally:
            mine.discard(patience)
            if not mine:
                self._waiting.pop(agent, None)
        if agent not in self._served:
            raise Refused("BUS_DENIED", f"{agent} may not read this ledger any more", agent=agent)

    def _end_waiting(self, agents: Iterable[str]) -> None:
        now = asyncio.get_running_loop().time()
        for agent in agents:
            for patience in self._waiting[agent]:
                with contextlib.suppress(RuntimeError):  # it has ended, and waits for its turn
                    patience.reschedule(now)

    @property
    def reads_waiting(self) -> int:
        """How many reads wait for news."""
        return sum(map(len, self._waiting.values()))


class _Behind(NamedTuple):
    """What is asked by who has seen more of the log than this node has."""

    size: int
    wanted: Any


def seen_size(wanted: Any) -> int:
    """Return how large its caller has seen the log."""
    return int(wanted.size if isinstance(wanted, _StreamHeads) else getattr(wanted, "old_size", None) or 0)


def _verbs(client: LocalClient, answer_view: AnswerView) -> dict[str, tuple[type, Callable[[Any], Any]]]:
    """Return the verbs of ``read``: the form of each one's arguments, and what answers it."""

    def consistency(asked: _Consistency) -> dict[str, Any]:
        if asked.new_size is not None:
            return _fields(client.consistency(asked.old_size, asked.new_size))
        return _fields(client.signed_consistency(asked.old_size))

    def entries(asked: _Range) -> dict[str, Any]:
        page = client.entries(
            asked.start, limit=asked.limit, kinds=asked.kinds, stream=asked.stream, old_size=asked.old_size
        )
        return _fields(page)

    def blob(asked: _Chunk) -> dict[str, Any]:
        size, content = client.blob_chunk(asked.ref, asked.chunk)
        return {"size": size, "content": content}

    return {
        "head": (_Arguments, lambda _: _fields(client.head())),
        "consistency": (_Consistency, consistency),
        "range": (_Range, entries),
        "stream": (StreamRequest, lambda asked: _fields(client.signed_stream(asked))),
        "entry": (_Index, lambda asked: {"entry": client.entry(asked.index)}),
        "index": (_Event, lambda asked: {"index": client.index_of(asked.stream, asked.id)}),
        "proof": (_Index, lambda asked: {"receipt": client.prove(asked.index).to_text()}),
        "checkpoint": (_Arguments, lambda _: {"checkpoint": client.checkpoint()}),
        "ends": (_StreamHeads, lambda asked: {"ends": client.ends(asked.size, asked.streams)}),
        "agents": (_Arguments, lambda _: {"agents": [_fields(agent) for agent in client.agents()]}),
        "blob": (_Chunk, blob),
        "blob.stat": (_Blob, lambda asked: _fields(client.stat_blob(asked.ref))),
        "blobs": (_Blobs, lambda asked: _fields(client.blobs(**msgspec.structs.asdict(asked)))),
        "view": (_View, lambda asked: answer_view(asked.query, asked.arguments, asked.as_of)),
    }


def _encoded(answer: Any) -> bytes:
    encoded = msgspec.json.encode(answer)
    if len(encoded) > answer_size_max_bytes:
        raise Refused("TOO_LARGE", f"the answer has {len(encoded)} bytes: ask for less", size=len(encoded))
    return encoded


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as an object with names, also where it is stored as an array."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
